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
			c, err := loadConfig(file)
			if err != nil {
				return err
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

// loadConfig reads weir.yaml with the environment's overrides.
func loadConfig(file string) (config.Config, error) {
	c, err := config.Load(file, os.LookupEnv)
	if err != nil {
		return c, startError(err)
	}
	return c, nil
}

// startError gives faults in files the exit code of a broken configuration, one line each.
func startError(err error) error {
	faults, broken := errors.AsType[rule.Faults](err)
	switch {
	case broken && len(faults) > 1:
		return exitError{configCode, fmt.Errorf("%d faults in the configuration:\n%w", len(faults), faults)}
	case broken:
		return exitError{configCode, faults}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return exitError{configCode, err}
	}
	return err
}
