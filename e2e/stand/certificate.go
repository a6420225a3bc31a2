package stand

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Certificate is a TLS certificate for 127.0.0.1 that signs itself, in files of a folder of its own.
type Certificate struct {
	Folder string
	pool   *x509.CertPool
	serial int64
}

// The names of a certificate's files.
const (
	certificateFile = "cert.pem"
	keyFile         = "key.pem"
)

// MakeCertificate writes a certificate and its key.
func MakeCertificate(t testing.TB) *Certificate {
	t.Helper()
	c := &Certificate{Folder: t.TempDir(), pool: x509.NewCertPool()}
	c.Renew(t)
	return c
}

// Renew puts another pair in place, each file by rename, the key first.
func (c *Certificate) Renew(t testing.TB) (serial int64) {
	t.Helper()
	finish := c.RenewKey(t)
	return finish()
}

// RenewKey puts another key in place, which does not fit the certificate until finish has put that in place too.
func (c *Certificate) RenewKey(t testing.TB) (finish func() (serial int64)) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(c.serial), Subject: pkix.Name{CommonName: "edge"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	c.pool.AddCert(own)
	write := func(name, kind string, content []byte) {
		t.Helper()
		writeFile(t, filepath.Join(c.Folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	write(keyFile, "PRIVATE KEY", keyDER)
	return func() int64 {
		t.Helper()
		write(certificateFile, "CERTIFICATE", der)
		return template.SerialNumber.Int64()
	}
}

// Trust is a client's configuration that believes this certificate, renewed or not.
func (c *Certificate) Trust() *tls.Config { return &tls.Config{RootCAs: c.pool} }
