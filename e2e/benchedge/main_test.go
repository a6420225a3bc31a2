package benchedge

import (
	"fmt"
	"net/http"
	"os"
	"testing"
)

// upstreamEnv names the address that this program serves the upstream at, in a process of its own, instead of tests.
const upstreamEnv = "WEIR_BENCH_UPSTREAM"

func TestMain(m *testing.M) {
	if address := os.Getenv(upstreamEnv); address != "" {
		fmt.Fprintln(os.Stderr, http.ListenAndServe(address, http.HandlerFunc(upstream)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	// originMark is in every answer of the upstream's, and in none of Envoy's own.
	originMark = "X-Bench-Origin"
	// hintedPath is where the upstream refuses all, with a hint for the edge.
	hintedPath = "/hinted"
	hintedRule = "search-per-key"
	// directPath is answered by Envoy's router without an upstream.
	directPath = "/direct"
	release    = 1
)

var hint = fmt.Sprintf("v1;rule=%s;scope=key;ms=30000;release=%d", hintedRule, release)

func upstream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(originMark, "1")
	if r.URL.Path == hintedPath {
		w.Header().Set("X-Weir-Hint", hint)
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write([]byte("ok\n"))
}
