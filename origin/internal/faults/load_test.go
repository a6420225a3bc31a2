package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/demo"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// callField carries a call's number, so that the API tells which calls reached it.
const callField = "X-Call"

// tally is the demo API with a note of each call that reached it.
type tally struct {
	url    string
	server *httptest.Server

	mu   sync.Mutex
	seen map[string]int
}

func startTally(t testing.TB) *tally {
	t.Helper()
	a, api := &tally{seen: map[string]int{}}, demo.NewAPI()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != demo.CallsPath {
			a.mu.Lock()
			a.seen[r.Header.Get(callField)]++
			a.mu.Unlock()
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	a.url, a.server = s.URL, s
	return a
}

// passed is how often the API was called, as it tells itself.
func (a *tally) passed(t testing.TB) (all int) {
	t.Helper()
	resp, err := http.Get(a.url + demo.CallsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var calls map[string]int
	if err := json.NewDecoder(resp.Body).Decode(&calls); err != nil {
		t.Fatal(err)
	}
	for _, n := range calls {
		all += n
	}
	return all
}

// caller makes calls to an origin from one address of 127.0.0.0/8.
type caller struct {
	to     *origin
	client *http.Client
	number *atomic.Int64 // of calls, shared by all callers of a test
}

func newCaller(t testing.TB, to *origin, address string, number *atomic.Int64) *caller {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 512}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{to, &http.Client{Timeout: patience, Transport: transport}, number}
}

// answer is what a call was answered.
type answer struct {
	number string
	path   string
	status int
	code   string // of a problem body
	// counted tells that the rule's counter answered, in the store.
	counted bool
	took    time.Duration
	sent    time.Time
	err     error
}

func (c *caller) call(path string) answer {
	a := answer{number: strconv.FormatInt(c.number.Add(1), 10), path: path, sent: time.Now()}
	r, err := http.NewRequest("GET", "http://"+c.to.gateway+path, nil)
	if err != nil {
		a.err = err
		return a
	}
	r.Header.Set(callField, a.number)
	resp, err := c.client.Do(r)
	if err != nil {
		a.err, a.took = err, time.Since(a.sent)
		return a
	}
	defer resp.Body.Close()
	var problem struct{ Code string }
	body, err := io.ReadAll(resp.Body)
	a.took, a.err, a.status = time.Since(a.sent), err, resp.StatusCode
	if a.status != http.StatusOK {
		_ = json.Unmarshal(body, &problem) // no problem has no code, which no check takes
	}
	a.code = problem.Code
	a.counted = resp.Header.Get("X-Ratelimit-Limit") != "" && resp.Header.Get("X-Ratelimit-Degraded") == "" && a.code != "limiter_unavailable"
	return a
}

// how tells by what a call of the load was answered, "" for an answer that is right in no state of the store.
func (a answer) how() string {
	switch {
	case a.err != nil:
	case a.status == http.StatusOK && a.counted:
		return byStore
	case a.path == "/closed" && a.status == http.StatusServiceUnavailable && a.code == "limiter_unavailable":
		return byMode
	case a.path != "/closed" && a.status == http.StatusOK:
		return byMode
	}
	return ""
}

func (a answer) String() string {
	return fmt.Sprintf("%s: %d %s, counted %v, after %v, %v", a.path, a.status, a.code, a.counted, a.took.Round(100*time.Microsecond), a.err)
}

var modePaths = []string{"/local", "/open", "/closed"}

// pace makes calls at a rate, by the callers in turn, one to each of the paths after the other, until told enough. A call
// does not wait for those before it.
func pace(callers []*caller, paths []string, rate float64, enough func(time.Time) bool) (all []answer) {
	var together sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for i := 0; ; i++ {
		due := began.Add(time.Duration(float64(i) / rate * 1e9))
		valkeytest.SleepUntil(due)
		if enough(due) {
			break
		}
		together.Go(func() {
			a := callers[i/len(paths)%len(callers)].call(paths[i%len(paths)])
			a.took += a.sent.Sub(due) // what it waited for its turn, its client did
			a.sent = due
			mu.Lock()
			all = append(all, a)
			mu.Unlock()
		})
	}
	together.Wait()
	slices.SortFunc(all, func(a, b answer) int { return a.sent.Compare(b.sent) })
	return all
}

// quantile is the time within which that share of calls was answered.
func quantile(all []answer, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	times := make([]time.Duration, len(all))
	for i, a := range all {
		times[i] = a.took
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(share*float64(len(times))))]
}
