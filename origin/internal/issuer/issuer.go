// Package issuer is an OpenID Connect issuer to look at Weir with: it makes a token for whoever asks.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/weirproject/weir/origin/internal/keys"
)

const (
	// Audience is what the tokens are for.
	Audience = "weir-demo-api"
	// TokenPath is where tokens are asked for.
	TokenPath = "/token"
	// DefaultLife is how long a token holds that nobody said more of, and MaxLife the longest.
	DefaultLife = time.Hour
	MaxLife     = 24 * time.Hour

	keysPath = "/keys"
	maxForm  = 4 << 10
	maxUser  = 255
)

// Who is whom a token is for. Tenant and tier may be empty.
type Who struct{ User, Tenant, Tier string }

// check tells what is wrong with who.
func (w Who) check() error {
	if w.User == "" || len(w.User) > maxUser || !utf8.ValidString(w.User) {
		return fmt.Errorf("user %q: want 1 to %d characters", w.User, maxUser)
	}
	for _, c := range w.User {
		if c < ' ' || c == 0x7f {
			return fmt.Errorf("user %q: want no control characters", w.User)
		}
	}
	for field, name := range map[string]string{"tenant": w.Tenant, "tier": w.Tier} {
		if name != "" && keys.CheckName(name) != nil {
			return fmt.Errorf("%s %q: %w", field, name, keys.ErrName)
		}
	}
	return nil
}

// Issuer signs with a key of its own, which ends with it. It is safe for concurrent use.
type Issuer struct {
	url    string
	key    jose.JSONWebKey // public
	signer jose.Signer
	mux    *http.ServeMux
}

// New makes an issuer that is reached at url.
func New(url string) (*Issuer, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	id := rand.Text()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: id}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("make a signer: %w", err)
	}
	i := &Issuer{url: url, signer: signer, mux: http.NewServeMux(),
		key: jose.JSONWebKey{Key: private.Public(), KeyID: id, Use: "sig", Algorithm: string(jose.ES256)}}
	i.mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	i.mux.HandleFunc("GET "+keysPath, i.keys)
	i.mux.HandleFunc("POST "+TokenPath, i.token)
	return i, nil
}

// ServeHTTP answers discovery, keys and, to POST [TokenPath] with user, tenant, tier and for in a form, a token as text.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) { i.mux.ServeHTTP(w, r) }

// Token makes a token for who, from now on for so long, up to [MaxLife].
func (i *Issuer) Token(who Who, life time.Duration) (string, error) {
	if err := who.check(); err != nil {
		return "", err
	}
	if life < time.Second || life > MaxLife {
		return "", fmt.Errorf("for %v: want 1s to %v", life, MaxLife)
	}
	now := time.Now()
	claims := jwt.Claims{Issuer: i.url, Subject: who.User, Audience: jwt.Audience{Audience}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life))}
	more := struct {
		Tenant string `json:"tenant,omitempty"`
		Tier   string `json:"tier,omitempty"`
	}{who.Tenant, who.Tier}
	return jwt.Signed(i.signer).Claims(claims).Claims(more).Serialize()
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"issuer": i.url, "jwks_uri": i.url + keysPath, "token_endpoint": i.url + TokenPath, "authorization_endpoint": i.url + "/authorize",
		"response_types_supported": []string{"token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key}})
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // a client that is gone reads nothing
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	life := DefaultLife
	err := r.ParseForm()
	if text := r.PostForm.Get("for"); err == nil && text != "" {
		if life, err = time.ParseDuration(text); err != nil {
			err = errors.New("for " + text + ": want a time, as 1h")
		}
	}
	token := ""
	if err == nil {
		token, err = i.Token(Who{r.PostForm.Get("user"), r.PostForm.Get("tenant"), r.PostForm.Get("tier")}, life)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, token)
}
