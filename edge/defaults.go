package edge

import (
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Limits while no bundle has come. They are to let people work and stop a flood, not to shape traffic.
const (
	// defaultRate is well above what one person's browser or one office's address sends (tens a second at peak), and
	// well below a flood from one address (thousands a second).
	defaultRate = 100
	// defaultBurst lets one page load with all its parts, or a client that catches up after a pause, pass at once.
	defaultBurst = 400
)

var defaultLimit = limit.Limit{Count: defaultRate, Window: limit.Second, Burst: defaultBurst}

// DefaultRule is in force until the first bundle. It names itself to nobody, since no operator chose it.
var DefaultRule = bundle.EdgeRule{
	Name:      "default",
	Headers:   rule.RetryOnly,
	PrefixV4:  rule.DefaultPrefixV4,
	PrefixV6:  rule.DefaultPrefixV6,
	Anonymous: defaultLimit,
	Valid:     defaultLimit,

	OuterV6:        rule.DefaultOuterV6,
	OuterAnonymous: bundle.OuterLimit(defaultLimit),
	OuterValid:     bundle.OuterLimit(defaultLimit),
}
