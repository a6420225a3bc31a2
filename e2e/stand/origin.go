package stand

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// OriginSettings is what a test chooses of an origin.
type OriginSettings struct {
	Upstream string // URL of the API
	Rules    string // text of weir.rules.yaml
	Keys     string // text of weir.keys.yaml, empty: no keys file
	Valkey   string // host:port, empty: memory
	// Trust lists the networks whose x-weir-address is believed; nil: none.
	Trust []string
	// Issuer is the URL of an [Issuer] whose users are known; empty: no user is.
	Issuer string
	// Deadline of the store. Outside fault tests a slow machine must not look like a broken store: 1 s if empty.
	Deadline string
	// Contained runs it from its image, on the host's network.
	Contained bool
}

// Origin is a running "weir serve".
type Origin struct {
	*Process
	Folder  string // of its files
	Gateway string // host:port
	Admin   string // URL
}

// StartOrigin writes the files, starts "weir serve" and waits until it is ready.
func StartOrigin(t testing.TB, s OriginSettings) *Origin {
	t.Helper()
	o := &Origin{Folder: t.TempDir(), Gateway: Loopback(t)}
	admin := Loopback(t)
	o.Admin = "http://" + admin
	var b strings.Builder
	fmt.Fprintf(&b, "listen: {gateway: %q, admin: %q}\nupstream: %s\nrules: weir.rules.yaml\n", o.Gateway, admin, s.Upstream)
	o.Write(t, "weir.rules.yaml", s.Rules)
	if s.Keys != "" {
		o.Write(t, "weir.keys.yaml", s.Keys)
		b.WriteString("keys: weir.keys.yaml\n")
	}
	if len(s.Trust) > 0 {
		fmt.Fprintf(&b, "trust: {edges: [%q]}\n", strings.Join(s.Trust, `", "`))
	}
	if s.Issuer != "" {
		fmt.Fprintf(&b, "identity: {oidc: [{issuer: %q, audience: [%s], claims: {tenant: tenant, tier: tier}}]}\n", s.Issuer, issuerAudience)
	}
	if s.Deadline == "" {
		s.Deadline = "1s"
	}
	store := "memory://"
	if s.Valkey != "" {
		store = "valkey://" + s.Valkey
		o.Write(t, "weir.secret", strings.Repeat("secret of a test ", 4))
		b.WriteString("secrets: {counter: [weir.secret]}\n")
	}
	fmt.Fprintf(&b, "store: {url: %q, deadline: %s}\n", store, s.Deadline)
	o.Write(t, "weir.yaml", b.String())
	serve := []string{"serve", "--config", "weir.yaml"}
	if s.Contained {
		o.Process = StartContainer(t, o.Folder, Container{
			Name: "origin", Image: WeirImage, Mounts: []string{o.Folder + ":/etc/weir:ro"}, Args: serve,
		})
	} else {
		o.Process = Start(t, o.Folder, "origin", Path(t, Weir), serve, nil)
	}
	o.UntilReady(t)
	if s.Issuer != "" {
		o.untilIssuer(t, s.Issuer)
	}
	return o
}

// untilIssuer waits until the origin has an issuer's keys: it is ready without.
func (o *Origin) untilIssuer(t testing.TB, url string) {
	t.Helper()
	want := fmt.Sprintf("weir_issuer_up{issuer=%q} 1\n", url)
	o.Until(t, "has the issuer's keys", func() error {
		resp, err := asking.Get(o.Admin + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(page), want) {
			err = errors.New("no " + want)
		}
		return err
	})
}

// UntilReady waits for /readyz to say 200.
func (o *Origin) UntilReady(t testing.TB) {
	t.Helper()
	o.Until(t, "is ready", func() error { return status(o.Admin+"/readyz", http.StatusOK) })
}

// UntilStore waits until /readyz says that the store is up. It is ready without one, and says that it is degraded.
func (o *Origin) UntilStore(t testing.TB) {
	t.Helper()
	o.Until(t, "reaches its store", func() error {
		up, _, err := o.Store()
		if err == nil && !up {
			err = errors.New("store.up is false")
		}
		return err
	})
}

// Store reads from /readyz whether the store is up and whether the origin calls itself degraded.
func (o *Origin) Store() (up, degraded bool, err error) {
	resp, err := asking.Get(o.Admin + "/readyz")
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	var page struct {
		Degraded bool
		Store    struct{ Up bool }
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return false, false, fmt.Errorf("/readyz: %w", err)
	}
	return page.Store.Up, page.Degraded, nil
}

// Write puts a file into the origin's folder by rename, so that it is never read half.
func (o *Origin) Write(t testing.TB, name, content string) {
	t.Helper()
	writeFile(t, filepath.Join(o.Folder, name), []byte(content))
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	// Containers read as another user. The test's own folder above is closed to others.
	if err := os.Chmod(path+".new", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// asking keeps no connection: a process that is asked whether it is ready may end and start again.
var asking = &http.Client{Timeout: callTimeout, Transport: &http.Transport{DisableKeepAlives: true}}

func status(url string, want int) error {
	resp, err := asking.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("%s: status %d, want %d", url, resp.StatusCode, want)
	}
	return nil
}
