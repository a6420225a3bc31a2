package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
)

func init() { register(newEnvoyCommand) }

func newEnvoyCommand() *cobra.Command {
	return group(&cobra.Command{Use: "envoy", Short: "Write the configuration of an Envoy that carries the edge filter"},
		newEnvoyConfigCommand(), newEnvoyFilterCommand())
}

func newEnvoyConfigCommand() *cobra.Command {
	var edge envoyconfig.Edge
	var out string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write the bootstrap of an edge Envoy",
		Long: `Write the bootstrap of an edge Envoy: one listener with Weir's filter and the guard behind it.
Envoy loads the filter from the file that "weir envoy filter" writes, at start and at each rename onto it.
The number of workers is Envoy's own flag: envoy -c FILE --concurrency N.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	flags.StringVar(&edge.Listen, "edge", "127.0.0.1:8080", "where clients connect, IP:PORT")
	flags.StringVar(&edge.Origin, "origin", "127.0.0.1:8081", "where the origin's gateway listens, HOST:PORT")
	flags.StringVar(&edge.Admin, "admin", "127.0.0.1:9901", "Envoy's admin, IP:PORT on loopback")
	flags.StringVar(&edge.Filter, "filter", "", "file that holds the filter, FILE.json (required)")
	flags.IntVar(&edge.Hops, "hops", 0, "own proxies in front of this Envoy that append to X-Forwarded-For")
	flags.StringVar(&edge.AccessLog, "access-log", "/dev/stdout", "file of the access log")
	flags.StringVar(&edge.Node, "node", "weir-edge", "Envoy's node id")
	flags.StringVarP(&out, "output", "o", "", "file to write (default standard output)")
	_ = cmd.MarkFlagRequired("filter")
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
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if filter.Bundle, err = os.ReadFile(bundleFile); err != nil {
				return fmt.Errorf("envoy filter: %w", err)
			}
			text, err := filter.Render()
			if err == nil {
				err = envoyconfig.WriteFilter(out, text)
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
	for _, name := range []string{"bundle", "output"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}
