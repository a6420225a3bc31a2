package main

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/demo"
	"github.com/weirproject/weir/origin/internal/issuer"
	"github.com/weirproject/weir/origin/internal/stand"
)

func newDemoIssuerCommand() *cobra.Command {
	var listen, url string
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Serve an OpenID Connect issuer that makes a token for whoever asks",
		Long: `Serve an OpenID Connect issuer that makes a token for whoever asks: for looking at Weir, never before anything real.
"weir run" has one already.`,
		Example: `  weir demo issuer --listen 127.0.0.1:8091
  curl -d user=alice -d tenant=acme -d tier=paid http://127.0.0.1:8091/token`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("demo issuer: %w", err)
			}
			if url == "" {
				url = "http://" + l.Addr().String()
			}
			i, err := issuer.New(url)
			if err != nil {
				l.Close()
				return fmt.Errorf("demo issuer: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the demo's issuer listens on %s, audience %s\n", l.Addr(), issuer.Audience)
			if err := demo.Serve(cmd.Context(), l, i); err != nil {
				return fmt.Errorf("demo issuer: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8091", "where to serve, HOST:PORT")
	cmd.Flags().StringVar(&url, "url", "", "what the tokens name the issuer, http://LISTEN if left out")
	return cmd
}

func newDemoTokenCommand() *cobra.Command {
	var who issuer.Who
	var life time.Duration
	var runFile, address string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a user's bearer token that the running system's issuer makes",
		Example: `  weir demo token --user alice --tier paid
  curl -si -H "Authorization: Bearer $(build/weir demo token --user bob)" http://127.0.0.1:8080/hello`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				run, err := stand.ReadRun(runFile)
				if err != nil {
					return fmt.Errorf("demo token: %w", err)
				}
				address = run.Issuer
			}
			token, err := issuer.Ask(cmd.Context(), address, who, life)
			if err != nil {
				return fmt.Errorf("demo token: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&who.User, "user", "alice", "who the user is")
	flags.StringVar(&who.Tenant, "tenant", "", "tenant of the user, none if left out")
	flags.StringVar(&who.Tier, "tier", "", "tier of the user, none if left out")
	flags.DurationVar(&life, "for", issuer.DefaultLife, "how long the token holds")
	flags.StringVar(&runFile, "run", "build/run.json", "file that tells where the system is")
	flags.StringVar(&address, "issuer", "", "URL of the issuer, in place of the running system's")
	return cmd
}
