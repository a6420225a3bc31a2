package envoyconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
)

// writePair writes a certificate that signs itself, and its key, into folder.
func writePair(t *testing.T, folder string) envoyconfig.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	chain, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := envoyconfig.Certificate{Chain: filepath.Join(folder, "cert.pem"), Key: filepath.Join(folder, "key.pem")}
	for path, block := range map[string]*pem.Block{c.Chain: {Type: "CERTIFICATE", Bytes: chain}, c.Key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// writeCertificate writes a resource with a pair of its own.
func writeCertificate(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	text, err := writePair(t, folder).Render()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "certificate.json")
	if err := envoyconfig.WriteDiscovery(path, text); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestACertificateThatEnvoyWouldRefuseIsNotRendered(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	good, strange := writePair(t, folder), writePair(t, other)
	beside := filepath.Join(folder, "strange.pem")
	text, err := os.ReadFile(strange.Key)
	if err == nil {
		err = os.WriteFile(beside, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		certificate envoyconfig.Certificate
		want        string
	}{
		"another's key":  {envoyconfig.Certificate{Chain: good.Chain, Key: beside}, "private key does not match"},
		"key elsewhere":  {envoyconfig.Certificate{Chain: good.Chain, Key: strange.Key}, "beside the certificate"},
		"no certificate": {envoyconfig.Certificate{Chain: filepath.Join(folder, "absent.pem"), Key: good.Key}, "absent.pem"},
		"the other way":  {envoyconfig.Certificate{Chain: good.Key, Key: good.Chain}, good.Key},
		"no paths":       {envoyconfig.Certificate{}, "want a file"},
	} {
		if out, err := c.certificate.Render(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q; rendered %s", name, err, c.want, out)
		}
	}
	if text, err := good.Render(); err != nil || strings.Contains(string(text), "PRIVATE") {
		t.Errorf("%v, or the resource holds the key:\n%s", err, text)
	}
}
