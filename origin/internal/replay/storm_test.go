package replay_test

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"math/big"
	"strconv"
	"testing"

	"github.com/weirproject/weir/origin/internal/replay"
	"github.com/weirproject/weir/origin/internal/replay/tracegen"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// The storm has 100,000 keys and 60,000 calls a second, of which a test takes a share: keys do not know of each other.
var (
	stormShare   = flag.Int("storm-share", 250, "run one part in this of the storm; 1 for all of it")
	stormMinutes = flag.Int("storm-minutes", 2, "minutes of the storm after the warm-up minute")
)

func storm() tracegen.Storm {
	s := tracegen.FullStorm(*stormMinutes)
	s.Hammering /= *stormShare
	s.Quiet /= *stormShare
	s.QuietRate /= int64(*stormShare)
	return s
}

func stormRules(t *testing.T, algorithm string) *rule.Set {
	t.Helper()
	release, err := rules.ParseModel("storm.yaml", []byte("version: 1\nrules:\n- {name: per-key, where: origin, by: [key], limit: 90/1m, algorithm: "+algorithm+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return release.Set
}

// windowOracle is the definition of a sliding window of 90/1m, exact and slow: calls admitted in this minute, plus those
// of the minute before times the share of it that is still in view, plus this call, must be at most 90.
type windowOracle map[string]*[3]int64 // by key: minute, admitted in it, admitted in the one before

func (o windowOracle) admits(key string, at limit.Micros) bool {
	c := o[key]
	if c == nil {
		c = &[3]int64{}
		o[key] = c
	}
	minute := int64(at / limit.Minute)
	switch {
	case minute == c[0]+1:
		*c = [3]int64{minute, 0, c[1]}
	case minute != c[0]:
		*c = [3]int64{minute, 0, 0}
	}
	inView := big.NewRat(int64(limit.Minute-at%limit.Minute), int64(limit.Minute))
	used := new(big.Rat).Mul(inView, big.NewRat(c[2], 1))
	used.Add(used, big.NewRat(c[1]+1, 1))
	if used.Cmp(big.NewRat(90, 1)) > 0 {
		return false
	}
	c[1]++
	return true
}

// replayed runs the storm through the whole of replay, JSON in and JSON out, giving each call's verdict.
func replayed(t *testing.T, algorithm string, each func(c tracegen.Call, key string, allowed bool)) *replay.Summary {
	t.Helper()
	s := storm()
	set := stormRules(t, algorithm)
	traceOut, traceIn := io.Pipe()
	decisionsOut, decisionsIn := io.Pipe()
	go func() { traceIn.CloseWithError(s.WriteJSONL(traceIn)) }()
	var summary *replay.Summary
	go func() {
		var err error
		summary, err = replay.Run(t.Context(), set, traceOut, replay.Options{Decisions: decisionsIn, Strict: true})
		decisionsIn.CloseWithError(err)
	}()
	lines := bufio.NewReader(decisionsOut)
	for c := range s.Calls() {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		prefix := `{"t":` + strconv.FormatInt(int64(c.At), 10) + `,"rule":"per-key","allowed":`
		if !bytes.HasPrefix(line, []byte(prefix)) {
			t.Fatalf("decision %s is not of the call at %d", line, c.At)
		}
		key := "q" + strconv.Itoa(c.Key)
		if c.Hammering {
			key = "h" + strconv.Itoa(c.Key)
		}
		each(c, key, bytes.HasPrefix(line[len(prefix):], []byte("true")))
	}
	if rest, err := lines.ReadBytes('\n'); err != io.EOF {
		t.Fatalf("one decision too many: %s (%v)", rest, err)
	}
	return summary
}

// DESIGN section 9: the retry storm under a sliding window.
func TestStormUnderASlidingWindowIsHeldToTheLimitAtAnyMoment(t *testing.T) {
	oracle := windowOracle{}
	calls, differ := 0, 0
	var bins, minutes []int64
	summary := replayed(t, "sliding-window", func(c tracegen.Call, key string, allowed bool) {
		calls++
		if allowed != oracle.admits(key, c.At) {
			differ++
		}
		if !allowed {
			return
		}
		count(&bins, c.At, 2*limit.Second)
		count(&minutes, c.At, limit.Minute)
	})
	if differ != 0 {
		t.Errorf("%d of %d verdicts differ from the exact definition", differ, calls)
	}
	share := int64(*stormShare)
	for i, n := range bins[30:] { // after the warm-up minute
		if n*share > 2*22_500 {
			t.Errorf("2 s bin %d of the storm admits %d/s, want at most 22,500/s", i, n*share/2)
		}
	}
	for i, n := range minutes[1:] {
		if n*share < 60*22_400 {
			t.Errorf("minute %d of the storm admits %d/s, want at least 22,400/s", i+1, n*share/60)
		}
	}
	t.Logf("%d calls, all as the exact definition; 2 s bins at most %d/s, full minutes at least %d/s", calls, maximum(bins[30:])*share/2, minimum(minutes[1:])*share/60)
	if r := summary.Rules[0]; r.Seen != int64(calls) || r.Admitted+r.Refused != r.Seen || summary.Shed != 0 {
		t.Errorf("summary %+v of %d calls", r, calls)
	}
}

// DESIGN section 9: the same storm under a fixed window comes through whole for ten seconds of each minute.
func TestStormUnderAFixedWindowComesInWaves(t *testing.T) {
	var seconds []int64
	replayed(t, "fixed-window", func(c tracegen.Call, _ string, allowed bool) {
		if allowed {
			count(&seconds, c.At, limit.Second)
		}
	})
	for i, n := range seconds[60:] {
		want := int64(15_000)
		if i%60 < 10 {
			want = 60_000
		}
		if n*int64(*stormShare) != want {
			t.Errorf("second %d of the storm admits %d/s, want %d/s", i, n*int64(*stormShare), want)
		}
	}
}

// An exact log of the storm holds what was admitted in a minute; one that kept refusals would hold what was asked.
func TestStormsLogHoldsNoRefusal(t *testing.T) {
	s := storm()
	engine := replay.NewEngine(stormRules(t, "sliding-log"), 1<<40)
	var asked, admitted int64
	last := tracegen.Begin + limit.Micros(s.Minutes)*limit.Minute // start of the last minute
	for c := range s.Calls() {
		kind := "q"
		if c.Hammering {
			kind = "h"
		}
		engine.Decide(&replay.Call{At: c.At, Path: "/", Caller: rule.Caller{Key: kind + strconv.Itoa(c.Key)}}, func(d *replay.Decision) {
			if c.At >= last {
				asked++
				if d.Allowed {
					admitted++
				}
			}
		})
	}
	share := int64(*stormShare)
	if asked*share != 3_600_000 || admitted*share != 1_350_000 {
		t.Errorf("in the last minute %d asked, %d admitted, want 3.6 M and 1.35 M", asked*share, admitted*share)
	}
}

func count(bins *[]int64, at, width limit.Micros) {
	i := int((at - tracegen.Begin) / width)
	for len(*bins) <= i {
		*bins = append(*bins, 0)
	}
	(*bins)[i]++
}

func maximum(list []int64) (m int64) {
	for _, n := range list {
		m = max(m, n)
	}
	return m
}

func minimum(list []int64) int64 {
	m := list[0]
	for _, n := range list {
		m = min(m, n)
	}
	return m
}
