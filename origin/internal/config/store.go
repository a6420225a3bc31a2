package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/shared/rule"
)

// Store says where counters live.
type Store struct {
	Valkey   *Valkey // nil: in this process's memory
	Deadline time.Duration
}

// Valkey is a standalone server, or a cluster.
type Valkey struct {
	Addresses []string // host:port; of a cluster some of its servers
	Cluster   bool
	DB        int         // 0 in a cluster
	TLS       *tls.Config // nil: none
	Strategy  string      // auto, function or commands
	Username  string      // "" is the server's default user
	password  string
	// PasswordFile is read at each connection, so that a password can change while the process runs; "": there is none.
	PasswordFile string
}

// Shown is the servers without user and password, for logs.
func (v Valkey) Shown() string {
	scheme := "valkey://"
	if v.TLS != nil {
		scheme = "valkeys://"
	}
	shown := scheme + strings.Join(v.Addresses, ",")
	if v.DB != 0 {
		shown += "/" + strconv.Itoa(v.DB)
	}
	if v.Cluster {
		shown += " (cluster)"
	}
	return shown
}

// Credentials are the user and the password as they are now; both empty if the server asks for none.
func (v Valkey) Credentials() (user, password string, err error) {
	if v.PasswordFile == "" {
		return v.Username, v.password, nil
	}
	content, err := readFile(v.PasswordFile)
	if err != nil {
		return "", "", fmt.Errorf("store.password-file: %w", err)
	}
	return v.Username, strings.TrimRight(string(content), "\r\n"), nil
}

// strategies are the names of how counters can be kept in Valkey.
var strategies = []string{"auto", "function", "commands"}

func (r *reader) readStore() Store {
	store := Store{Deadline: DefaultDeadline}
	if s := r.scalar(r.store.Get("url"), "WEIR_STORE_URL"); s.Set {
		store.Valkey = r.storeURL(s)
	}
	if s := r.scalar(r.store.Get("deadline"), "WEIR_STORE_DEADLINE"); s.Set {
		d, err := time.ParseDuration(s.Text)
		if err != nil || d < minDeadline || d > maxDeadline {
			r.fault(s, "store.deadline", fmt.Sprintf("want %v to %v", minDeadline, maxDeadline))
		}
		store.Deadline = d
	}
	v := store.Valkey
	if v == nil {
		v = &Valkey{} // what is written is checked all the same
	}
	r.storeServer(v)
	r.storeUser(v)
	r.storeTLS(v, store.Valkey != nil)
	return store
}

// storeServer reads what kind of server it is.
func (r *reader) storeServer(v *Valkey) {
	v.Strategy = strategies[0]
	if s := r.scalar(r.store.Get("strategy"), "WEIR_STORE_STRATEGY"); s.Set {
		if v.Strategy = s.Text; !slices.Contains(strategies, s.Text) {
			r.fault(s, "store.strategy", "want "+strings.Join(strategies, ", "))
		}
	}
	s := r.scalar(r.store.Get("cluster"), "WEIR_STORE_CLUSTER")
	switch {
	case s.Set && s.Text != "true" && s.Text != "false":
		r.fault(s, "store.cluster", "want true or false")
		return
	case !s.Set:
		s.At = r.store.Get("url").At()
	}
	v.Cluster = s.Text == "true"
	if len(v.Addresses) > 1 && !v.Cluster {
		r.faults = append(r.faults, rule.Fault{At: s.At, Field: "store.cluster", Value: s.Text, Want: "several servers in store.url are those of a cluster: want cluster: true, or one server"})
	}
	if v.DB != 0 && v.Cluster {
		r.fault(s, "store.cluster", "a cluster has no database but 0: want no /"+strconv.Itoa(v.DB)+" in store.url")
	}
}

// storeUser reads who the process is to the server, where the URL does not tell.
func (r *reader) storeUser(v *Valkey) {
	user := r.scalar(r.store.Get("username"), "WEIR_STORE_USERNAME")
	if user.Set {
		if v.Username != "" {
			r.fault(user, "store.username", "store.url names a user too: want one of the two")
		}
		v.Username = user.Text
	}
	s := r.scalar(r.store.Get("password-file"), "WEIR_STORE_PASSWORD_FILE")
	if path := r.path(s, "store.password-file", ""); path != "" {
		if v.password != "" {
			r.fault(s, "store.password-file", "store.url holds a password too: want one of the two")
		}
		v.PasswordFile = path
		if _, password, err := v.Credentials(); err != nil {
			r.fault(s, "store.password-file", "cannot be read: "+reason(err))
		} else if password == "" {
			r.fault(s, "store.password-file", "is empty: want the password")
		}
	}
	if v.Username != "" && v.password == "" && !s.Set {
		if !user.Set {
			user.At = r.store.Get("url").At()
		}
		r.faults = append(r.faults, rule.Fault{At: user.At, Field: "store.password-file", Want: "is missing: want the file of the user's password"})
	}
}

// storeTLS reads how the server is known by its certificate, and this process to it by its own.
func (r *reader) storeTLS(v *Valkey, used bool) {
	section := r.store.Get("tls")
	fields := section.Fields("ca", "cert", "key", "server-name")
	ca := r.scalar(fields.Get("ca"), "WEIR_STORE_TLS_CA")
	cert := r.scalar(fields.Get("cert"), "WEIR_STORE_TLS_CERT")
	key := r.scalar(fields.Get("key"), "WEIR_STORE_TLS_KEY")
	name := r.scalar(fields.Get("server-name"), "WEIR_STORE_TLS_SERVER_NAME")
	if v.TLS == nil {
		if used && (section.Present() || ca.Set || cert.Set || key.Set || name.Set) {
			section.Fault("is for TLS: want store.url to be valkeys://...")
		}
		v.TLS = &tls.Config{} // to check what is written
		defer func() { v.TLS = nil }()
	}
	v.TLS.MinVersion, v.TLS.ServerName = tls.VersionTLS12, name.Text
	if path := r.path(ca, "store.tls.ca", ""); path != "" {
		pem, err := readFile(path)
		v.TLS.RootCAs = x509.NewCertPool()
		if err != nil {
			r.fault(ca, "store.tls.ca", "cannot be read: "+reason(err))
		} else if !v.TLS.RootCAs.AppendCertsFromPEM(pem) {
			r.fault(ca, "store.tls.ca", "holds no certificate: want one or more as PEM")
		}
	}
	certPath, keyPath := r.path(cert, "store.tls.cert", ""), r.path(key, "store.tls.key", "")
	switch {
	case cert.Set != key.Set:
		s, field := cert, "store.tls.cert"
		if key.Set {
			s, field = key, "store.tls.key"
		}
		r.fault(s, field, "want cert and key, both or none")
	case certPath != "" && keyPath != "":
		if _, err := readPair(certPath, keyPath); err != nil {
			r.fault(cert, "store.tls.cert", "is no certificate with its key: "+err.Error())
		}
		// Read at each connection, so that a certificate can be renewed while the process runs.
		v.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := readPair(certPath, keyPath)
			return &pair, err
		}
	}
}

// storeURL reads memory:// or valkey[s]://[user:password@]host:port[,host:port...][/db]. No fault shows a password.
func (r *reader) storeURL(s rule.Scalar) *Valkey {
	const form = "want memory://, valkey://[user:password@]host:port[/db], or valkeys:// for TLS; of a cluster several host:port, separated by commas"
	scheme, rest, found := strings.Cut(s.Text, "://")
	authority, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(authority, "@")
	userinfo, hosts := authority[:max(at, 0)], authority[at+1:]
	hidden := rule.Scalar{At: s.At} // shows nothing where it is not clear what is the password
	if !found || strings.Contains(path, "@") {
		r.fault(hidden, "store.url", form)
		return nil
	}
	user, err := url.Parse("valkey://" + userinfo + "@host")
	if err != nil {
		r.fault(hidden, "store.url", "has an unreadable user or password: want special characters in them percent-encoded, as %40 for @")
		return nil
	}
	hidden.Text = scheme + "://" + strings.TrimSuffix(strings.TrimPrefix(user.Redacted(), "valkey://"), "host")
	if at < 0 {
		hidden.Text = scheme + "://"
	}
	hidden.Text += strings.TrimPrefix(rest, rest[:at+1])
	switch {
	case scheme == "memory" && rest == "":
		return nil
	case scheme == "valkey-cluster", scheme == "redis-cluster":
		r.fault(hidden, "store.url", "want valkey:// with store.cluster: true")
		return nil
	case scheme == "redis":
		r.fault(hidden, "store.url", "want valkey://")
		return nil
	case scheme == "rediss":
		r.fault(hidden, "store.url", "want valkeys://")
		return nil
	case scheme != "valkey" && scheme != "valkeys":
		r.fault(hidden, "store.url", form)
		return nil
	}
	v := &Valkey{Username: user.User.Username()}
	v.password, _ = user.User.Password()
	if scheme == "valkeys" {
		v.TLS = &tls.Config{}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("valkey://" + host)
		if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			r.fault(hidden, "store.url", form)
			return nil
		}
		if !portInRange(u.Port()) {
			r.fault(hidden, "store.url", "want a port of 1 to 65535")
			return nil
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		v.Addresses = append(v.Addresses, net.JoinHostPort(u.Hostname(), port))
	}
	if path != "" {
		n, err := strconv.ParseUint(path, 10, 16)
		if err != nil {
			r.fault(hidden, "store.url", "want a database number after the last /")
		}
		v.DB = int(n)
	}
	return v
}
