package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// exactly wants the arguments that are named, telling which is missing or too many.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s: %s is missing: want %s", title(cmd), names[len(args)], cmd.UseLine())
		}
		return atMost(len(names))(cmd, args)
	}
}

// atMost wants n arguments or fewer.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("%s: %q is one too many: want %s", title(cmd), args[n], cmd.UseLine())
		}
		return nil
	}
}

// require makes flags of cmd required. cobra's own check does not say which command lacks them.
func require(cmd *cobra.Command, names ...string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		var missing []string
		for _, name := range names {
			if !cmd.Flags().Changed(name) {
				missing = append(missing, "--"+name)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		verb := "is"
		if len(missing) > 1 {
			verb = "are"
		}
		return fmt.Errorf("%s: %s %s missing: `%s --help` lists the flags", title(cmd), strings.Join(missing, " and "), verb, cmd.CommandPath())
	}
}

// flagError tells which command refused a flag, and where its flags are listed.
func flagError(cmd *cobra.Command, err error) error {
	if !cmd.HasParent() {
		return fmt.Errorf("%w: `%s --help` lists what there is", err, cmd.Name())
	}
	return fmt.Errorf("%s: %w: `%s --help` lists the flags", title(cmd), err, cmd.CommandPath())
}

// title is a command's name as its errors begin with it: without the program's.
func title(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}
