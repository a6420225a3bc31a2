package limiter_test

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/limit"
)

// A hint is applied by an edge to every call of the stream's key or address that the rule matches: it must hold for them all.
func TestHintsAreForRefusalsThatAnEdgeCanRepeat(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		want  limiter.Hint
	}{
		"key":         {"{name: r, where: origin, by: [key], limit: 1/10s}", limiter.Hint{Rule: "r", Scope: "key", Wait: 20*limit.Second - limit.Second}},
		"address":     {"{name: r, where: origin, by: [address], algorithm: token-bucket, limit: 1/10s}", limiter.Hint{Rule: "r", Scope: "address", Wait: 10 * limit.Second}},
		"long wait":   {"{name: r, where: origin, by: [key], limit: 1/1h}", limiter.Hint{Rule: "r", Scope: "key", Wait: 30 * limit.Second}},
		"a choice":    {"{name: r, where: origin, by: [\"key|user|address\"], limit: 1/1h}", limiter.Hint{}},
		"two parts":   {"{name: r, where: origin, by: [key, address], limit: 1/1h}", limiter.Hint{}},
		"tenant":      {"{name: r, where: origin, by: [tenant], limit: 1/1h}", limiter.Hint{}},
		"suspended":   {"{name: r, where: origin, by: [key], limit: 0/1h}", limiter.Hint{}},
		"two refuse":  {"{name: r, where: origin, by: [key], limit: 1/1h}\n- {name: s, where: origin, by: [address], limit: 1/1h}", limiter.Hint{}},
		"hidden rule": {"{name: r, where: origin, by: [key], limit: 1/1h, headers: none}", limiter.Hint{Rule: "r", Scope: "key", Wait: 30 * limit.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "version: 1\nrules:\n- "+c.rules+"\n")
			a := key("a", "t")
			if v := w.get(a, "/"); v.Allowed && v.Hint != (limiter.Hint{}) {
				t.Errorf("an admitted call: %+v", v.Hint)
			}
			w.now += limit.Second
			for range 2 {
				v := w.get(a, "/")
				if v.Hint.Wait > 0 && c.want.Wait < 30*limit.Second {
					c.want.Wait = min(c.want.Wait, v.Views[0].Decision.RetryAfter)
				}
				if v.Allowed || v.Hint != c.want {
					t.Errorf("%+v, want %+v, refused by %+v", v.Hint, c.want, v.Views)
				}
			}
			if v := w.check(limiter.Request{Caller: a, Method: "GET", Path: "/", Peek: true}); v.Hint != (limiter.Hint{}) {
				t.Errorf("a peek: %+v", v.Hint)
			}
		})
	}
}

func TestNoHintOfACostlierCallOrOfAFallback(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 5/1h, cost: 2}\n")
	a := key("a", "")
	w.get(a, "/") // 3 left
	if v := w.check(limiter.Request{Caller: a, Method: "GET", Path: "/", Cost: 4}); v.Allowed || v.Hint != (limiter.Hint{}) {
		t.Errorf("a call of 4 that is refused: %+v", v.Hint)
	}
	w.get(a, "/")
	if v := w.get(a, "/"); v.Allowed || v.Hint.Scope != "key" {
		t.Errorf("a call of the rule's cost that is refused: %+v", v)
	}
	w = newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 1/1h}\n")
	w.store.Inject(fault.Fault{Reason: "unreachable"})
	w.get(a, "/")
	if v := w.get(a, "/"); v.Allowed || v.Hint != (limiter.Hint{}) {
		t.Errorf("the fallback's refusal: %+v", v)
	}
}
