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
	// defaultPrefixV4 and V6: an IPv4 address is one host or NAT; one IPv6 subscriber holds at least a /64.
	defaultPrefixV4 = 32
	defaultPrefixV6 = 64
	// defaultOuterV6 is the widest network that one subscriber is given; it gets what 16 addresses do.
	defaultOuterV6 = 48
	outerFactor    = 16
)

// DefaultRule is in force until the first bundle. It names itself to nobody, since no operator chose it.
var DefaultRule = bundle.EdgeRule{
	Name:      "default",
	Headers:   rule.RetryOnly,
	PrefixV4:  defaultPrefixV4,
	PrefixV6:  defaultPrefixV6,
	Anonymous: limit.Limit{Count: defaultRate, Window: limit.Second, Burst: defaultBurst},
	Valid:     limit.Limit{Count: defaultRate, Window: limit.Second, Burst: defaultBurst},

	OuterV6:        defaultOuterV6,
	OuterAnonymous: limit.Limit{Count: outerFactor * defaultRate, Window: limit.Second, Burst: outerFactor * defaultBurst},
	OuterValid:     limit.Limit{Count: outerFactor * defaultRate, Window: limit.Second, Burst: outerFactor * defaultBurst},
}
