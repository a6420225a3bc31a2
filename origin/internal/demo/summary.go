package demo

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dunglas/httpsfv"
)

// policy is the quota that a RateLimit-Policy tells.
type policy struct {
	rule   string
	quota  int64
	window time.Duration
}

// parsePolicy reads the first policy of a RateLimit-Policy field, as `"per-key";q=20;w=10`.
func parsePolicy(field string) (p policy, ok bool) {
	list, err := httpsfv.UnmarshalList([]string{field})
	if err != nil || len(list) == 0 {
		return policy{}, false
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok {
		return policy{}, false
	}
	p.rule, _ = item.Value.(string)
	quota, _ := item.Params.Get("q")
	window, _ := item.Params.Get("w")
	p.quota, _ = quota.(int64)
	seconds, _ := window.(int64)
	p.window = time.Duration(seconds) * time.Second
	return p, p.rule != "" && p.window > 0
}

// most is what a sliding window can admit between two instants: its windows are aligned to the epoch, and each takes
// at most its quota.
func (p policy) most(from, to time.Time) int64 {
	windows := to.UnixMicro()/p.window.Microseconds() - from.UnixMicro()/p.window.Microseconds() + 1
	return windows * p.quota
}

// summary says what was seen, judging it. alone is what the system counted while the forger was alone, end what it
// counted in all; the storm lasted from one instant to the other.
func (d *show) summary(out io.Writer, alone, end sight, from, to time.Time) error {
	polite, storm, forged := d.polite.tally.read(), d.storm.tally.read(), d.forged.tally.read()
	var broken []error
	fails := func(format string, values ...any) { broken = append(broken, fmt.Errorf(format, values...)) }

	fmt.Fprintf(out, "  polite       %d of %d answered 200\n", polite.allowed, polite.sent)
	if polite.allowed < polite.sent {
		fails("the polite client lost %d of its %d calls", polite.sent-polite.allowed, polite.sent)
	}

	field := ""
	if seen := d.storm.policy.Load(); seen != nil {
		field = *seen
	}
	if p, ok := parsePolicy(field); ok {
		most := p.most(from, to)
		fmt.Fprintf(out, "  retry storm  %d of %d answered 200; its limit, %s, is %d in %v: at most %d in this time\n",
			storm.allowed, storm.sent, p.rule, p.quota, p.window, most)
		if storm.allowed > most {
			fails("the storm got %d calls through where its limit admits %d", storm.allowed, most)
		}
	} else {
		fmt.Fprintf(out, "  retry storm  %d of %d answered 200\n", storm.allowed, storm.sent)
		fails("the origin never refused the storm")
	}

	fmt.Fprintf(out, "  forged keys  %d of %d refused (401 %d, 429 %d); API calls %d; store commands while alone %d\n",
		forged.unauthorized+forged.edge+forged.origin, forged.sent, forged.unauthorized, forged.edge+forged.origin, end.calls[nameForged], alone.commands)
	if n := max(forged.allowed, end.calls[nameForged]); n > 0 { // two views of the same calls
		fails("forged keys reached the API %d times", n)
	}
	if alone.commands > 0 {
		fails("forged keys cost %d store commands", alone.commands)
	}
	if forged.unauthorized == 0 {
		fails("no forged key was answered 401")
	}
	if n := polite.other + storm.other + forged.other; n > 0 {
		fails("%d requests were answered otherwise, or not at all", n)
	}
	return errors.Join(broken...)
}
