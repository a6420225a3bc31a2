// Package admin is the door for operators: metrics, health, counters.
package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness tells how a process stands. It can answer requests while Ready, in its rules' failure modes if Degraded.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Degraded bool     `json:"degraded"` // the store or an issuer does not answer, the store does not count processes, or a file's newest content was refused
	Draining bool     `json:"draining"` // the process is about to end
	Store    Store    `json:"store"`
	Rules    Content  `json:"rules"`
	Keys     Content  `json:"keys,omitzero"`     // left out without a keys file
	TLS      Content  `json:"tls,omitzero"`      // of the gateway's port; left out in clear text
	Issuers  []Issuer `json:"issuers,omitempty"` // of users; left out where none is configured
}

// Store is how the store stands.
type Store struct {
	Kind   string  `json:"kind"` // memory or valkey
	Up     bool    `json:"up"`   // all shards answer, no breaker is open
	Shards []Shard `json:"shards,omitempty"`
	// Processes share the store, as they were counted last, this one included.
	Processes int64 `json:"processes,omitempty"`
	// Uncounted is why a store that answers does not count them.
	Uncounted string `json:"uncounted,omitempty"`
}

// Issuer is how an issuer of users stands.
type Issuer struct {
	Issuer string `json:"issuer"`
	Up     bool   `json:"up"`   // it told its keys when it was asked last
	Keys   int    `json:"keys"` // that tokens are verified by, also while it is not up
}

// Shard is how one server of the store stands.
type Shard struct {
	Address string `json:"address"`
	Up      bool   `json:"up"`
	Breaker string `json:"breaker"` // closed, probing or open
}

// Content is how a followed file stands.
type Content struct {
	File    string    `json:"file,omitempty"`
	Content string    `json:"content,omitempty"` // start of the hex SHA-256 of what is in force
	Since   time.Time `json:"since,omitzero"`
	Count   int       `json:"count"`           // rules, keys or certificates in force
	Error   string    `json:"error,omitempty"` // why a newer content was refused
}

// New is the handler of the admin port. /healthz answers 200 while the process runs at all; /readyz answers 200 while it
// can take requests, else 503, with a [Readiness] as JSON in either case. What is below /counters is for the handler of that
// name, nil for none.
func New(registry *prometheus.Registry, readiness func() Readiness, counters http.Handler) http.Handler {
	mux := http.NewServeMux()
	if counters != nil {
		mux.Handle("/counters", counters)
		mux.Handle("/counters/", counters)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "alive")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := readiness()
		w.Header().Set("Content-Type", "application/json")
		if !r.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false) // for people: an error in a file may quote it, as "<calls>/<time>"
		_ = encoder.Encode(r)        // a client that is gone reads nothing
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "Weir origin\n\n/metrics  for Prometheus\n/healthz  200 while the process runs\n/readyz   200 while it can take requests, with what stands how\n/counters what holds a caller back: weir counters --help\n")
	})
	return mux
}
