package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is stamped by the build.
var version = "dev"

func init() { register(newVersionCommand) }

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), build())
			return err
		},
	}
}

// build names this build in one line.
func build() string {
	made, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("weir %s (%s, %s/%s%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision(made))
}

// revision is the commit that a build was made of, as the end of a list; empty where Go did not note it.
func revision(build *debug.BuildInfo) (text string) {
	if build == nil {
		return ""
	}
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			text = ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true" && text != "":
			text += " with changes"
		}
	}
	return text
}
