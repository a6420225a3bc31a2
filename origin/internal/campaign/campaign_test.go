package campaign

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the first history; 0 takes one by chance")
	span = flag.Duration("for", 0, "how long to look; 0: some hundred histories")
)

// short is how many histories each test run plays.
const short = 200

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No history breaks a promise: see [player] and [ledger] for which.
func TestCampaign(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 1
	}
	t.Logf("repeat with -args -seed %d", first)
	began, told := time.Now(), time.Now()
	var all tally
	n := uint64(0)
	for ; *span == 0 && n < short || time.Since(began) < *span; n++ {
		h := draw(first + n)
		one, err := play(h)
		if all.add(one); err != nil {
			t.Logf("seed %d, %d histories and %d calls in, after %s: %v", first+n, n, all.calls, time.Since(began).Round(time.Millisecond), err)
			small, err := shrink(h, err)
			name := filepath.Join(t.TempDir(), "history.txt")
			if dir := os.Getenv("WEIR_CAMPAIGN_KEEP"); dir != "" {
				name = filepath.Join(dir, fmt.Sprintf("%d.txt", first+n))
			}
			if e := os.WriteFile(name, []byte(small.text()), 0o644); e != nil {
				t.Error(e)
			}
			t.Fatalf("campaign: seed %d breaks a promise: %v\n%s", first+n, err, small.text())
		}
		if *span > 0 && time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("campaign: %s: %d histories, %+v", time.Since(began).Round(time.Second), n+1, all)
		}
	}
	shown := []int{all.admitted, all.refused, all.byMemory, all.degraded, all.refunds, all.failovers, all.held, all.patient, all.offsets,
		all.never, all.foreign, all.left}
	if slices.Contains(shown, 0) {
		t.Errorf("%+v: the histories show too little", all)
	}
	t.Logf("campaign: clean: first seed %d, %d histories in %s, %+v", first, n, time.Since(began).Round(time.Second), all)
}

// Histories that once broke a promise.
func TestHistoriesKept(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no histories in testdata: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			h, err := parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := play(h); err != nil {
				t.Errorf("%v\n%s", err, h.text())
			}
		})
	}
}

func TestAHistoryIsItsText(t *testing.T) {
	for n := range uint64(50) {
		h := draw(n)
		again, err := parse(h.text())
		if err != nil || again.text() != h.text() {
			t.Fatalf("seed %d: %v\n%s\n---\n%s", n, err, h.text(), again.text())
		}
	}
}
