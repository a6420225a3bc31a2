package main

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// hinting is a bundle with one rule of the origin's, for /search.
func hinting(t *testing.T, headers string, key string) []byte {
	t.Helper()
	text := func(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }
	set, faults := rule.Compile(rule.Draft{Rules: []rule.Spec{{
		Name: text("per-key"), Where: text("origin"), Limit: text("1/1m"), By: []rule.Scalar{text("key")}, Headers: text(headers),
		MatchAt: rule.Source{Line: 1}, Paths: []rule.Scalar{text("/search")},
	}}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	b, err := bundle.Encode(bundle.Content{
		Release: 3, Origin: set,
		Gate:      &bundle.Gate{KeyHeader: "x-api-key", HashKey: testHashKey},
		KeyHashes: []uint64{keyfilter.Hash(testHashKey, []byte(key))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAHintOfTheOriginAnswersTheNextCall(t *testing.T) {
	key := newKey(t, 1)
	for name, c := range map[string]struct {
		headers, cluster, hint string
		taken                  bool
	}{
		"from the origin":           {"full", "weir_origin", "v1;rule=per-key;scope=key;ms=5000;release=3", true},
		"of a rule that tells less": {"retry-only", "weir_origin", "v1;rule=per-key;scope=key;ms=5000;release=3", true},
		"of a silent rule":          {"none", "weir_origin", "v1;rule=per-key;scope=key;ms=5000;release=3", true},
		"from another cluster":      {"full", "other", "v1;rule=per-key;scope=key;ms=5000;release=3", false},
		"from nowhere":              {"full", "", "v1;rule=per-key;scope=key;ms=5000;release=3", false},
		"of another release":        {"full", "weir_origin", "v1;rule=per-key;scope=key;ms=5000;release=4", false},
		"garbage":                   {"full", "weir_origin", strings.Repeat(";=", 500), false},
		"none":                      {"full", "weir_origin", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			f := started(t, hinting(t, c.headers, key))
			request := map[string]string{address: "192.0.2.1:1", apiKey: key, "request.path": "/search?q=1", "request.method": "GET", "request.host": "h"}
			if _, marked, _ := h.request(f, request); !marked {
				t.Fatal("the first call is refused")
			}
			h.headers = map[string]string{}
			if c.hint != "" {
				h.headers["x-weir-hint"] = c.hint
			}
			if c.cluster != "" {
				h.properties["xds.cluster_name"] = c.cluster
			}
			h.calls = 0
			f.responseHeaders(1)
			if c.hint == "" && h.calls != 1 {
				t.Errorf("%d host calls for an answer without a hint, want 1", h.calls)
			}
			action, marked, reply := h.request(f, request)
			if !c.taken {
				if !marked || h.counts["weir_edge_hints"] != 0 {
					t.Errorf("refused: %+v", reply)
				}
				return
			}
			if action != abi.Pause || marked || reply.status != 429 || reply.details != "weir_rate_limited.per-key" || h.counts["weir_edge_hints"] != 1 {
				t.Fatalf("marked %v, %+v, %v", marked, reply, h.counts)
			}
			if h.counts["weir_edge_denied.rate_limited.per-key"] != 1 {
				t.Errorf("counters %v", h.counts)
			}
			wantRetry := "5"
			if c.headers == "none" {
				wantRetry = ""
			}
			if reply.headers["retry-after"] != wantRetry || reply.headers["ratelimit"] != "" || strings.Contains(reply.body, "per-key") != (c.headers == "full") {
				t.Errorf("headers %v, body %s", reply.headers, reply.body)
			}
			request["request.path"] = "/other"
			if _, marked, _ := h.request(f, request); !marked {
				t.Error("the hint refuses what its rule is not for")
			}
			request["request.path"] = "/search"
			h.now += 5 * second
			if _, marked, _ := h.request(f, request); !marked {
				t.Error("the hint refuses after its time")
			}
		})
	}
}

func TestADeniedNetworkIsRefusedWith403(t *testing.T) {
	h := newHost(t)
	deny := rule.Network{Bits: 24}
	copy(deny.Address[:], []byte{192, 0, 2})
	b, err := bundle.Encode(bundle.Content{Deny: []rule.Network{deny}})
	if err != nil {
		t.Fatal(err)
	}
	f := started(t, b)
	_, marked, reply := h.request(f, map[string]string{address: "192.0.2.9:1"})
	if marked || reply == nil || reply.status != 403 || reply.details != "weir_address_denied.default" || reply.grpc != 7 ||
		h.counts["weir_edge_denied.address_denied.default"] != 1 {
		t.Errorf("%+v, %v", reply, h.counts)
	}
}
