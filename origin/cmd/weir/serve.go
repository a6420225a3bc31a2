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
		Use:   "serve",
		Short: "Run an origin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(file, os.LookupEnv)
			if err != nil {
				return startError(err)
			}
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			s, err := server.Open(c, log)
			if err != nil {
				return startError(err)
			}
			return s.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "weir.yaml", "settings of this process")
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
