package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// DefaultUpstreamTimeout is how long the API may take to begin its answer.
	DefaultUpstreamTimeout = time.Minute
	minUpstreamTimeout     = time.Millisecond
	maxUpstreamTimeout     = time.Hour
	// maxRetryJitter is as much as a client may be kept waiting for the sake of others.
	maxRetryJitter = time.Hour
)

// Gateway holds what the gateway's behaviour hangs on beside the rules.
type Gateway struct {
	// UpstreamTimeout bounds the wait for the head of the API's answer, from the end of the request on.
	UpstreamTimeout time.Duration
	// RetryJitter spreads the waits that refused clients are told; 0: none.
	RetryJitter time.Duration
}

// TLS is how a port speaks TLS.
type TLS struct {
	Cert, Key string // files, PEM
	ClientCA  string // file of the authorities of peers' certificates; empty: peers are not asked for one
}

// Files are the files that make up the port's identity, in the order of certificate.Parse.
func (t *TLS) Files() []string {
	if t.ClientCA == "" {
		return []string{t.Cert, t.Key}
	}
	return []string{t.Cert, t.Key, t.ClientCA}
}

func (r *reader) gateway() Gateway {
	return Gateway{
		UpstreamTimeout: r.duration(r.root.Get("upstream-timeout"), "WEIR_UPSTREAM_TIMEOUT", "upstream-timeout", DefaultUpstreamTimeout, minUpstreamTimeout, maxUpstreamTimeout),
		RetryJitter:     r.duration(r.root.Get("retry-jitter"), "WEIR_RETRY_JITTER", "retry-jitter", 0, 0, maxRetryJitter),
	}
}

// duration reads a time within bounds.
func (r *reader) duration(v document.Value, env, field string, byDefault, least, most time.Duration) time.Duration {
	s := r.scalar(v, env)
	if !s.Set {
		return byDefault
	}
	d, err := time.ParseDuration(s.Text)
	if err != nil || d < least || d > most {
		r.fault(s, field, fmt.Sprintf("want %v to %v", least, most))
		return byDefault
	}
	return d
}

// gatewayTLS is nil where the port speaks clear text.
func (r *reader) gatewayTLS() *TLS {
	v := r.root.Get("tls")
	gateway := v.Fields("gateway").Get("gateway")
	fields := gateway.Fields("cert", "key", "client-ca")
	read := func(name, env string) (string, bool) {
		s := r.scalar(fields.Get(name), env)
		return r.path(s, "tls.gateway."+name, ""), s.Set
	}
	t := &TLS{}
	var certSet, keySet, caSet bool
	t.Cert, certSet = read("cert", "WEIR_TLS_GATEWAY_CERT")
	t.Key, keySet = read("key", "WEIR_TLS_GATEWAY_KEY")
	t.ClientCA, caSet = read("client-ca", "WEIR_TLS_GATEWAY_CLIENT_CA")
	if !certSet && !keySet && !caSet {
		if v.Present() && !r.doc.Broken() {
			v.Fault("want gateway: {cert: FILE, key: FILE}")
		}
		return nil
	}
	if (!certSet || !keySet) && !r.doc.Broken() {
		r.faults = append(r.faults, rule.Fault{At: gateway.At(), Field: "tls.gateway", Want: "want cert and key, each the path of a PEM file"})
	}
	return t
}

// edgeName is a DNS name or a URI, as a certificate's subject alternative names hold them.
var edgeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// maxEdgeName is as long as a DNS name can be, and more than a SPIFFE id of any size seen.
const maxEdgeName = 2048

// edgeNames are the names of edges' certificates: they need authorities that are asked for.
func (r *reader) edgeNames(t *TLS) (names []string) {
	for i, s := range r.list(r.trust.Get("edge-names"), "WEIR_TRUST_EDGE_NAMES") {
		field := "trust.edge-names[" + strconv.Itoa(i) + "]"
		u, err := url.Parse(s.Text)
		switch {
		case len(s.Text) > maxEdgeName, !edgeName.MatchString(s.Text) && (err != nil || u.Scheme == "" || u.Host == "" || !strings.Contains(s.Text, "://")):
			r.fault(s, field, "want a DNS name as edge-1.example.com, or a URI as spiffe://example.com/edge, of a certificate's subject alternative names")
		case t == nil || t.ClientCA == "":
			r.fault(s, field, "needs tls.gateway.client-ca: without it no peer is asked for a certificate")
		default:
			names = append(names, s.Text)
		}
	}
	return names
}
