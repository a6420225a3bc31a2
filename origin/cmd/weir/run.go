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
		Long: `Run Valkey, a demo API, the origin and Envoy with the filter on loopback ports, until Ctrl-C.
It is "make run", which builds and fetches what is missing first. Addresses go to build/run.json as well.`,
		Args: cobra.NoArgs,
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
	fmt.Fprintln(out, "\nstopping")
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
		{"envoy admin", r.EnvoyAdmin, ""},
		{"api", r.API, "the API behind the origin"},
		{"valkey", r.Valkey, "the counters"},
		{"demo key", r.DemoKey, "20 calls in 10 s"},
		{"files", logs, "configuration, logs"},
	} {
		if row[1] != "" {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", row[0], row[1], row[2])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	door := r.Door()
	fmt.Fprintf(out, `
Paste into a second terminal:

# allowed, with the rate limit headers
curl -si -H 'x-api-key: %[2]s' %[1]s/hello
# 429 with Retry-After, after 20 calls in 10 s
for i in $(seq 25); do curl -si -H 'x-api-key: %[2]s' %[1]s/hello | grep -iE '^(HTTP|retry-after)'; done
# 401: looks like a key, was never issued
curl -si -H 'x-api-key: %[3]s' %[1]s/hello
# decisions, store commands
curl -s %[4]s/metrics | grep '^weir_'
`, door, r.DemoKey, forged, r.Admin)
	if r.EnvoyAdmin != "" {
		fmt.Fprintf(out, "# what the filter counts, from Envoy's admin\ncurl -s %s/stats/prometheus | grep '^weir_'\n", r.EnvoyAdmin)
	} else {
		fmt.Fprintf(out, "# ready, part by part\ncurl -s %s/readyz\n", r.Admin)
	}
	_, err := fmt.Fprintf(out, "\n`weir demo` (build/weir demo) sends a polite client, a retry storm and forged keys. Ctrl-C here ends all.\n")
	return err
}
