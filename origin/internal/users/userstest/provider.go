// Package userstest runs a real OpenID Connect provider in a test.
package userstest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Audience is what the provider's tokens are for.
const Audience = "weir-test-api"

// Provider is zitadel's OpenID Provider on a storage in memory, which gives a JWT to every client that asks for one: the
// subject is the client's id. Its handler answers discovery, keys and tokens.
type Provider struct {
	URL string

	handler http.Handler
	store   *store
	fetches atomic.Int64
	down    atomic.Bool
}

// New makes a provider that calls itself url.
func New(t testing.TB, url string) *Provider {
	t.Helper()
	p := &Provider{URL: url, store: &store{Storage: &storage.Storage{}, life: time.Hour}}
	p.Rotate(t, "first")
	provider, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}}, p.store, op.StaticIssuer(url),
		op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	p.handler = provider
	return p
}

func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	if r.URL.Path == "/keys" {
		p.fetches.Add(1)
	}
	p.handler.ServeHTTP(w, r)
}

// RoundTrip implements [http.RoundTripper]: the provider without a network, on whatever clock the caller is.
func (p *Provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != p.URL {
		return nil, errors.New("no such host")
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

// SetDown makes the provider answer with 503, or properly again.
func (p *Provider) SetDown(down bool) { p.down.Store(down) }

// Fetches is how often its keys were asked for.
func (p *Provider) Fetches() int { return int(p.fetches.Load()) }

// pool are the keys of all providers of a test binary: making one takes longer than most tests do.
var pool struct {
	sync.Mutex
	keys [6]*rsa.PrivateKey
	next int
}

// Rotate replaces the key that signs by another one. It is returned for forgeries. The sixth after it is the same again.
func (p *Provider) Rotate(t testing.TB, id string) *rsa.PrivateKey {
	t.Helper()
	pool.Lock()
	defer pool.Unlock()
	private := &pool.keys[pool.next%len(pool.keys)]
	pool.next++
	if *private == nil {
		var err error
		if *private, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	p.store.set(func(s *store) { s.key = signingKey{id, *private} })
	return *private
}

// Key is the key that signs.
func (p *Provider) Key() (id string, private *rsa.PrivateKey) {
	k := p.store.current()
	return k.id, k.private
}

// SetClaims are what the tokens say beside the standard claims, and SetLife how long they hold.
func (p *Provider) SetClaims(claims map[string]any) {
	p.store.set(func(s *store) { s.claims = claims })
}

// SetLife is how long tokens hold.
func (p *Provider) SetLife(life time.Duration) { p.store.set(func(s *store) { s.life = life }) }

// Token gets a token for a subject by the client credentials grant.
func (p *Provider) Token(t testing.TB, subject string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"openid"}}
	r := httptest.NewRequest(http.MethodPost, p.URL+"/oauth/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(url.QueryEscape(subject), "secret")
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	var got struct {
		Token string `json:"access_token"`
	}
	body, _ := io.ReadAll(w.Result().Body)
	if err := json.Unmarshal(body, &got); err != nil || got.Token == "" {
		t.Fatalf("the provider gives no token: %d %s", w.Code, body)
	}
	return got.Token
}

// store is the example's, with clients of any name, JWTs, and keys that can be rotated.
type store struct {
	*storage.Storage

	mu     sync.Mutex
	key    signingKey
	claims map[string]any
	life   time.Duration
}

func (s *store) set(change func(*store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *store) current() signingKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) { return s.current(), nil }

func (s *store) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{publicKey{s.current()}}, nil
}

func (s *store) ClientCredentials(_ context.Context, id, _ string) (op.Client, error) {
	return client{storage.WebClient(id, "secret")}, nil
}

func (s *store) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{Audience}, Scopes: scopes}, nil
}

func (s *store) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rand.Text(), time.Now().Add(s.life), nil
}

func (s *store) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, nil
}

type client struct{ *storage.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (client) GrantTypes() []oidc.GrantType { return []oidc.GrantType{oidc.GrantTypeClientCredentials} }

type signingKey struct {
	id      string
	private *rsa.PrivateKey
}

func (k signingKey) ID() string                                  { return k.id }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k signingKey) Key() any                                    { return k.private }

type publicKey struct{ signingKey }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.private.Public() }
