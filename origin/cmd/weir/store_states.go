package main

import (
	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/outage"
)

func newStoreStatesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "states",
		Short: "Print what each failure mode answers in each state of the store, what that adds to a call, and what recovers it",
		Args:  atMost(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return outage.Write(cmd.OutOrStdout()) },
	}
}
