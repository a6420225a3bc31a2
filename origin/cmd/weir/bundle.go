package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

func init() { register(newBundleCommand) }

func newBundleCommand() *cobra.Command {
	return group(&cobra.Command{Use: "bundle", Short: "Build and inspect what edges load"}, newBundleBuildCommand(), newBundleInspectCommand())
}

func newBundleBuildCommand() *cobra.Command {
	var rulesFile, keysFile, out string
	var release uint64
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Compile the edge rule and the issued keys into a bundle",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			content, err := envoyconfig.BuildBundle(rulesFile, keysFile, release, time.Now())
			if err == nil {
				err = envoyconfig.WriteFile(out, content)
			}
			if err != nil {
				return fmt.Errorf("bundle build: %w", err)
			}
			if b, err := bundle.Decode(content); err == nil && !b.HasRule {
				does := "refuses malformed keys alone"
				if !b.HasGate {
					does = "limits nothing"
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "weir: bundle build: %s has no rule with where: edge: with this bundle an edge %s\n", rulesFile, does)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&rulesFile, "rules", "weir.rules.yaml", "rules file")
	flags.StringVar(&keysFile, "keys", "", "keys file; without one, edges do not look at keys")
	flags.StringVarP(&out, "output", "o", "", "file to write (required)")
	flags.Uint64Var(&release, "release", 0, "number of the release; 0 for one that comes from a file")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}

func newBundleInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what is in a bundle",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("bundle inspect: %w", err)
			}
			b, err := bundle.Decode(content)
			if err != nil {
				return fmt.Errorf("bundle inspect: %s: %w", args[0], err)
			}
			return describe(cmd.OutOrStdout(), b, len(content))
		},
	}
}

func describe(w io.Writer, b bundle.Bundle, size int) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "release\t%d\n", b.Release)
	fmt.Fprintf(table, "built\t%s\n", time.UnixMicro(int64(b.Built)).UTC().Format(time.RFC3339))
	fmt.Fprintf(table, "size\t%d bytes\n", size)
	if b.HasGate {
		fmt.Fprintf(table, "keys\t%d, begin with %q, in header %s\n", b.Gate.Filter.Len(), b.Gate.Format.Prefix, b.Gate.KeyHeader)
	} else {
		fmt.Fprintf(table, "keys\tnot looked at\n")
	}
	if b.HasRule {
		fmt.Fprintf(table, "edge rule\t%s, per address (v4 /%d, v6 /%d)\n", b.Rule.Name, b.Rule.PrefixV4, b.Rule.PrefixV6)
		fmt.Fprintf(table, "  no known key\t%s\n", rate(b.Rule.Anonymous))
		fmt.Fprintf(table, "  known key\t%s\n", rate(b.Rule.Valid))
	} else {
		fmt.Fprintf(table, "edge rule\tnone\n")
	}
	return table.Flush()
}

// rate spells a bucket's limit for people.
func rate(l limit.Limit) string {
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	return fmt.Sprintf("%d per %v, burst %d", l.Count, time.Duration(l.Window)*time.Microsecond, burst)
}
