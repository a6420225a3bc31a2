// Package demo shows a running system at work.
package demo

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

const (
	// CallsPath is where the demo API tells how often it was called; asking is no call.
	CallsPath = "/demo/calls"
	// clientHeader names the demo's client, so that the API can count calls by client.
	clientHeader = "demo-client"
	// maxBody bounds what the API reads of a request.
	maxBody = 1 << 20
)

// API is an API to put behind the gateway: it answers every call with what it was asked, keeping count. The zero value
// is not ready, use [NewAPI].
type API struct {
	mu    sync.Mutex
	calls map[string]int64 // by client; "" for callers that are none of the demo's
}

// NewAPI is an API that was never called.
func NewAPI() *API { return &API{calls: map[string]int64{}} }

// ServeHTTP answers one call.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", "application/json")
	if r.URL.Path == CallsPath {
		a.mu.Lock()
		content, err := json.Marshal(a.calls)
		a.mu.Unlock()
		if err == nil {
			_, _ = w.Write(append(content, '\n'))
		}
		return
	}
	a.count(r.Header.Get(clientHeader))
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
	content, err := json.Marshal(struct {
		Message string `json:"message"`
		Method  string `json:"method"`
		Path    string `json:"path"`
	}{"hello from the API", r.Method, r.URL.Path})
	if err == nil {
		_, _ = w.Write(append(content, '\n'))
	}
}

// count adds a call. Only the demo's own names make an entry, so that no caller can fill the map.
func (a *API) count(client string) {
	if client != nameForged && client != nameStorm && client != namePolite {
		client = ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[client]++
}
