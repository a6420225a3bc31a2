package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/store/valkey"
)

func init() { register(newStoreCommand) }

func newStoreCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "store",
		Short: "Look after the Valkey that counters are kept on, say what becomes of calls while it fails",
	}, newStoreGCCommand(), newStoreStatesCommand())
}

// upkeepPatience is how long the servers may take in all.
const upkeepPatience = 30 * time.Second

// gc is what `weir store gc` was asked for.
type gc struct {
	delete, yes            bool
	libraries              []string
	username, passwordFile string
}

func newStoreGCCommand() *cobra.Command {
	var g gc
	cmd := &cobra.Command{
		Use:   "gc [FILE]",
		Short: "List Weir's function libraries on every server of weir.yaml's store, and delete those of other versions",
		Long: `List Weir's function libraries on every server of weir.yaml's store, and delete those of other versions.

Each version of Weir loads a function library named by its content, so that two can share a server while one replaces the
other. None is deleted on its own: a server cannot tell which libraries running origins use. So --delete wants to be told:
--yes, where every origin runs this version, or --library NAME for each to be deleted. An origin whose library is deleted all
the same loads it again with its next call, and no call fails. This version's own is never deleted.

weir.yaml's user is not allowed to do this: --username and --password-file name one that is, as the README's section on
Valkey tells.`,
		Example: `  weir store gc weir.yaml --username admin --password-file admin.password
  weir store gc weir.yaml --username admin --password-file admin.password --delete --library weir_0badcafe
  weir store gc weir.yaml --username admin --password-file admin.password --delete --yes`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "weir.yaml"
			if len(args) > 0 {
				file = args[0]
			}
			if err := g.check(); err != nil {
				return fmt.Errorf("%s: %w", title(cmd), err)
			}
			c, err := config.Load(file, os.LookupEnv)
			if err != nil {
				return startError(err)
			}
			if c.Store.Valkey == nil {
				return exitError{configCode, fmt.Errorf("%s: %s keeps counters in memory, where no library is: want store.url: valkey://HOST:PORT", title(cmd), file)}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), upkeepPatience)
			defer cancel()
			if err := g.run(ctx, cmd.OutOrStdout(), g.options(c.Store.Valkey)); err != nil {
				return fmt.Errorf("%s: %w", title(cmd), err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&g.delete, "delete", false, "delete libraries of other versions, and of Weir's tests")
	flags.BoolVar(&g.yes, "yes", false, "with --delete: all of them, since every running origin is of this version")
	flags.StringSliceVar(&g.libraries, "library", nil, "with --delete: these alone")
	flags.StringVar(&g.username, "username", "", "user of the servers, in place of weir.yaml's")
	flags.StringVar(&g.passwordFile, "password-file", "", "file of that user's password")
	return cmd
}

// check refuses flags that do not fit together.
func (g *gc) check() error {
	for _, name := range g.libraries {
		switch {
		case !valkey.IsLibraryName(name):
			return fmt.Errorf("--library %q is none of Weir's: want weir_ and 8 hexadecimal digits, as the list shows", name)
		case name == valkey.LibraryName():
			return fmt.Errorf("--library %s is this version's own, which is never deleted", name)
		}
	}
	switch {
	case !g.delete && (g.yes || g.libraries != nil):
		return fmt.Errorf("--yes and --library say what to delete: want --delete beside them")
	case g.yes && g.libraries != nil:
		return fmt.Errorf("--yes means all libraries of other versions, --library some: want one of the two")
	case (g.username == "") != (g.passwordFile == ""):
		return fmt.Errorf("want --username and --password-file, both or none")
	}
	return nil
}

func (g *gc) options(v *config.Valkey) valkey.Options {
	o := valkey.Options{Addrs: v.Addresses, Cluster: v.Cluster, TLS: v.TLS, Credentials: v.Credentials}
	if g.username != "" {
		o.Credentials = config.Valkey{Username: g.username, PasswordFile: g.passwordFile}.Credentials
	}
	return o
}

// run lists, and deletes what was asked for.
func (g *gc) run(ctx context.Context, out io.Writer, o valkey.Options) error {
	all, err := valkey.Libraries(ctx, o)
	if err != nil {
		return fmt.Errorf("nothing was deleted: %w", err)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no library of Weir's on any server")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tLIBRARY\tOF")
	for _, l := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\n", l.Server, l.Name, libraryOf(l.Name))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !g.delete {
		return nil
	}
	for _, name := range g.libraries {
		if !slices.ContainsFunc(all, func(l valkey.Library) bool { return l.Name == name }) {
			return fmt.Errorf("nothing was deleted: %s is on no server", name)
		}
	}
	doomed := slices.DeleteFunc(slices.Clone(all), func(l valkey.Library) bool {
		return l.Name == valkey.LibraryName() || g.libraries != nil && !slices.Contains(g.libraries, l.Name)
	})
	if len(doomed) > 0 && !g.yes && g.libraries == nil {
		return fmt.Errorf("nothing was deleted, since no server can tell which libraries origins of other versions use: want --yes if none of them runs, or --library NAME")
	}
	deleted, err := valkey.DeleteLibraries(ctx, o, doomed)
	for _, l := range deleted {
		fmt.Fprintf(out, "deleted %s on %s\n", l.Name, l.Server)
	}
	if err == nil && len(deleted) == 0 {
		fmt.Fprintln(out, "nothing to delete")
	}
	return err
}

// libraryOf says whose a library is.
func libraryOf(name string) string {
	switch {
	case name == valkey.LibraryName():
		return "this version"
	case strings.HasPrefix(name, "weirtest_"):
		return "Weir's tests"
	}
	return "another version"
}
