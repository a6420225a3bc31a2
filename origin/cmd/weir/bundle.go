package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func init() { register(newBundleCommand) }

func newBundleCommand() *cobra.Command {
	return group(&cobra.Command{Use: "bundle", Short: "Build, inspect and verify what edges load"},
		newBundleBuildCommand(), newBundleInspectCommand(), newBundleVerifyCommand())
}

func newBundleBuildCommand() *cobra.Command {
	var rulesFile, keysFile, out string
	var release uint64
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Compile rules and issued keys into a bundle",
		Long: `Compile rules and issued keys into a bundle, which "weir envoy filter" puts into what Envoy loads.
The exit code is 2 if there is a mistake in the rules or the keys file.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			content, err := envoyconfig.BuildBundle(rulesFile, keysFile, release, time.Now())
			if err == nil {
				err = envoyconfig.WriteFile(out, content)
			}
			if err != nil {
				err = fmt.Errorf("bundle build: %w", err)
				if _, ok := errors.AsType[rule.Faults](err); ok {
					return exitError{mistaken, err}
				}
				return err
			}
			if b, err := bundle.Decode(content); err == nil && !b.HasRule {
				does := "refuses keys that were never issued, and limits nothing"
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
	require(cmd, "output")
	return cmd
}

func newBundleInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what is in a bundle",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, content, err := readBundle(args[0])
			if err != nil {
				return fmt.Errorf("bundle inspect: %w", err)
			}
			return describe(cmd.OutOrStdout(), b, content)
		},
	}
}

// mistaken is the exit code for a file with mistakes in it, as check-config's.
const mistaken = 2

// refusedBundle is the exit code of verify for a file that an edge would refuse; 1 is for one that cannot be read.
const refusedBundle = 2

func newBundleVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Tell whether an edge of this version takes a bundle: exit code 0, or 2 with the reason",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, content, err := readBundle(args[0])
			if err != nil {
				err = fmt.Errorf("bundle verify: %w", err)
				if content != nil {
					return exitError{refusedBundle, err}
				}
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is good: release %d, %d bytes\n", args[0], b.Release, len(content))
			return err
		},
	}
}

// readBundle reads the bundle at path with the code that edges read it with. A file that could be read and is refused
// comes with its content.
func readBundle(path string) (b bundle.Bundle, content []byte, err error) {
	if content, err = document.Content(path); err != nil {
		return bundle.Bundle{}, nil, err
	}
	if b, err = bundle.Decode(content); err != nil {
		return bundle.Bundle{}, content, fmt.Errorf("%s: %w", path, err)
	}
	return b, content, nil
}

func describe(w io.Writer, b bundle.Bundle, content []byte) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "release\t%d\n", b.Release)
	fmt.Fprintf(table, "built\t%s\n", time.UnixMicro(int64(b.Built)).UTC().Format(time.RFC3339))
	describeGate(table, b)
	describeRule(table, b)
	fmt.Fprintf(table, "table\t%d addresses\n", b.TableEntries)
	fmt.Fprintf(table, "networks\t%d exempt, %d denied\n", b.Networks.Exempted(), b.Networks.Denied())
	fmt.Fprintf(table, "origin rules\t%d, which hints may name\n", b.Origin.Len())
	fmt.Fprintf(table, "size\t%d bytes\n", len(content))
	sections, err := bundle.Sections(content)
	if err != nil {
		return err
	}
	for _, s := range sections {
		fmt.Fprintf(table, "  %s (kind %d)\t%d bytes", s.Name, s.Kind, s.Bytes)
		if keys := b.Gate.Filter.Len(); s.Name == "key filter" && keys > 0 {
			fmt.Fprintf(table, ", %.2f a key", float64(s.Bytes)/float64(keys))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

func describeGate(table io.Writer, b bundle.Bundle) {
	g := &b.Gate
	if !b.HasGate {
		fmt.Fprintf(table, "keys\tnot looked at\n")
		return
	}
	fmt.Fprintf(table, "keys\t%d, begin with %q, in header %s\n", g.Filter.Len(), g.Format.Prefix, g.KeyHeader)
	if g.Foreign {
		fmt.Fprintf(table, "  imported keys\tyes: a bad checksum alone refuses nothing\n")
	}
	issued, revoked := 0, 0
	for i := range g.Changes.Len() {
		if g.Changes.At(i).Op == keyfilter.Issued {
			issued++
		} else {
			revoked++
		}
	}
	fmt.Fprintf(table, "  changed since\t%d issued, %d revoked\n", issued, revoked)
	if g.Epoch == 0 {
		fmt.Fprintf(table, "  key deltas\tnone: a keys file has no numbered changes\n")
	} else {
		fmt.Fprintf(table, "  key deltas\tfrom %d of epoch %d\n", g.Seq, g.Epoch)
	}
	if g.StaleAfter == 0 {
		fmt.Fprintf(table, "  unknown keys\trefused, whatever the bundle's age\n")
	} else {
		fmt.Fprintf(table, "  unknown keys\trefused; once the bundle is %s old, %s pass unverified\n", duration(g.StaleAfter), rate(g.Unverified))
	}
}

func describeRule(table io.Writer, b bundle.Bundle) {
	r := &b.Rule
	if !b.HasRule {
		fmt.Fprintf(table, "edge rule\tnone\n")
		return
	}
	fmt.Fprintf(table, "edge rule\t%s, %v per address (v4 /%d, v6 /%d)\n", r.Name, r.Algorithm, r.PrefixV4, r.PrefixV6)
	fmt.Fprintf(table, "  no known key\t%s\n", rate(r.Anonymous))
	fmt.Fprintf(table, "  known key\t%s\n", rate(r.Valid))
	if r.OuterV6 != 0 {
		fmt.Fprintf(table, "  all of a v6 /%d\t%s; with known keys %s\n", r.OuterV6, rate(r.OuterAnonymous), rate(r.OuterValid))
	}
}

// rate spells a bucket's limit for people.
func rate(l limit.Limit) string {
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	return fmt.Sprintf("%d per %s, burst %d", l.Count, duration(l.Window), burst)
}

// duration spells a time for people: 1h, where Go's own text is 1h0m0s.
func duration(m limit.Micros) string {
	text := (time.Duration(m) * time.Microsecond).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
