package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/counters"
	"github.com/weirproject/weir/shared/keyfilter"
)

func init() { register(newCountersCommand) }

// adminPatience is how long an origin may take to answer: it looks at up to 10,000 counters in its store.
const adminPatience = 30 * time.Second

func newCountersCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "counters",
		Short: "Show what holds a caller back, and reset it",
		Long: `Show what holds a caller back, and reset it, by asking a running origin at its admin port.

A caller is told by the id of its key, by its user, or by its tenant, and by its address: give what a request of it would
have. A rule shows only if all that it counts by is given. Counters are the same at all origins of one store; penalties and
the deny cache are those of the origin that is asked.`,
	}, newCountersShowCommand(), newCountersResetCommand())
}

// atOrigin are the flags of both commands.
type atOrigin struct {
	admin string
	json  bool
}

func (a *atOrigin) flags(cmd *cobra.Command, who *counters.Caller) {
	flags := cmd.Flags()
	flags.StringVar(&a.admin, "admin", "http://"+config.DefaultAdmin, "URL of the origin's admin port")
	flags.BoolVar(&a.json, "json", false, "print the origin's answer as it is")
	flags.StringVar(&who.KeyID, "key-id", "", "id of the caller's API key (not the key itself)")
	flags.StringVar(&who.User, "user", "", "verified user, as issuer|tenant|subject")
	flags.StringVar(&who.Tenant, "tenant", "", "tenant, of which no key or user is told")
	flags.StringVar(&who.Tier, "tier", "", "tier of the user or the tenant")
	flags.StringVar(&who.Address, "address", "", "address of the client")
}

// check refuses what must not leave this machine or means something else than it says.
func (a *atOrigin) check(cmd *cobra.Command, who *counters.Caller) error {
	if (keyfilter.Format{}).Check([]byte(who.KeyID)) {
		return fmt.Errorf("%s: --key-id is a key itself: want its id, as `weir key new --id` was given", title(cmd))
	}
	for _, name := range []string{"key-id", "user", "tenant", "tier", "address", "method", "path", "host", "pattern", "rule", "reason", "by"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return fmt.Errorf("%s: --%s is empty: want a value, or leave it out", title(cmd), name)
		}
	}
	if u, err := url.Parse(a.admin); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s: --admin %q: want a URL, as http://%s", title(cmd), a.admin, config.DefaultAdmin)
	}
	return nil
}

// ask sends a request to the origin and reads its answer into reply. With --json it prints the answer, whatever it is.
func (a *atOrigin) ask(cmd *cobra.Command, method, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), adminPatience)
	defer cancel()
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return fmt.Errorf("%s: %w", title(cmd), err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.admin+path, &sent)
	if err != nil {
		return fmt.Errorf("%s: %w", title(cmd), err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	// No proxy is asked: the admin port listens on loopback.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s: no origin answers at %s (%w): `weir serve weir.yaml` starts one, --admin names another", title(cmd), a.admin, cause(err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s: the answer of %s broke off: %w", title(cmd), a.admin, err)
	}
	if a.json {
		_, _ = cmd.OutOrStdout().Write(text)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, reply); err != nil {
			return fmt.Errorf("%s: what answers at %s is no origin: %w", title(cmd), a.admin, err)
		}
		return nil
	}
	var failure counters.Failure
	if err := json.Unmarshal(text, &failure); err != nil || failure.Text == "" {
		return fmt.Errorf("%s: what answers at %s is no origin that tells its counters: status %d", title(cmd), a.admin, answer.StatusCode)
	}
	return fmt.Errorf("%s: %w", title(cmd), &failure)
}

// cause is err without the method and URL that the client puts before it.
func cause(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

func newCountersShowCommand() *cobra.Command {
	var at atOrigin
	var q counters.Question
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every counter that holds a caller back, or could",
		Long: `Show every counter that holds a caller back, or could, those that hold longest first.

STATUS is ok, refused, foreign (the store holds something there that is no counter) or lost (the store did not answer).
FREES is when the next call passes, RESETS when the counter equals one that was never used. NOTES: penalised and deny cache
are of the origin that is asked, shadow is a rule that refuses nobody.`,
		Example: `  weir counters show --key-id acme-prod --address 192.0.2.7
  weir counters show --user 'https://login.example.com||alice' --tier paid --path /search
  weir counters show --tenant acme --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.check(cmd, &q.Caller); err != nil {
				return err
			}
			path := counters.ShowPath
			if query := q.Query(); query != "" {
				path += "?" + query
			}
			var report counters.Report
			if err := at.ask(cmd, http.MethodGet, path, nil, &report); err != nil || at.json {
				return err
			}
			return report.Write(cmd.OutOrStdout())
		},
	}
	at.flags(cmd, &q.Caller)
	flags := cmd.Flags()
	flags.StringVar(&q.Path, "path", "", "only rules that a request for this path meets")
	flags.StringVar(&q.Method, "method", "", "method of that request (default GET)")
	flags.StringVar(&q.Host, "host", "", "host of that request")
	flags.BoolVar(&q.All, "all", false, "endpoints that were never called as well")
	return cmd
}

func newCountersResetCommand() *cobra.Command {
	var at atOrigin
	var want counters.Reset
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make one counter of a caller one that was never used",
		Long: `Make one counter of a caller one that was never used, its penalty included, at all origins of the store.

The origin that is asked writes one line for the audit to its log: audit, action, rule, principal_hash, reason, author.
An edge that was told of the refusal goes on with it for as long as it was told, 30 s at most.
A rule by endpoint has a counter for each: --method and --pattern name one, as show does.`,
		Example: `  weir counters reset --rule per-key --key-id acme-prod --by alice --reason 'ticket 4711: their job ran twice'
  weir counters reset --rule search --address 192.0.2.7 --method GET --pattern '/search/**' --by bob --reason 'load test'`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.check(cmd, &want.Caller); err != nil {
				return err
			}
			var done counters.Done
			if err := at.ask(cmd, http.MethodPost, counters.ResetPath, want, &done); err != nil || at.json {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), done)
			return err
		},
	}
	at.flags(cmd, &want.Caller)
	flags := cmd.Flags()
	flags.StringVar(&want.Rule, "rule", "", "rule whose counter is reset (required)")
	flags.StringVar(&want.Method, "method", "", "method of the endpoint, for a rule by endpoint")
	flags.StringVar(&want.Pattern, "pattern", "", "pattern of the endpoint, for a rule by endpoint")
	flags.StringVar(&want.Reason, "reason", "", "why, for the audit (required)")
	flags.StringVar(&want.By, "by", "", "who, for the audit (required)")
	require(cmd, "rule", "reason", "by")
	return cmd
}
