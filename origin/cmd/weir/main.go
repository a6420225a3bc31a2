// Command weir plays every role of the origin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// commands holds the constructors of all subcommands; each file of this package registers its own.
var commands []func() *cobra.Command

func register(newCommand func() *cobra.Command) { commands = append(commands, newCommand) }

// exitError carries the exit code of an error whose code is not 1. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes one command line, returning the process's exit code.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(os.Stderr, "weir: %s\n", text)
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate limiter in two tiers: a Wasm filter at the edge, a layered service at the origin",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       build(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(newHelpCommand())
	root.SetFlagErrorFunc(flagError)
	for _, newCommand := range commands {
		root.AddCommand(newCommand())
	}
	return root
}
