// Package identity finds out who a request is from.
package identity

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/shared/header"
)

// Header names that a caller is known by.
const (
	KeyHeader     = "X-Api-Key"
	AddressHeader = "X-Weir-Address" // written by an edge; believed from an edge only
)

// maxKey bounds what is hashed: no issued key is longer, a header may be.
const maxKey = 512

// Caller is who a request is from. It is read-only.
type Caller struct {
	Key     *keys.Key // nil: none was shown
	User    *User     // nil: none was verified
	Address netip.Addr
}

// Tenant is the key's, else the user's; empty for none.
func (c *Caller) Tenant() string {
	switch {
	case c.Key != nil && c.Key.Tenant != "":
		return c.Key.Tenant
	case c.User != nil:
		return c.User.Tenant
	}
	return ""
}

// Tier is the key's, else the user's; empty for none.
func (c *Caller) Tier() string {
	switch {
	case c.Key != nil && c.Key.Tier != "":
		return c.Key.Tier
	case c.User != nil:
		return c.User.Tier
	}
	return ""
}

// User is a verified user: a subject is its issuer's, and within it its tenant's. It is read-only.
type User struct{ Issuer, Tenant, Subject, Tier string }

// Verifier tells the user of a bearer token. A token that is not for it is no user, without an error; an error that is
// a [*Refusal] says how to answer, any other means a token that is not valid. What a client says about its user outside
// such a token is never believed.
type Verifier interface {
	Verify(ctx context.Context, token string) (*User, error)
}

// Refusal is why a request is refused before any counter is touched.
type Refusal struct {
	Code      header.Code
	Challenge string // the answer's WWW-Authenticate; empty for none
	Field     string // what of the request is wrong, for a 400; empty if its code says it all
}

// Error is the refusal's code.
func (r *Refusal) Error() string { return string(r.Code) }

// OfKey tells whether the request was refused for its API key, rather than for a user's token.
func (r *Refusal) OfKey() bool {
	return r.Code == header.KeyUnknown || r.Code == header.KeyMalformed || r.Code == header.KeyConflict
}

// challenge is what an answer to a credential that does not count asks for.
const challenge = "Bearer"

func refusal(code header.Code) *Refusal {
	r := &Refusal{Code: code}
	if code.Status() == http.StatusUnauthorized {
		r.Challenge = challenge
	}
	return r
}

// Resolver finds callers. Keys and Believes must be set; Users may be nil, which verifies nobody. It is safe for
// concurrent use.
type Resolver struct {
	Keys     func() *keys.Table         // the keys in force
	Believes func(peer netip.Addr) bool // whether a peer is an edge, whose word on addresses counts
	Users    Verifier
}

// Resolve finds the caller of a request that came from peer, or why the request must be refused:
// [header.KeyConflict], [header.KeyMalformed], [header.KeyUnknown], [header.BadRequest] for a field Authorization that
// another reader could take for somebody else's, or as Users refuses. ctx bounds what verifying a user may wait for.
func (r *Resolver) Resolve(ctx context.Context, h http.Header, peer netip.Addr) (Caller, *Refusal) {
	peer = peer.Unmap().WithZone("")
	c := Caller{Address: r.address(h, peer)}
	table := r.Keys()
	text, bearer, shown, code := credential(h, table.Format().Prefix)
	if code != "" {
		refused := refusal(code)
		if code == header.BadRequest {
			refused.Field = "authorization"
		}
		return c, refused
	}
	if shown {
		if c.Key, code = lookup(table, text); code != "" {
			return c, refusal(code)
		}
	}
	if bearer != "" && r.Users != nil {
		user, err := r.Users.Verify(ctx, bearer)
		if refused, ok := errors.AsType[*Refusal](err); ok {
			return c, refused
		}
		if err != nil {
			return c, refusal(header.TokenInvalid)
		}
		c.User = user
	}
	return c, nil
}

// credential finds the one API key of a request, with the bearer token that is none.
func credential(h http.Header, prefix string) (key, bearer string, shown bool, code header.Code) {
	lines := h[KeyHeader]
	if len(lines) > 0 {
		key, shown = lines[0], true
	}
	if len(lines) > 1 || strings.IndexByte(key, ',') >= 0 {
		// A comma is what an edge sees of two lines; no key has one.
		return "", "", true, header.KeyConflict
	}
	authorization := h["Authorization"]
	for _, line := range authorization {
		// HTTP/2 lets white space around a value come this far; HTTP/1.1, by which the API may be asked, has none.
		line = strings.Trim(line, " \t")
		if len(authorization) > 1 || ambiguous(line) {
			code = header.BadRequest // unless it is about a key, which is told as such
		}
		token, ok := bearerToken(line)
		if !ok {
			continue
		}
		if !strings.HasPrefix(token, prefix) {
			bearer = token
			continue
		}
		if shown || len(authorization) > 1 {
			return "", "", true, header.KeyConflict
		}
		key, shown = token, true
	}
	return key, bearer, shown, code
}

const scheme = "bearer"

// bearerToken is the token of an Authorization line with that scheme, which is written in any case.
func bearerToken(line string) (string, bool) {
	if len(line) <= len(scheme) || line[len(scheme)] != ' ' || !strings.EqualFold(line[:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimLeft(line[len(scheme):], " "), true
}

// ambiguous tells whether an API could find a bearer token in an Authorization line where we see none, or another one than
// we: many take for white space what RFC 9110 does not, a tab or a no-break space. The user whom the API sees behind it
// would go uncounted. A second line is as bad, since some take the first and some the last.
func ambiguous(line string) bool {
	if token, ok := bearerToken(line); ok && strings.IndexByte(token, ' ') >= 0 {
		return true
	}
	for i := range len(line) {
		if line[i] < ' ' || line[i] > '~' {
			return strings.Contains(strings.ToLower(line), scheme)
		}
	}
	return false
}

// lookup finds a key, or why there is none. A key that was issued is known whatever it looks like.
func lookup(table *keys.Table, text string) (*keys.Key, header.Code) {
	if text == "" || len(text) > maxKey {
		return nil, header.KeyMalformed
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return nil, header.KeyMalformed
		}
	}
	var room [maxKey]byte
	b := room[:copy(room[:], text)]
	if key := table.Lookup(b); key != nil {
		return key, ""
	}
	if !table.Format().Check(b) {
		return nil, header.KeyMalformed
	}
	return nil, header.KeyUnknown
}

// address is the client's, as an edge tells it, else the peer's.
func (r *Resolver) address(h http.Header, peer netip.Addr) netip.Addr {
	if len(h[AddressHeader]) == 0 || !r.Believes(peer) {
		return peer
	}
	return Told(h, peer)
}

// Told is the client's address as an edge at peer tells it. What cannot be read counts as not told: there is always an
// address, so that no rule fails to apply.
func Told(h http.Header, peer netip.Addr) netip.Addr {
	if lines := h[AddressHeader]; len(lines) == 1 {
		if a, ok := ParseAddress(lines[0]); ok {
			return a
		}
	}
	return peer
}

// ParseAddress reads an address as proxies write it: alone, with a port, in brackets, with a zone. An IPv4 address
// in IPv6 clothing is IPv4.
func ParseAddress(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}
