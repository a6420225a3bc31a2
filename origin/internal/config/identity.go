package config

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/origin/internal/users"
	"github.com/weirproject/weir/shared/rule"
)

// Defaults and bounds of an issuer's settings.
const (
	// DefaultLeeway is what clocks may differ by; with more than maxLeeway they are wrong.
	DefaultLeeway = 30 * time.Second
	maxLeeway     = 5 * time.Minute
	// DefaultUserClaim is what OpenID Connect calls the user.
	DefaultUserClaim = "sub"
	// maxIssuers bounds what one process asks for keys.
	maxIssuers = 50
	// maxText bounds a name in an issuer's settings.
	maxText = 255
)

// Identity says whose tokens tell who a user is.
type Identity struct {
	Issuers []users.Issuer // none: no user is known
	Policy  users.Policy
}

// readIdentity reads identity: {invalid-token, foreign-token, issuer-down, oidc: […]}. It has no override: a list of
// mappings is nothing for a variable.
func (r *reader) readIdentity() (id Identity) {
	section := r.root.Get("identity")
	fields := section.Fields("invalid-token", "foreign-token", "issuer-down", "oidc")
	if !section.Present() {
		return id
	}
	id.Policy.AnonymousInvalid = anonymous(fields.Get("invalid-token"), false)
	id.Policy.RefuseForeign = !anonymous(fields.Get("foreign-token"), true)
	id.Policy.AnonymousDown = anonymous(fields.Get("issuer-down"), false)
	list := fields.Get("oidc")
	items := list.Items()
	switch {
	case !list.Present():
		list.Fault("is missing: want a list of issuers, as [{issuer: https://login.example.com, audience: [my-api]}]")
	case len(items) == 0:
		r.hidden(list, "want at least one issuer")
	case len(items) > maxIssuers:
		list.Fault(fmt.Sprintf("holds %d issuers: want at most %d", len(items), maxIssuers))
		return id
	}
	first := map[string]int{}
	for _, item := range items {
		at, fields := item.At(), item.Fields("issuer", "audience", "algorithms", "parties", "leeway", "claims", "ca")
		issuer := r.issuer(fields)
		if line, twice := first[issuer.URL]; twice && issuer.URL != "" {
			fields.Get("issuer").Fault(fmt.Sprintf("is given twice: first at line %d", line))
		} else {
			first[issuer.URL] = at.Line
		}
		id.Issuers = append(id.Issuers, issuer)
	}
	return id
}

// anonymous reads how a kind of token is answered.
func anonymous(v document.Value, byDefault bool) bool {
	switch s := v.Scalar(); {
	case !s.Set:
		return byDefault
	case s.Text == "anonymous":
		return true
	case s.Text != "refuse":
		v.Fault("want refuse, anonymous")
	}
	return false
}

func (r *reader) issuer(fields document.Fields) users.Issuer {
	i := users.Issuer{URL: r.issuerURL(fields.Get("issuer")), Leeway: DefaultLeeway}
	audience := fields.Get("audience")
	i.Audience = r.texts(audience, "want at least one audience")
	if !audience.Present() {
		// Without, a token that was made for any other application of the issuer would count here.
		audience.Fault("is missing: want a list of what the tokens' aud has, as [my-api]")
	}
	i.Algorithms = r.algorithms(fields.Get("algorithms"))
	i.Parties = r.texts(fields.Get("parties"), "want at least one of what the tokens' azp has, or no parties")
	if v := fields.Get("leeway"); v.Present() {
		s := v.Scalar()
		d, err := time.ParseDuration(s.Text)
		if s.Set && (err != nil || d < 0 || d > maxLeeway) {
			v.Fault(fmt.Sprintf("want 0s to %v", maxLeeway))
		}
		i.Leeway = d
	}
	claims := fields.Get("claims").Fields("user", "tenant", "tier")
	i.Claims = users.Claims{User: text(claims.Get("user")), Tenant: text(claims.Get("tenant")), Tier: text(claims.Get("tier"))}
	if i.Claims.User == "" {
		i.Claims.User = DefaultUserClaim
	}
	if v := fields.Get("ca"); v.Present() {
		i.CA = r.authorities(v)
	}
	return i
}

// issuerURL reads an issuer, which tokens name letter by letter. Keys that came over clear text could be anybody's.
func (r *reader) issuerURL(v document.Value) string {
	const form = "want the issuer's https URL, exactly as its tokens have it in iss (http for a loopback address only)"
	s := v.Scalar()
	if !v.Present() {
		v.Fault("is missing: " + form)
	}
	if !s.Set {
		return ""
	}
	u, err := url.Parse(s.Text)
	switch {
	case strings.Contains(s.Text, "@"): // no fault shows the value: it may hold a password
		r.hidden(v, form)
		return ""
	case err != nil || u.Hostname() == "" || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(s.Text, "|") || len(s.Text) > maxText:
		v.Fault(form)
	case !portInRange(u.Port()):
		v.Fault("want a port of 1 to 65535")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
	default:
		v.Fault(form)
	}
	return s.Text
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (r *reader) algorithms(v document.Value) []string {
	if !v.Present() {
		return users.DefaultAlgorithms
	}
	allowed := strings.Join(users.Algorithms, ", ")
	items := v.Items()
	if len(items) == 0 {
		r.hidden(v, "want some of "+allowed)
	}
	var list []string
	for _, item := range items {
		s := item.Scalar()
		switch {
		case !s.Set || slices.Contains(list, s.Text):
		case slices.Contains(users.Algorithms, s.Text):
			list = append(list, s.Text)
		case strings.HasPrefix(strings.ToUpper(s.Text), "HS"), strings.EqualFold(s.Text, "none"):
			item.Fault("lets whoever can verify a token make one: want some of " + allowed)
		default:
			item.Fault("want some of " + allowed)
		}
	}
	return list
}

// hidden tells of a value without showing it. Of one of the wrong kind that is told already, which comes before.
func (r *reader) hidden(v document.Value, want string) {
	r.faults = append(r.faults, rule.Fault{At: v.At(), Field: v.Field(), Want: want})
}

// texts reads a list of texts, which is not empty if it is there.
func (r *reader) texts(v document.Value, want string) (list []string) {
	items := v.Items()
	if v.Present() && len(items) == 0 {
		r.hidden(v, want)
	}
	for _, item := range items {
		if t := text(item); t != "" {
			list = append(list, t)
		}
	}
	return list
}

// text reads a text that says something; of an absent value it is empty.
func text(v document.Value) string {
	s := v.Scalar()
	if s.Set && (s.Text == "" || len(s.Text) > maxText) {
		v.Fault(fmt.Sprintf("want 1 to %d characters", maxText))
	}
	return s.Text
}

// authorities reads a file of certificates.
func (r *reader) authorities(v document.Value) *x509.CertPool {
	s := v.Scalar()
	path := r.path(s, v.Field(), "")
	if !s.Set || path == "" {
		return nil
	}
	content, err := readFile(path)
	if err != nil {
		v.Fault("cannot be read: " + reason(err))
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		v.Fault("holds no certificate: want a file of PEM blocks, BEGIN CERTIFICATE")
		return nil
	}
	return pool
}
