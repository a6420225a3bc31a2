package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/server"
	"github.com/weirproject/weir/shared/rule"
)

func init() { register(newServeCommand) }

// configCode is the exit code for a configuration with faults.
const configCode = 2

func newServeCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Run an origin",
		Long: `Run an origin: a gateway that passes on what the rules admit, and an admin port with metrics and health.
The README's table lists what FILE says and which WEIR_ variables come before it; weir check-config checks it without
running anything. The log goes to standard error, a JSON object a line. SIGTERM ends it once what is in flight has
finished, after 10 s at most.`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if cmd.Flags().Changed("config") {
					return fmt.Errorf("serve: %q beside --config: want one of the two", args[0])
				}
				file = args[0]
			}
			c, err := config.Load(file, os.LookupEnv)
			if err != nil {
				return startError(err)
			}
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			s, err := server.Open(c, log)
			if err != nil {
				return startError(err)
			}
			now := s.Readiness()
			log.Info("started", "config", file, "store", now.Store.Kind, "rules", now.Rules.Count, "keys", now.Keys.Count)
			if err := s.Run(cmd.Context()); err != nil {
				return err
			}
			log.Info("stopped")
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "weir.yaml", "FILE, settings of this process")
	return cmd
}

// startError gives faults in files, one line each, and files that cannot be read the exit code of a broken configuration.
func startError(err error) error {
	faults, broken := errors.AsType[rule.Faults](err)
	switch {
	case broken && len(faults) > 1:
		return exitError{configCode, fmt.Errorf("%d faults in the configuration:\n%w", len(faults), faults)}
	case broken:
		return exitError{configCode, faults}
	}
	// A file that cannot be read, other than a port that cannot be taken.
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return exitError{configCode, err}
	}
	return err
}
