// Package certificatetest issues certificates for tests.
package certificatetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Authority issues certificates, for peers on loopback.
type Authority struct {
	Pool *x509.CertPool // it alone
	PEM  []byte         // its certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate with its key.
type Pair struct{ Cert, Key []byte } // PEM

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Pool: x509.NewCertPool()}
	about := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = about, newKey(t)
	der := a.sign(t, about, a.key, time.Now().Add(time.Hour))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.PEM = cert, encode("CERTIFICATE", der)
	a.Pool.AddCert(cert)
	return a
}

// Issue makes a certificate that is valid for an hour, for names: each a DNS name or a URI.
func (a *Authority) Issue(t testing.TB, names ...string) Pair {
	t.Helper()
	return a.IssueUntil(t, time.Now().Add(time.Hour), names...)
}

// IssueUntil is as Issue, with its last moment.
func (a *Authority) IssueUntil(t testing.TB, until time.Time, names ...string) Pair {
	t.Helper()
	about := &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if !strings.Contains(name, "://") {
			about.DNSNames = append(about.DNSNames, name)
			continue
		}
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		about.URIs = append(about.URIs, u)
	}
	key := newKey(t)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{encode("CERTIFICATE", a.sign(t, about, key, until)), encode("PRIVATE KEY", private)}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(t testing.TB, about *x509.Certificate, key *ecdsa.PrivateKey, until time.Time) []byte {
	t.Helper()
	var err error
	if about.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	about.NotBefore, about.NotAfter = until.Add(-25*time.Hour), until
	der, err := x509.CreateCertificate(rand.Reader, about, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// TLS is the pair as a client or a server shows it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
