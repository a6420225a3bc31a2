package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/certificate"
	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/shared/rule"
)

func init() { register(newCheckConfigCommand) }

func newCheckConfigCommand() *cobra.Command {
	var rulesFile string
	cmd := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Check a weir.yaml with the rules and keys files it names, listing every mistake, warning of what is hardly meant",
		Long: `Check a weir.yaml with the rules and keys files it names, listing every mistake, warning of what is hardly meant. With --rules,
check a rules file alone, for what this version enforces. The exit code is 2 if there is a mistake.`,
		Example: `  weir check-config weir.yaml
  weir check-config --rules weir.rules.yaml`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, check := "weir.yaml", checkConfig
			if len(args) > 0 {
				file = args[0]
			}
			if cmd.Flags().Changed("rules") {
				if len(args) > 0 {
					return fmt.Errorf("check-config: %q beside --rules: want one of the two", file)
				}
				file, check = rulesFile, checkRules
			}
			summary, warnings, err := check(file)
			if err != nil {
				return startError(err)
			}
			fmt.Fprint(cmd.ErrOrStderr(), warnings)
			_, err = fmt.Fprint(cmd.OutOrStdout(), summary)
			return err
		},
	}
	cmd.Flags().StringVar(&rulesFile, "rules", "", "rules file to check alone")
	return cmd
}

// checkRules reads a rules file by itself.
func checkRules(file string) (summary, warnings string, err error) {
	release, err := rules.Load(file)
	if err != nil {
		return "", "", err
	}
	return fmt.Sprintf("%s is good: %s (content %s)\n", file, count(release.Set.Len(), "rule"), release.Content), told(release.Warnings), nil
}

// told is what warnings say, one a line.
func told(warnings rule.Faults) (text string) {
	for _, w := range warnings {
		text += fmt.Sprintf("warning: %v\n", w)
	}
	return text
}

// toldOfModel is what a release of file is told with that was taken without regard to what this version enforces.
func toldOfModel(file string, release *rules.Release) string {
	text := told(release.Warnings)
	if n := len(release.Unenforced); n > 0 {
		text += fmt.Sprintf("warning: %s: this version would refuse %s in it, which it does not enforce: `weir check-config --rules %s` tells what\n", file, count(n, "thing"), file)
	}
	return text
}

// isRulesFile tells whether file, which is no good weir.yaml, has what a rules file has and that one never: a version, a list
// of rules.
func isRulesFile(file string) bool {
	doc, _, err := document.ReadFile(file, file)
	if err != nil || !doc.Root().Present() {
		return false
	}
	fields := doc.Root().Fields("version", "rules")
	return fields.Get("version").Present() && len(fields.Get("rules").Items()) > 0
}

// checkConfig reads a weir.yaml and the files that it names, collecting the faults of all, so that one run shows them.
func checkConfig(file string) (summary, warnings string, err error) {
	var faults rule.Faults
	c, err := config.Load(file, os.LookupEnv)
	if err != nil && isRulesFile(file) {
		return "", "", exitError{configCode, fmt.Errorf("%s is a rules file, not a weir.yaml: `weir check-config --rules %s` checks it", file, file)}
	}
	if err = collect(&faults, file, "", err); err != nil {
		return "", "", err
	}
	var release *rules.Release
	if c.Rules != "" {
		release, err = rules.Load(c.Rules)
		if err = collect(&faults, file, "rules", err); err != nil {
			return "", "", err
		}
	}
	issued := &keys.File{}
	if c.Keys != "" {
		issued, err = keys.Load(c.Keys)
		if err = collect(&faults, file, "keys", err); err != nil {
			return "", "", err
		}
	}
	if v := c.Store.Valkey; v != nil && release != nil {
		if strategy, err := valkey.ParseStrategy(v.Strategy); err == nil {
			faults = append(faults, valkey.Unsupported(c.Rules, release.Set, strategy.Supports)...)
		}
	}
	if c.TLS != nil {
		_, err := certificate.Open(c.TLS.Files())
		if err = collect(&faults, file, "tls.gateway", err); err != nil {
			faults = append(faults, rule.Fault{At: rule.Source{File: file}, Field: "tls.gateway", Want: err.Error()})
		}
	}
	if err := faults.Err(); err != nil {
		return "", "", err
	}
	store := "memory"
	if c.Store.Valkey != nil {
		if store = c.Store.Valkey.Shown(); c.Store.Valkey.Strategy != "auto" {
			store += ", strategy " + c.Store.Valkey.Strategy
		}
		if c.Secrets.Former != nil {
			store += ", counters are named by the first secret from " + c.Secrets.SwitchAt.UTC().Format(time.RFC3339) + " on"
		}
	}
	all := release.Warnings
	all = append(all[:len(all):len(all)], limitsNobody(file, c, release.Set)...)
	all = append(all, unheld(c.Rules, release.Set)...)
	all = append(all, unknownTiers(c.Keys, issued, release.Set)...)
	issuers := ""
	if n := len(c.Identity.Issuers); n > 0 {
		issuers = ", " + count(n, "issuer") + " of users"
	}
	return fmt.Sprintf("%s is good: %s (content %s), %s%s, store %s\n", file, count(release.Set.Len(), "rule"), release.Content, count(len(issued.Entries), "key"), issuers, store), told(all), nil
}

// count is a number of things in words, as "1 key" or "2 keys".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// collect adds what err tells to faults: the faults in a file, or that a file cannot be read which a field of weir.yaml
// names. Any other error it returns.
func collect(faults *rule.Faults, file, field string, err error) error {
	if more, ok := errors.AsType[rule.Faults](err); ok {
		*faults = append(*faults, more...)
		return nil
	}
	if unreadable, ok := errors.AsType[*fs.PathError](err); ok && field != "" {
		*faults = append(*faults, rule.Fault{At: rule.Source{File: file}, Field: field, Value: unreadable.Path, Want: "cannot be read: " + unreadable.Err.Error()})
		return nil
	}
	return err
}
