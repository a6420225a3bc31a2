package valkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TLS is a server behind TLS. Valkey's own TLS is a build option that the fetched binary lacks, so a listener in front of
// it, in the test's process, ends the encryption.
type TLS struct {
	*Server
	TLSAddr string // host:port; the certificate is for 127.0.0.1 and localhost
	// CAFile is the certificate, as PEM, of the authority that was made for this test; CertFile and KeyFile are a
	// client's, from the same one.
	CAFile, CertFile, KeyFile string
}

// StartTLS starts a Valkey that is to be reached by TLS; mutual makes it refuse clients without a certificate. args are
// more options of the server.
func StartTLS(t testing.TB, mutual bool, args ...string) *TLS {
	t.Helper()
	ca := newAuthority(t)
	dir := t.TempDir()
	s := &TLS{Server: Start(t, args...),
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "client.pem"), KeyFile: filepath.Join(dir, "client.key")}
	writePEM(t, s.CAFile, "CERTIFICATE", ca.certificate.Raw)
	client := ca.issue(t, "client", x509.ExtKeyUsageClientAuth)
	writePEM(t, s.CertFile, "CERTIFICATE", client.Certificate[0])
	key, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, s.KeyFile, "PRIVATE KEY", key)

	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server", x509.ExtKeyUsageServerAuth)}, ClientCAs: roots}
	if mutual {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	s.TLSAddr = l.Addr().String()
	s.serve(t, l)
	return s
}

// serve hands connections on to the server in plain until the test ends.
func (s *TLS) serve(t testing.TB, l net.Listener) {
	var done sync.WaitGroup
	var mu sync.Mutex
	open, ended := map[net.Conn]bool{}, false
	carry := func(from, to net.Conn) {
		io.Copy(to, from)
		from.Close()
		to.Close()
		mu.Lock()
		delete(open, from)
		mu.Unlock()
	}
	done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Addr)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open[client], open[server] = true, true
			if ended {
				client.Close()
				server.Close()
			}
			mu.Unlock()
			done.Go(func() { carry(client, server) })
			done.Go(func() { carry(server, client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		ended = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		done.Wait()
	})
}

// authority issues certificates for one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "valkeytest authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

func (a *authority) issue(t testing.TB, name string, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
