package envoyconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Certificate is the discovery resource of the listener's TLS certificate. It names files and holds no secret itself.
type Certificate struct {
	Chain string // path of the certificate with its intermediates, PEM
	Key   string // path of the private key, PEM, in the same folder
}

// Render is the resource as the JSON file that Envoy's file discovery reads. A pair that does not fit is refused here,
// since Envoy tells about a refused certificate only in its log.
func (c Certificate) Render() ([]byte, error) {
	for field, path := range map[string]string{"cert": c.Chain, "key": c.Key} {
		if path == "" {
			return nil, wrong(field, path, "a file")
		}
	}
	chain, err := filepath.Abs(c.Chain)
	if err != nil {
		return nil, err
	}
	key, err := filepath.Abs(c.Key)
	if err != nil {
		return nil, err
	}
	if filepath.Dir(chain) != filepath.Dir(key) {
		return nil, wrong("key", c.Key, "a file beside the certificate, since Envoy watches that folder for renewals")
	}
	chainText, err := os.ReadFile(chain)
	if err != nil {
		return nil, err
	}
	keyText, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	if _, err := tls.X509KeyPair(chainText, keyText); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.Chain, c.Key, err)
	}
	version := sha256.Sum256([]byte(chain + "\x00" + key))
	return execute(certificateTemplate, map[string]any{
		"Version":     hex.EncodeToString(version[:8]),
		"Certificate": chain,
		"Key":         key,
		"Folder":      filepath.Dir(chain),
	})
}
