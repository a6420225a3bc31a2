package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/demo"
	"github.com/weirproject/weir/origin/internal/stand"
	"github.com/weirproject/weir/shared/keyfilter"
)

func init() { register(newRunCommand) }

func newRunCommand() *cobra.Command {
	var store, envoy string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the whole system on this machine, to look at it",
		Long: `Run Valkey, a demo API, an issuer of users, the origin and Envoy with the filter on loopback ports, until Ctrl-C
or until one of them ends. It is "make run", which builds and fetches what is missing first. Addresses go to build/run.json
as well.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			memory, err := choice("store", store, "memory", "valkey")
			if err != nil {
				return fmt.Errorf("run: %w", err)
			}
			noEnvoy, err := choice("envoy", envoy, "no", "yes")
			if err != nil {
				return fmt.Errorf("run: %w", err)
			}
			return runStand(cmd.Context(), cmd.OutOrStdout(), stand.Options{Memory: memory, NoEnvoy: noEnvoy})
		},
	}
	cmd.Flags().StringVar(&store, "store", "valkey", "where the origin counts: valkey, memory")
	cmd.Flags().StringVar(&envoy, "envoy", "yes", "Envoy in front of the origin: yes, no")
	return cmd
}

// choice tells whether value is chosen rather than otherwise, one of which it has to be.
func choice(flag, value, chosen, otherwise string) (bool, error) {
	if value != chosen && value != otherwise {
		return false, fmt.Errorf("%s: %q: want %s or %s", flag, value, otherwise, chosen)
	}
	return value == chosen, nil
}

func runStand(ctx context.Context, out io.Writer, o stand.Options) (err error) {
	if o.Root, err = os.Getwd(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if o.Weir, err = os.Executable(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	o.API, o.Progress = demo.NewAPI(), out
	system, err := stand.Start(ctx, o)
	if err != nil {
		if ctx.Err() != nil { // Ctrl-C while starting
			return nil
		}
		return fmt.Errorf("run: %w", err)
	}
	defer system.Stop()
	forged, err := keyfilter.Format{}.New(rand.Reader)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := showRun(out, system.Run, shortest(o.Root, system.LogsAt), forged); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := system.Wait(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	fmt.Fprintln(out, "\nstopping …")
	return nil
}

// shortest is path from folder, where that is shorter to read.
func shortest(folder, path string) string {
	if relative, err := filepath.Rel(folder, path); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return path
}

// showRun prints where everything is, then what to paste.
func showRun(out io.Writer, r stand.Run, logs, forged string) error {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range [][3]string{
		{"edge", r.Edge, "Envoy with the filter"},
		{"origin", r.Origin, "weir serve"},
		{"admin", r.Admin, "its /metrics, /healthz, /readyz"},
		{"envoy admin", r.EnvoyAdmin, "its statistics and settings"},
		{"api", r.API, "the API behind the origin"},
		{"issuer", r.Issuer, "makes tokens of users"},
		{"valkey", r.Valkey, "the counters"},
		{"demo key", r.DemoKey, stand.DemoLimit},
		{"files", logs, "configuration, logs"},
	} {
		if row[1] != "" {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", row[0], row[1], row[2])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	const withKey = "curl -si -H 'x-api-key: %s' %s/hello"
	lines := [][2]string{
		{"allowed, with the rate limit headers", fmt.Sprintf(withKey, r.DemoKey, r.Door())},
		{"429 with Retry-After, once the key is used up",
			"for i in $(seq 25); do " + fmt.Sprintf(withKey, r.DemoKey, r.Door()) + " | grep -iE '^(HTTP|retry-after)'; done"},
		{"401, a key that was never issued", fmt.Sprintf(withKey, forged, r.Door())},
		{"a user by a bearer token, tier paid: " + stand.UserLimit,
			"curl -si -H \"Authorization: Bearer $(build/weir demo token --user bob --tier paid)\" " + r.Door() + "/hello"},
		{"what holds the demo key back", "build/weir counters show --key-id " + stand.DemoKeyID + " --admin " + r.Admin},
		{"what the origin counted", "curl -s " + r.Admin + "/metrics | grep -E '^weir_.*_total.* [1-9]'"},
	}
	if r.EnvoyAdmin != "" {
		lines = append(lines, [2]string{"what the filter counted", "curl -s " + r.EnvoyAdmin + "/stats/prometheus | grep '^weir_'"})
	} else {
		lines = append(lines, [2]string{"ready, part by part", "curl -s " + r.Admin + "/readyz"})
	}
	fmt.Fprintf(out, "\nTo paste into a second terminal:\n")
	for _, line := range lines {
		fmt.Fprintf(out, "\n  %s:\n    %s\n", line[0], line[1])
	}
	_, err := fmt.Fprintf(out, "\nbuild/weir demo, there, sends a polite client, a retry storm and forged keys. Ctrl-C here ends all.\n")
	return err
}
