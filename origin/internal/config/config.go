// Package config reads weir.yaml, the settings of one process.
package config

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"github.com/weirproject/weir/origin/internal/document"
)

// Defaults of fields that weir.yaml leaves out. Ports are on loopback, so that nothing is reachable from another
// machine unless somebody says so.
const (
	DefaultGateway = "127.0.0.1:8081"
	DefaultAdmin   = "127.0.0.1:8084"
	DefaultRules   = "weir.rules.yaml"
	DefaultStore   = "memory://"
	// DefaultDeadline is how long a decision may wait for the store, waiting for a connection included.
	DefaultDeadline = 10 * time.Millisecond
)

// Bounds of store.deadline: below, a garbage collection is a failure; above, a stopped store holds every request.
const (
	minDeadline = time.Millisecond
	maxDeadline = 10 * time.Second
)

// Config is a validated weir.yaml with the environment's overrides applied.
type Config struct {
	File     string // as given to [Load]
	Roles    Roles
	Listen   Listen
	Upstream *url.URL // of the API behind the gateway; nil if not given, which that role does not allow
	Gateway  Gateway
	TLS      *TLS // of the gateway's port; nil: clear text
	Store    Store
	Trust    Trust
	Rules    string // file of the rules
	Keys     string // file of the keys; empty: no key is known
	Secrets  Secrets
	Identity Identity
}

// Roles are what the process does.
type Roles struct{ Gateway, Admin bool }

// Listen holds an address, host:port, for each role.
type Listen struct{ Gateway, Admin string }

// Trust says whose word about a request counts.
type Trust struct {
	Edges     []netip.Prefix // peers whose x-weir-address is believed
	EdgeNames []string       // DNS names and URIs of certificates, whose peers are believed too
}

// Believes tells whether a peer is an edge by its address.
func (t Trust) Believes(peer netip.Addr) bool {
	for _, p := range t.Edges {
		if p.Contains(peer) {
			return true
		}
	}
	return false
}

// Load reads file with overrides from the environment. The error is a [rule.Faults] with everything that is wrong,
// or says why the file cannot be read; with faults, Rules and Keys still name the files that could be made out, so that
// a check can go on to those. Files that the file names are relative to its folder; files that the environment names
// are relative to the working directory.
func Load(file string, lookupEnv func(string) (string, bool)) (Config, error) {
	doc, _, err := document.ReadFile(file, file)
	if err != nil {
		return Config{}, err
	}
	if doc.Broken() && !doc.Root().Present() {
		return Config{}, doc.Faults()
	}
	r := newReader(doc, filepath.Dir(file), lookupEnv)
	c := r.config()
	c.File = file
	if faults := doc.FaultsWith(r.faults); len(faults) > 0 {
		return Config{File: file, Rules: c.Rules, Keys: c.Keys}, faults
	}
	return c, nil
}
