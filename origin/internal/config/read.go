package config

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

// laterRoles are refused by name, rather than as spelling errors.
var laterRoles = []string{"rls", "check", "control", "xds"}

// reader turns a document into a Config, collecting faults.
type reader struct {
	doc       *document.Document
	folder    string
	lookupEnv func(string) (string, bool)
	faults    rule.Faults

	root, listen, store, trust, secrets document.Fields
}

func newReader(doc *document.Document, folder string, lookupEnv func(string) (string, bool)) *reader {
	r := &reader{doc: doc, folder: folder, lookupEnv: lookupEnv}
	r.root = doc.Root().FieldsBut([]string{"control"}, "roles", "listen", "upstream", "upstream-timeout", "retry-jitter", "tls", "store", "trust", "rules", "keys", "secrets", "identity")
	r.listen = r.root.Get("listen").FieldsBut(laterRoles, "gateway", "admin")
	r.store = r.root.Get("store").Fields("url", "cluster", "strategy", "deadline", "username", "password-file", "tls")
	r.trust = r.root.Get("trust").Fields("edges", "edge-names")
	r.secrets = r.root.Get("secrets").Fields("counter", "switch-at")
	return r
}

func (r *reader) config() Config {
	c := Config{Roles: r.roles()}
	c.Listen.Gateway = r.address(r.scalar(r.listen.Get("gateway"), "WEIR_LISTEN_GATEWAY"), "listen.gateway", DefaultGateway, false)
	c.Listen.Admin = r.address(r.scalar(r.listen.Get("admin"), "WEIR_LISTEN_ADMIN"), "listen.admin", DefaultAdmin, true)
	// One that is written is checked whatever the roles, which may be wrong themselves.
	if upstream := r.root.Get("upstream"); c.Roles.Gateway || upstream.Present() {
		c.Upstream = r.upstream()
	}
	c.Store = r.readStore()
	for i, s := range r.list(r.trust.Get("edges"), "WEIR_TRUST_EDGES") {
		c.Trust.Edges = append(c.Trust.Edges, r.prefix(s, "trust.edges["+strconv.Itoa(i)+"]"))
	}
	c.Gateway, c.TLS = r.gateway(), r.gatewayTLS()
	c.Trust.EdgeNames = r.edgeNames(c.TLS)
	c.Rules = r.path(r.scalar(r.root.Get("rules"), "WEIR_RULES"), "rules", DefaultRules)
	c.Keys = r.path(r.scalar(r.root.Get("keys"), "WEIR_KEYS"), "keys", "")
	c.Secrets = r.readSecrets(c.Store.Valkey != nil)
	c.Identity = r.readIdentity()
	return c
}

func (r *reader) fault(s rule.Scalar, field, want string) {
	r.faults = append(r.faults, rule.Fault{At: s.At, Field: field, Value: s.Text, Want: want})
}

// scalar is a value of the file, or the environment's instead.
func (r *reader) scalar(v document.Value, env string) rule.Scalar {
	if text, ok := r.lookupEnv(env); ok {
		return rule.Scalar{Text: text, At: rule.Source{File: "environment " + env}, Set: true}
	}
	return v.Scalar()
}

// list is a list of the file, or the environment's instead: separated by commas.
func (r *reader) list(v document.Value, env string) []rule.Scalar {
	var scalars []rule.Scalar
	if text, ok := r.lookupEnv(env); ok {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				scalars = append(scalars, rule.Scalar{Text: part, At: rule.Source{File: "environment " + env}, Set: true})
			}
		}
		return scalars
	}
	for _, item := range v.Items() {
		if s := item.Scalar(); s.Set {
			scalars = append(scalars, s)
		}
	}
	return scalars
}

func (r *reader) roles() Roles {
	v := r.root.Get("roles")
	scalars := r.list(v, "WEIR_ROLES")
	if len(scalars) == 0 {
		if v.Present() && !r.doc.Broken() {
			v.Fault("want at least one of gateway, admin")
		}
		return Roles{Gateway: true, Admin: true}
	}
	var roles Roles
	for _, s := range scalars {
		switch {
		case s.Text == "gateway":
			roles.Gateway = true
		case s.Text == "admin":
			roles.Admin = true
		case slices.Contains(laterRoles, s.Text):
			r.fault(s, "roles", "is not in this version: want gateway, admin")
		default:
			r.fault(s, "roles", "want gateway, admin")
		}
	}
	return roles
}

// address reads host:port. Port 0 takes a free one.
func (r *reader) address(s rule.Scalar, field, byDefault string, loopback bool) string {
	if !s.Set {
		return byDefault
	}
	host, port, err := net.SplitHostPort(s.Text)
	if err != nil {
		r.fault(s, field, "want host:port, as "+byDefault)
		return byDefault
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		r.fault(s, field, "want a port of 0 to 65535")
		return byDefault
	}
	addr, err := netip.ParseAddr(host)
	if loopback && host != "localhost" && (err != nil || !addr.IsLoopback()) {
		// It shows every rule by name and has no login yet.
		r.fault(s, field, "the admin port asks for no login in this version: want a loopback address, as "+byDefault)
	}
	return s.Text
}

func (r *reader) upstream() *url.URL {
	v := r.root.Get("upstream")
	s := r.scalar(v, "WEIR_UPSTREAM")
	if !s.Set {
		if !v.Present() {
			r.faults = append(r.faults, rule.Fault{At: v.At(), Field: "upstream", Want: "is missing: want the URL of the API behind the gateway, as http://127.0.0.1:8090"})
		}
		return nil
	}
	if strings.Contains(s.Text, "@") {
		// Not shown: it may hold a password, wherever that ends.
		r.fault(rule.Scalar{At: s.At}, "upstream", "want http://host:port or https://host:port, no user")
		return nil
	}
	u, err := url.Parse(s.Text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		r.fault(s, "upstream", "want http://host:port or https://host:port")
		return nil
	}
	if !portInRange(u.Port()) {
		r.fault(s, "upstream", "want a port of 1 to 65535")
		return nil
	}
	if u.RawQuery != "" || u.Fragment != "" {
		r.fault(s, "upstream", "want no query or fragment")
		return nil
	}
	return u
}

// portInRange tells whether a URL's port, or the lack of one, can be connected to.
func portInRange(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

func (r *reader) prefix(s rule.Scalar, field string) netip.Prefix {
	if p, err := netip.ParsePrefix(s.Text); err == nil {
		if p.Addr() != p.Masked().Addr() {
			r.fault(s, field, "has bits past its length: want "+p.Masked().String())
		}
		if p.Bits() == 0 {
			r.fault(s, field, "trusts everybody: want the networks of your edges")
		}
		if p.Addr().Is4In6() { // peers' addresses are told without it
			r.fault(s, field, "would trust nobody: want an IPv4 network without ::ffff:, as 10.0.0.0/8")
		}
		return p.Masked()
	}
	if a, err := netip.ParseAddr(s.Text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	}
	r.fault(s, field, "want a network as 10.0.0.0/8, or an address")
	return netip.Prefix{}
}

func (r *reader) path(s rule.Scalar, field, byDefault string) string {
	switch {
	case !s.Set && byDefault == "":
		return ""
	case !s.Set:
		return filepath.Join(r.folder, byDefault)
	case s.Text == "":
		r.fault(s, field, "want the path of a file")
		return ""
	case filepath.IsAbs(s.Text), s.At.Line == 0: // the environment's paths are the working directory's
		return s.Text
	}
	return filepath.Join(r.folder, s.Text)
}
