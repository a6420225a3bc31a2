package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/explain"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/keyfilter"
)

func init() { register(newExplainCommand) }

func newExplainCommand() *cobra.Command {
	var rulesFile, address string
	var q explain.Question
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH|URL",
		Short: "Say which rules apply to a request, with which limit, and why the others do not",
		Example: `  weir explain --key-id acme-prod --tenant acme GET /search?q=weir
  weir explain --user 'https://login.example.com|acme|alice' --tier paid GET /search
  weir explain --address 2001:db8::1 --header 'X-App: 1' POST https://api.example.com/login`,
		Args: exactly("METHOD", "PATH or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			release, err := rules.LoadModel(rulesFile)
			if err != nil {
				return exitError{2, fmt.Errorf("explain: %w", err)}
			}
			if (keyfilter.Format{}).Check([]byte(q.Caller.Key)) {
				return errors.New("explain: --key-id is a key itself: want its id, as `weir key new --id` was given")
			}
			if err := readUser(&q); err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			if q.Method, err = explain.ParseMethod(args[0]); err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			host, path, err := explain.ParseTarget(args[1])
			if err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			q.Path = path
			if q.Host == "" {
				q.Host = host
			}
			for _, h := range q.Headers {
				if name, value, _ := strings.Cut(h, ":"); strings.EqualFold(name, "host") && q.Host == "" {
					q.Host = strings.TrimSpace(value)
				}
			}
			if address != "" {
				if q.Address, err = netip.ParseAddr(strings.Trim(address, "[]")); err != nil {
					return fmt.Errorf("explain: --address %q: want an IP address, as 192.0.2.7 or 2001:db8::1", address)
				}
			}
			fmt.Fprint(cmd.ErrOrStderr(), toldOfModel(rulesFile, release))
			return explain.Write(cmd.OutOrStdout(), release.Set, q)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&rulesFile, "rules", "weir.rules.yaml", "rules file")
	flags.StringVar(&q.Caller.Key, "key-id", "", "id of the caller's API key (not the key itself)")
	flags.StringVar(&q.Caller.User, "user", "", "verified user, as issuer|tenant|subject")
	flags.StringVar(&q.Caller.Tenant, "tenant", "", "tenant of the key or user")
	flags.StringVar(&q.Caller.Tier, "tier", "", "tier of the key or user")
	flags.StringVar(&address, "address", "", "client address")
	flags.StringVar(&q.Host, "host", "", "host the request is for (default: the URL's)")
	flags.StringArrayVar(&q.Headers, "header", nil, "header of the request, 'Name: value'; may be repeated")
	flags.StringVar(&q.Caller.Key, "key", "", "")
	_ = flags.MarkDeprecated("key", "it is --key-id, as everywhere else") // an error is of a flag that is not there
	return cmd
}

// readUser checks the user's form, and takes over the tenant that it tells.
func readUser(q *explain.Question) error {
	user := q.Caller.User
	if user == "" {
		return nil
	}
	parts := strings.SplitN(user, "|", 3) // subjects may hold a |
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return fmt.Errorf("--user %q: want issuer|tenant|subject, the tenant may be empty", user)
	}
	if q.Caller.Tenant == "" && q.Caller.Key == "" { // a key's own comes before it
		q.Caller.Tenant = parts[1]
	}
	return nil
}
