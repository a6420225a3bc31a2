package main

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/keys"
)

func init() { register(newKeyCommand) }

func newKeyCommand() *cobra.Command {
	return group(&cobra.Command{Use: "key", Short: "Make API keys"}, newKeyNewCommand())
}

func newKeyNewCommand() *cobra.Command {
	var who keys.Key
	var file string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make an API key and add its hashes to a keys file",
		Long: `Make an API key and add its hashes to a keys file, which is begun if it is not there.
The key goes to standard output, once: only its hashes are kept.`,
		Example: "  weir key new --id acme-prod --tenant acme --keys weir.keys.yaml",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var text string
			err := keys.Update(file, rand.Reader, func(f *keys.File) (err error) {
				text, err = f.Issue(rand.Reader, who, time.Now())
				return err
			})
			if err != nil {
				return fmt.Errorf("key new: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "added %q to %s; this is the key, it is shown this once:\n", who.ID, file)
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&who.ID, "id", "", "name of the key in the keys file; rules by key count each id apart (required)")
	flags.StringVar(&who.Tenant, "tenant", "", "tenant that the key belongs to, which rules by tenant count together")
	flags.StringVar(&who.Tier, "tier", "", "tier that the key belongs to, whose limit it has under rules with tier: true")
	flags.StringVar(&file, "keys", "weir.keys.yaml", "keys file")
	require(cmd, "id")
	return cmd
}
