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
		Example: `  weir explain --key acme-prod --tenant acme GET /search?q=weir
  weir explain --address 2001:db8::1 --header 'X-App: 1' POST https://api.example.com/login`,
		Args: exactly("METHOD", "PATH or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			release, err := rules.LoadModel(rulesFile)
			if err != nil {
				return exitError{2, fmt.Errorf("explain: %w", err)}
			}
			if (keyfilter.Format{}).Check([]byte(q.Caller.Key)) {
				return errors.New("explain: --key is a key itself: want its id, as `weir key new --id` was given")
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
	flags.StringVar(&q.Caller.Key, "key", "", "id of the caller's API key (not the key itself)")
	flags.StringVar(&q.Caller.User, "user", "", "verified user")
	flags.StringVar(&q.Caller.Tenant, "tenant", "", "tenant of the key or user")
	flags.StringVar(&q.Caller.Tier, "tier", "", "tier of the key or user")
	flags.StringVar(&address, "address", "", "client address")
	flags.StringVar(&q.Host, "host", "", "host the request is for (default: the URL's)")
	flags.StringArrayVar(&q.Headers, "header", nil, "header of the request, 'Name: value'; may be repeated")
	return cmd
}
