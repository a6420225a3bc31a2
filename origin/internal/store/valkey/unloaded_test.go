package valkey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// A server that has no library and takes none is down: it is told as that, left alone, not sent the library by each call, and
// used again once it takes one.
func TestAServerThatTakesNoLibraryIsDown(t *testing.T) {
	t.Parallel()
	impostor := fmt.Sprintf("#!lua name=another\nserver.register_function('%s', function() return 'no reply of ours' end)", production.check)
	namesake := fmt.Sprintf("#!lua name=%s\nserver.register_function('another', function() return 1 end)", production.name)
	for name, test := range map[string]struct {
		spoil, mend [][]string
		reason      string
	}{
		"not permitted": {[][]string{{"ACL", "SETUSER", "weir", "-function|load"}, {"FUNCTION", "FLUSH"}}, [][]string{{"ACL", "SETUSER", "weir", "+function|load"}}, "NOPERM"},
		"namesake":      {[][]string{{"FUNCTION", "LOAD", "REPLACE", namesake}}, [][]string{{"FUNCTION", "FLUSH"}}, "Function not found"},
		"impostor":      {[][]string{{"FUNCTION", "FLUSH"}, {"FUNCTION", "LOAD", impostor}}, [][]string{{"FUNCTION", "FLUSH"}}, "reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := valkeytest.Start(t)
			server.User("weir", "secret", leastRules...)
			up := make(chan bool, 64)
			s := New(metered(Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret"), OnUp: func(b bool) { up <- b }}))
			t.Cleanup(s.Close)
			await(t, up, true)
			do := func(commands [][]string) {
				for _, words := range commands {
					if err := server.Do(words...).Error(); err != nil {
						t.Fatalf("%v: %v", words, err)
					}
				}
			}
			ask := func() *limiter.StoreError {
				failed, _ := errors.AsType[*limiter.StoreError](s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, roomy, 1)}, Outcomes: make([]limiter.Outcome, 1)}))
				return failed
			}
			do(test.spoil)
			loads := calledOrRefused(server, "function|load")
			const calls = 10 * breaker.MinSample
			for range calls {
				failed := ask()
				if failed == nil || failed.Reason != reasonAnswer && failed.Reason != reasonOpen {
					t.Fatalf("a call: %v", failed)
				}
				if failed.Reason == reasonAnswer && !strings.Contains(failed.Error(), test.reason) {
					t.Errorf("%v does not tell of %q", failed, test.reason)
				}
			}
			await(t, up, false)
			// The watch tries twice a second, calls as often: that is a few, not one a call.
			if n := calledOrRefused(server, "function|load") - loads; n > calls/4 {
				t.Errorf("%d calls had the library loaded %d times", calls, n)
			}
			do(test.mend)
			await(t, up, true)
			within(t, "calls are answered again", func() bool { return ask() == nil })
		})
	}
}

// calledOrRefused is how often a command came to a server, whether it may be run or not.
func calledOrRefused(s *valkeytest.Server, command string) (n int) {
	var calls, usec, rejected int
	var each float64
	_, _ = fmt.Sscanf(s.Info("commandstats")["cmdstat_"+command], "calls=%d,usec=%d,usec_per_call=%g,rejected_calls=%d", &calls, &usec, &each, &rejected)
	return calls + rejected
}
