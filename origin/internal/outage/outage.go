// Package outage says what a process answers in each state that its store can be in.
package outage

import (
	"fmt"
	"io"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/shared/header"
)

// Answer is what a rule makes of a call.
type Answer uint8

// The answers.
const (
	Shared     Answer = iota // the counter in the store decides
	Remembered               // refused by what the store said before
	Share                    // counted by this process alone, by its share of the limit
	Uncounted                // admitted
	Refused                  // since the rule fails closed
	NoRoom                   // refused, since this process has no room for another call that waits
)

// String is the answer as a client sees it.
func (a Answer) String() string {
	return [...]string{
		Shared: "by the shared counter", Remembered: "429", Share: "by limit ÷ N here", Uncounted: "passes, uncounted",
		Refused: fmt.Sprintf("%d `%s`", header.LimiterUnavailable.Status(), header.LimiterUnavailable),
		NoRoom:  fmt.Sprintf("%d `%s`", header.Overloaded.Status(), header.Overloaded),
	}[a]
}

// State is one that a store, or a server of it, can be in.
type State struct {
	Store   string
	Reasons []string // by which weir_store_errors_total counts it
	// Of a rule by its on-store-failure.
	Local, Open, Closed Answer
	Added               string // to a call's latency
	Recovers            string // what does
}

var (
	oneProbe = fmt.Sprintf("after %v one call tries, and all do once it is answered", breaker.OpenTime)
	opens    = fmt.Sprintf("the next call that is answered; over %d %% of %d calls or more in %v: the breaker opens", 100/breaker.MaxFailing, breaker.MinSample, breaker.Window)
	atMost   = fmt.Sprintf("`store.deadline` at most, %v by default", config.DefaultDeadline)
)

// States are all of them.
var States = []State{
	{"answers", nil, Shared, Shared, Shared, "a round trip", ""},
	{"any, while the deny cache holds a refusal of the counter", nil, Remembered, Remembered, Remembered, "none", "the wait that was told, asked again after 30 s at most"},
	{"silent, or too slow", []string{"deadline", "stale"}, Share, Uncounted, Refused, atMost, opens},
	{"its breaker is open", []string{"open"}, Share, Uncounted, Refused, "none", oneProbe},
	{"refuses or loses connections, not there at start, wrong password", []string{"unreachable"}, Share, Uncounted, Refused, "none", "it is looked for twice a second"},
	{"answers by an error: out of memory, read-only, no permission", []string{"answer"}, Share, Uncounted, Refused, "a round trip", opens},
	{"1,000 calls of this process wait for it", []string{"busy"}, NoRoom, Uncounted, NoRoom, "none", "the first of them that is answered, or whose connection is given up, after a second of silence"},
	{"a foreign value under the counter's name", []string{"foreign"}, Share, Uncounted, Refused, "a round trip", "its expiry, `weir counters reset`"},
	{"lost its last writes or all data (failover, restart)", nil, Shared, Shared, Shared, "a round trip", "callers have back what was forgotten; nothing to recover"},
}

// Write prints the states as a table in Markdown.
func Write(w io.Writer) error {
	text := "| the store, or the server that has the counter | errors counted as | `local` | `open` | `closed`, `exact` | added latency | what recovers it |\n|---|---|---|---|---|---|---|\n"
	for _, s := range States {
		reasons := ""
		for i, r := range s.Reasons {
			if i > 0 {
				reasons += ", "
			}
			reasons += "`" + r + "`"
		}
		text += fmt.Sprintf("| %s | %s | %v | %v | %v | %s | %s |\n", s.Store, reasons, s.Local, s.Open, s.Closed, s.Added, s.Recovers)
	}
	_, err := io.WriteString(w, text)
	return err
}
