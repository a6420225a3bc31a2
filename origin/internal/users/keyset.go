package users

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Algorithms are those that a token may be signed with. All are asymmetric: whoever can verify a token must not be able to
// make one.
var Algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// DefaultAlgorithms are what issuers use.
var DefaultAlgorithms = []string{oidc.RS256, oidc.ES256, oidc.EdDSA}

// Bounds of a key set. A shorter RSA key is no secret; a longer one makes each verification dear.
const (
	maxKeys = 100
	minRSA  = 2048
	maxRSA  = 8192
)

// key is a public key of an issuer.
type key struct {
	id         string
	print      string   // tells whether it is the same as one before
	algorithms []string // that it verifies, of those that the issuer may use
	verifier   *oidc.IDTokenVerifier
	withdrawn  atomic.Bool // the issuer does not name it any more: what it signed does not count
}

// verifies tells whether the token's signature is the key's.
func (k *key) verifies(ctx context.Context, t *token) bool {
	_, err := k.verifier.Verify(ctx, t.text)
	return err == nil
}

// readKeys reads a JSON Web Key Set, leaving out what is not for verifying signatures or cannot be. Keys that were in
// before stay the same.
func readKeys(content []byte, issuer *Issuer, before []*key) ([]*key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("is no key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("holds %d keys: want at most %d", len(set.Keys), maxKeys)
	}
	var keys []*key
	for _, raw := range set.Keys {
		if k := readKey(raw, issuer, before); k != nil {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no key that verifies a signature by " + fmt.Sprint(issuer.Algorithms))
	}
	return keys, nil
}

func readKey(raw json.RawMessage, issuer *Issuer, before []*key) *key {
	var j jose.JSONWebKey
	if json.Unmarshal(raw, &j) != nil || !j.Valid() || !j.IsPublic() || j.Use != "" && j.Use != "sig" {
		return nil // of a kind that this version does not know, or for encryption
	}
	k := &key{id: j.KeyID}
	for _, algorithm := range issuer.Algorithms {
		if fits(j.Key, algorithm) && (j.Algorithm == "" || j.Algorithm == algorithm) {
			k.algorithms = append(k.algorithms, algorithm)
		}
	}
	thumbprint, err := j.Thumbprint(crypto.SHA256)
	if err != nil || len(k.algorithms) == 0 {
		return nil
	}
	k.print = fmt.Sprintf("%x %q %q", thumbprint, k.id, k.algorithms)
	if at := slices.IndexFunc(before, func(b *key) bool { return b.print == k.print }); at >= 0 {
		return before[at]
	}
	// The claims but iss are this package's to check: the library knows one audience, and a leeway of its own.
	k.verifier = oidc.NewVerifier(issuer.URL, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{j.Key}},
		&oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: k.algorithms})
	return k
}

// fits tells whether a key is one for an algorithm.
func fits(public any, algorithm string) bool {
	switch k := public.(type) {
	case *rsa.PublicKey:
		bits := k.N.BitLen()
		return (algorithm[0] == 'R' || algorithm[0] == 'P') && bits >= minRSA && bits <= maxRSA
	case *ecdsa.PublicKey:
		return algorithm == map[string]string{"P-256": oidc.ES256, "P-384": oidc.ES384, "P-521": oidc.ES512}[k.Params().Name]
	case ed25519.PublicKey:
		return algorithm == oidc.EdDSA
	}
	return false
}

// choose are the keys that may have signed a token. One without a kid must leave no choice: else each forgery would cost
// as many verifications as there are keys.
func choose(keys []*key, t *token) (chosen *key, why reason) {
	why = unknownKey
	for _, k := range keys {
		if t.hasKey && k.id != t.key {
			continue
		}
		if !slices.Contains(k.algorithms, t.algorithm) {
			if t.hasKey {
				why = algorithm
			}
			continue
		}
		if chosen != nil {
			return nil, unknownKey // ambiguous
		}
		chosen = k
	}
	if chosen == nil {
		return nil, why
	}
	return chosen, good
}
