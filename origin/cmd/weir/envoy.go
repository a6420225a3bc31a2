package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/shared/bundle"
)

func init() { register(newEnvoyCommand) }

func newEnvoyCommand() *cobra.Command {
	return group(&cobra.Command{Use: "envoy", Short: "Write the configuration of an Envoy that carries the edge filter"},
		newEnvoyConfigCommand(), newEnvoyFilterCommand(), newEnvoyCertificateCommand())
}

func newEnvoyConfigCommand() *cobra.Command {
	var edge envoyconfig.Edge
	var out string
	var heap size
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write the bootstrap of an edge Envoy",
		Long: `Write the bootstrap of an edge Envoy: one listener with Weir's filter and the guard behind it.
Envoy loads the filter from the file that "weir envoy filter" writes, at start and at each rename onto it.
The number of workers is Envoy's own flag: envoy -c FILE --concurrency N.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			edge.MaxHeap = int64(heap)
			for _, name := range []string{"max-connections", "request-timeout", "stream-idle"} {
				// To an Edge, zero is the default; whoever writes a zero means something else.
				if value := cmd.Flags().Lookup(name).Value.String(); value == "0" || value == "0s" {
					return fmt.Errorf("envoy config: %s: %q: want more than zero", name, value)
				}
			}
			text, err := edge.Render()
			if err != nil {
				return fmt.Errorf("envoy config: %w", err)
			}
			if out == "" || out == "-" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return envoyconfig.WriteFile(out, text)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&edge.Listen, "edge", "127.0.0.1:8080", "where clients connect, IP:PORT; [::]:PORT is IPv4 and IPv6")
	flags.StringVar(&edge.Origin, "origin", "127.0.0.1:8081", "where the origin's gateway listens, HOST:PORT")
	flags.StringVar(&edge.Admin, "admin", "127.0.0.1:9901", "Envoy's admin, IP:PORT on loopback")
	flags.StringVar(&edge.Filter, "filter", "", "file that holds the filter, FILE.json (required)")
	flags.IntVar(&edge.Hops, "hops", 0, "own proxies in front of this Envoy that append to X-Forwarded-For")
	flags.StringVar(&edge.AccessLog, "access-log", "/dev/stdout", "file of the access log")
	flags.StringVar(&edge.Node, "node", "weir-edge", "Envoy's node id")
	flags.StringVar(&edge.Control, "control", "", "where the control plane answers for new and revoked keys, HOST:PORT (default: nobody is asked)")
	flags.StringVar(&edge.Health, "health", "", "where GET /healthz is answered, IP:PORT (default: nowhere)")
	flags.StringVar(&edge.Certificate, "certificate", "", "file that \"weir envoy certificate\" wrote, FILE.json (default: no TLS)")
	flags.IntVar(&edge.MaxConnections, "max-connections", envoyconfig.DefaultMaxConnections, "clients' connections at once")
	flags.Var(&heap, "max-heap", "heap that Envoy sheds load to stay within, as 2GiB (default: no bound)")
	flags.DurationVar(&edge.RequestTimeout, "request-timeout", envoyconfig.DefaultRequestTimeout, "until a request is whole or its answer begins")
	flags.DurationVar(&edge.StreamIdle, "stream-idle", envoyconfig.DefaultStreamIdle, "until a silent request, stream or websocket ends")
	flags.StringVarP(&out, "output", "o", "", "file to write (default standard output)")
	require(cmd, "filter")
	return cmd
}

func newEnvoyFilterCommand() *cobra.Command {
	var bundleFile, out string
	var filter envoyconfig.Filter
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Write the filter with its bundle, for Envoy to load",
		Long: `Write the Wasm filter with its bundle as the file that Envoy's extension discovery reads.
The file is renamed into place: a running Envoy takes it within a moment and keeps its buckets.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) (err error) {
			if filter.Bundle, err = os.ReadFile(bundleFile); err != nil {
				return fmt.Errorf("envoy filter: %w", err)
			}
			if _, err := bundle.Decode(filter.Bundle); err != nil {
				return fmt.Errorf("envoy filter: %s: %w", bundleFile, err)
			}
			text, err := filter.Render()
			if err == nil {
				err = envoyconfig.WriteDiscovery(out, text)
			}
			if err != nil {
				return fmt.Errorf("envoy filter: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&bundleFile, "bundle", "", "bundle that \"weir bundle build\" wrote (required)")
	flags.StringVar(&filter.Wasm, "wasm", "build/weir-edge.wasm", "the filter's module; its absolute path here is where Envoy looks for it")
	flags.StringVarP(&out, "output", "o", "", "file to write, FILE.json (required)")
	flags.StringVar(&filter.VMConfig, "vm-config", "", "text that each VM starts with; only the fault-test build reads it")
	require(cmd, "bundle", "output")
	return cmd
}

func newEnvoyCertificateCommand() *cobra.Command {
	var certificate envoyconfig.Certificate
	var out string
	cmd := &cobra.Command{
		Use:   "certificate",
		Short: "Write which TLS certificate Envoy serves, for Envoy to load",
		Long: `Write which certificate and private key Envoy serves TLS with, as the file that its secret discovery reads.
Envoy reads the two files again when one is renamed into their folder, so a renewal needs no restart.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error {
			text, err := certificate.Render()
			if err == nil {
				err = envoyconfig.WriteDiscovery(out, text)
			}
			if err != nil {
				return fmt.Errorf("envoy certificate: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&certificate.Chain, "cert", "", "certificate with its intermediates, PEM (required)")
	flags.StringVar(&certificate.Key, "key", "", "its private key, PEM, in the same folder (required)")
	flags.StringVarP(&out, "output", "o", "", "file to write, FILE.json (required)")
	require(cmd, "cert", "key", "output")
	return cmd
}

// size is a number of bytes as a flag.
type size int64

// String implements [pflag.Value].
func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s)>>20, 10) + "MiB"
}

// Type implements [pflag.Value].
func (s *size) Type() string { return "SIZE" }

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	for unit, shift := range map[string]int{"MiB": 20, "GiB": 30} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			if n, err := strconv.ParseUint(digits, 10, 31); err == nil {
				*s = size(n << shift)
				return nil
			}
		}
	}
	return errors.New("want a whole number of MiB or GiB, as 2GiB")
}
