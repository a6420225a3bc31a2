package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/rule"
)

func init() { register(newCheckConfigCommand) }

func newCheckConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a weir.yaml with the rules and keys files it names, listing every mistake",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(args[0])
			if err != nil {
				return err
			}
			summary, err := checkFiles(c)
			if err != nil {
				return startError(err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), summary)
			return err
		},
	}
}

// checkFiles reads the files that c names, collecting the faults of all.
func checkFiles(c config.Config) (summary string, err error) {
	var faults rule.Faults
	collect := func(err error) error {
		if more, ok := errors.AsType[rule.Faults](err); ok {
			faults = append(faults, more...)
			return nil
		}
		return err
	}
	release, err := rules.Load(c.Rules)
	if err = collect(err); err != nil {
		return "", err
	}
	table := (&keys.File{}).Table()
	if c.Keys != "" {
		file, err := keys.Load(c.Keys)
		if err = collect(err); err != nil {
			return "", err
		}
		if file != nil {
			table = file.Table()
		}
	}
	if err := faults.Err(); err != nil {
		return "", err
	}
	store := "memory"
	if c.Store.Valkey != nil {
		store = c.Store.Valkey.Shown()
	}
	return fmt.Sprintf("%s is good: %d rules (content %s), %d keys, store %s\n", c.File, len(release.Set.Rules), release.Content, table.Len(), store), nil
}
