package valkey_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/valkey"
)

// What plain commands cannot keep is named with its place.
func TestRulesThatAStrategyCannotKeepAreNamed(t *testing.T) {
	release, err := rules.ParseModel("rules.yaml", []byte(`version: 1
rules:
- {name: windows, where: origin, by: [key], algorithm: sliding-window, limit: 10/1m}
- {name: bursts, where: origin, by: [key], algorithm: token-bucket, limit: 10/1m, burst: 20, match: {paths: [/a]}}
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 10/1s}
`))
	if err != nil {
		t.Fatal(err)
	}
	for strategy, want := range map[valkey.Strategy]int{valkey.Auto: 0, valkey.Function: 0, valkey.Commands: 1} {
		faults := valkey.Unsupported("rules.yaml", release.Set, strategy.Supports)
		if len(faults) != want {
			t.Errorf("%v: %v", strategy, faults)
		}
		for _, f := range faults {
			if !strings.HasPrefix(f.Error(), `rules.yaml:4: rules[1].algorithm: "token-bucket": rule bursts needs functions`) {
				t.Error(f)
			}
		}
	}
}
