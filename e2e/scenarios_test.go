package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirproject/weir/e2e/scenario"
	"github.com/weirproject/weir/e2e/stand"
)

// TestScenarios runs each scenario file on each of its targets and says at the end how many ran where, which is fewer
// under a -run that names one.
func TestScenarios(t *testing.T) {
	all, err := scenario.Folder("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[scenario.Target]int{}
	missing := 0
	for _, target := range scenario.Targets {
		mine := slices.DeleteFunc(slices.Clone(all), func(s *scenario.Scenario) bool { return !s.On(target) })
		t.Run(string(target), func(t *testing.T) {
			if len(stand.Missing(needs[target]...)) > 0 {
				missing += len(mine)
				t.Logf("%d scenarios do not run on %s", len(mine), target)
			}
			stand.Need(t, needs[target]...)
			runOn(t, target, mine, func() { ran[target]++ })
		})
	}
	line := "scenarios:"
	for _, target := range scenario.Targets {
		line += fmt.Sprintf(" %s %d,", target, ran[target])
	}
	fmt.Printf("%s missing %d\n", line, missing)
}

// runOn plays scenarios on one target, telling of each that it starts. Scenarios of one shape share a system: one
// Envoy for each configuration.
func runOn(t *testing.T, target scenario.Target, all []*scenario.Scenario, started func()) {
	if target == scenario.Wasmhost {
		for _, s := range all {
			t.Run(s.Name, func(t *testing.T) {
				started()
				keyring, keys := issue(t, s)
				p := player{s: s, on: newFilter(t, s, keyring), keys: keys, keyring: keyring, virtual: true,
					home: func(a string) string { return a }}
				p.play(t)
			})
		}
		return
	}
	groups := map[shape][]*scenario.Scenario{}
	var order []shape
	for _, s := range all {
		of := shapeOf(s)
		if groups[of] == nil {
			order = append(order, of)
		}
		groups[of] = append(groups[of], s)
	}
	valkey := ""
	switch target {
	case scenario.Valkey:
		valkey = stand.StartValkey(t).Address
	case scenario.Container:
		valkey = stand.StartValkeyContained(t).Address
	}
	var issuer *stand.Issuer // one for all who have users
	number := 0
	for _, of := range order {
		group := groups[of]
		keyring := stand.NewKeyring(t)
		keys := map[string]map[string]string{}
		users := ""
		for _, s := range group {
			keys[s.Name] = issueTo(t, keyring, s)
			if len(s.Users) == 0 {
				continue
			}
			if issuer == nil {
				issuer = stand.StartIssuer(t)
			}
			users = issuer.URL
			for name, tier := range s.Users {
				keys[s.Name][name] = issuer.Token(t, s.Name+"-"+name, tier)
			}
		}
		t.Run(group[0].Name+"-rules", func(t *testing.T) {
			var on *served
			switch target {
			case scenario.Envoy:
				on = newEdge(t, group[0], keyring.File(), users)
			case scenario.Container:
				on = newContained(t, group[0], keyring.File(), valkey, users)
			default:
				on = newOrigin(t, of.rules, keyring.File(), valkey, users)
			}
			for _, s := range group {
				number++
				p := player{s: s, on: on, keys: keys[s.Name], keyring: keyring, home: homeOf(number)}
				t.Run(s.Name, func(t *testing.T) {
					started()
					p.play(t)
				})
			}
		})
	}
}

// shape is what scenarios must have in common to share a system.
type shape struct {
	rules   string
	proxied bool
	alone   string // the name of a scenario that wants a system of its own
}

func shapeOf(s *scenario.Scenario) shape {
	of := shape{rules: s.Rules, proxied: s.Proxied}
	if s.Alone() {
		of.alone = s.Name
	}
	return of
}

func issue(t *testing.T, s *scenario.Scenario) (*stand.Keyring, map[string]string) {
	keyring := stand.NewKeyring(t)
	return keyring, issueTo(t, keyring, s)
}

// issueTo gives each scenario keys of its own under ids that no other scenario has.
func issueTo(t *testing.T, keyring *stand.Keyring, s *scenario.Scenario) map[string]string {
	keys := map[string]string{}
	for _, name := range s.Keys {
		keys[name] = keyring.Issue(t, s.Name+"-"+name)
	}
	return keys
}
