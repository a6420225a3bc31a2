package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirproject/weir/origin/internal/demo"
	"github.com/weirproject/weir/origin/internal/stand"
)

func init() { register(newDemoCommand) }

func newDemoCommand() *cobra.Command {
	var runFile string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Send good and bad clients at a running system, and watch",
		Long: `Send a polite client, a retry storm and forged keys at the system that "weir run" started,
each from an address of its own, and draw who is answered what.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := stand.ReadRun(runFile)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			err = demo.Show(cmd.Context(), demo.Options{
				Run:      run,
				For:      duration,
				Out:      cmd.OutOrStdout(),
				Terminal: cmd.OutOrStdout() == os.Stdout && term.IsTerminal(int(os.Stdout.Fd())),
			})
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return nil
		},
	}
	cmd.AddCommand(newDemoAPICommand(), newDemoIssuerCommand(), newDemoTokenCommand())
	cmd.Flags().StringVar(&runFile, "run", "build/run.json", "file that tells where the system is")
	cmd.Flags().DurationVar(&duration, "for", 20*time.Second, "how long to send")
	return cmd
}
