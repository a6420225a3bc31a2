package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// group makes cmd the parent of subcommands. Called for itself or with a word that names none, it fails: a script with
// a slip in it must not go on.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	var names []string
	for _, c := range subcommands {
		names = append(names, c.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		want := "want " + strings.Join(names, " or ")
		if len(args) == 0 {
			return fmt.Errorf("%s: %s", cmd.Name(), want)
		}
		return fmt.Errorf("%s: %q: %s", cmd.Name(), args[0], want)
	}
	return cmd
}

// newHelpCommand shows the help of a command, failing for one that is none.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("help: no command %q: `weir help` lists all", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
