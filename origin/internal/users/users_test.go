package users

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/origin/internal/users/userstest"
	"github.com/weirproject/weir/shared/header"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const issuerURL = "https://issuer.example"

// world is a verifier before real providers, in a bubble whose time the test moves.
type world struct {
	*Verifier
	t         *testing.T
	mu        sync.Mutex
	providers map[string]*userstest.Provider
	asked     atomic.Int64 // requests to providers
	metrics   *telemetry.Metrics
	log       *bytes.Buffer
}

// RoundTrip finds the provider by its host.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked.Add(1)
	w.mu.Lock()
	p := w.providers[r.URL.Scheme+"://"+r.URL.Host]
	w.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("dial %s: no such host", r.URL.Host)
	}
	return p.RoundTrip(r)
}

// add makes a provider reachable.
func (w *world) add(p *userstest.Provider) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.providers[p.URL] = p
}

func settings(url string) Issuer {
	return Issuer{URL: url, Audience: []string{"another", userstest.Audience}, Algorithms: DefaultAlgorithms, Leeway: 30 * time.Second,
		Claims: Claims{User: "sub", Tenant: "org.name", Tier: "https://example.com/tier"}}
}

// in runs test in a bubble, with the verifier running; edit may change its options.
func in(t *testing.T, edit func(*Options), test func(t *testing.T, w *world, p *userstest.Provider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := userstest.New(t, issuerURL)
		w := &world{t: t, providers: map[string]*userstest.Provider{issuerURL: p}, metrics: telemetry.New(), log: &bytes.Buffer{}}
		o := Options{Issuers: []Issuer{settings(issuerURL)}, Metrics: w.metrics.Tokens(Reasons), Transport: w, Log: slog.New(slog.NewTextHandler(w.log, nil))}
		if edit != nil {
			edit(&o)
		}
		w.Verifier = New(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.Run(ctx); close(ended) }()
		synctest.Wait()
		test(t, w, p)
		cancel()
		<-ended
		if text := w.log.String(); strings.Contains(text, "eyJ") || strings.Contains(text, "alice") {
			t.Errorf("a token or a subject is in the log:\n%s", text)
		}
	})
}

// want checks what comes of a token.
func (w *world) want(name, token string, subject string, why reason) {
	w.t.Helper()
	user, got := w.user(w.t.Context(), token)
	who := ""
	if user != nil {
		who = user.Subject
	}
	if who != subject || got != why {
		w.t.Errorf("%s: user %q, %q; want %q, %q", name, who, got, subject, why)
	}
}

func encode(part any) string {
	text, ok := part.(string)
	if !ok {
		content, _ := json.Marshal(part)
		text = string(content)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// forge makes a token of any header and claims: JSON as text, or what becomes it.
func forge(head, claims any, sign func(text string) []byte) string {
	text := encode(head) + "." + encode(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

func by(private *rsa.PrivateKey) func(string) []byte {
	return func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		s, err := rsa.SignPKCS1v15(nil, private, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return s
	}
}

type object = map[string]any

// claims are those of a good token, with changes; nil takes one away.
func claims(changes object) object {
	c := object{"iss": issuerURL, "sub": "mallory", "aud": userstest.Audience, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func TestATokenOfARealProviderTellsTheUser(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		p.SetClaims(object{"org": object{"name": "acme"}, "https://example.com/tier": "paid"})
		user, err := w.Verify(t.Context(), p.Token(t, "alice"))
		if err != nil || user == nil || *user != (identity.User{Issuer: issuerURL, Tenant: "acme", Subject: "alice", Tier: "paid"}) {
			t.Errorf("%+v, %v", user, err)
		}
	})
}

func TestHostileTokensTellNoUser(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		kid, private := p.Key()
		other, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(private.Public()))})
		hs := func(text string) []byte {
			m := hmac.New(sha256.New, public)
			m.Write([]byte(text))
			return m.Sum(nil)
		}
		rs := func(more object) object {
			h := object{"alg": "RS256", "kid": kid, "typ": "JWT"}
			for name, value := range more {
				h[name] = value
			}
			return h
		}
		now := time.Now()
		good := forge(rs(nil), claims(nil), by(private))
		w.want("a good one, so that the others differ from it in one thing", good, "mallory", "")
		parts := strings.Split(good, ".")

		for name, c := range map[string]struct {
			token string
			why   reason
		}{
			"nothing":                         {"", foreign},
			"an opaque token":                 {"gho_0123456789", foreign},
			"no signature":                    {parts[0] + "." + parts[1] + ".", malformedSignature},
			"two parts":                       {parts[0] + "." + parts[1], foreign},
			"five parts, as an encrypted one": {"a.b.c.d.e", foreign},
			"dots alone":                      {"..", malformed},
			"not base64":                      {"!." + parts[1] + "." + parts[2], malformed},
			"header that is no object":        {forge(`"RS256"`, claims(nil), by(private)), malformed},
			"header that is null":             {forge(`null`, claims(nil), by(private)), algorithm},
			"claims that are a list":          {forge(rs(nil), `[]`, by(private)), malformed},
			"not UTF-8":                       {forge(rs(nil), "{\"iss\":\""+issuerURL+"\",\"sub\":\"\xff\xfe\"}", by(private)), malformed},
			"truncated":                       {good[:len(good)-10], signature},
			"truncated claims":                {parts[0] + "." + parts[1][:20] + "." + parts[2], malformed},
			"claims changed":                  {parts[0] + "." + encode(claims(object{"sub": "root"})) + "." + parts[2], signature},
			"huge":                            {good + strings.Repeat("A", maxToken), tooLarge},
			"alg none":                        {forge(object{"alg": "none", "kid": kid}, claims(nil), func(string) []byte { return nil }), algorithm},
			"alg none, signed":                {forge(object{"alg": "none", "kid": kid}, claims(nil), by(private)), algorithm},
			"alg NoNe":                        {forge(object{"alg": "NoNe", "kid": kid}, claims(nil), by(private)), algorithm},
			"alg missing":                     {forge(object{"kid": kid}, claims(nil), by(private)), algorithm},
			"alg as a list":                   {forge(object{"alg": []string{"RS256"}, "kid": kid}, claims(nil), by(private)), malformed},
			"HS256 by the public key":         {forge(object{"alg": "HS256", "kid": kid}, claims(nil), hs), algorithm},
			"an algorithm that is not listed": {forge(object{"alg": "PS512", "kid": kid}, claims(nil), by(private)), algorithm},
			"another kind of key":             {forge(object{"alg": "ES256", "kid": kid}, claims(nil), by(private)), algorithm},
			"another key":                     {forge(rs(nil), claims(nil), by(other)), signature},
			"a key of its own":                {forge(rs(object{"jwk": object{"kty": "RSA", "n": encode(string(other.N.Bytes())), "e": "AQAB"}}), claims(nil), by(other)), signature},
			"jku":                             {forge(rs(object{"jku": "https://evil.example/keys"}), claims(nil), by(other)), signature},
			"x5u":                             {forge(rs(object{"x5u": "https://evil.example/cert"}), claims(nil), by(other)), signature},
			"x5c":                             {forge(rs(object{"x5c": []string{"bm90IGEgY2VydA=="}}), claims(nil), by(other)), malformedSignature},
			"an extension that must be known": {forge(rs(object{"crit": []string{"b64"}, "b64": false}), claims(nil), by(private)), signature},
			"kid twice":                       {forge(`{"alg":"RS256","kid":"x","kid":"`+kid+`"}`, claims(nil), by(private)), malformed},
			"kid as a number":                 {forge(object{"alg": "RS256", "kid": 1}, claims(nil), by(private)), malformed},
			"kid that is a path":              {forge(object{"alg": "RS256", "kid": "../../../../dev/null"}, claims(nil), by(other)), unknownKey},
			"kid that is a URL":               {forge(object{"alg": "RS256", "kid": "https://evil.example/key"}, claims(nil), by(other)), unknownKey},
			"kid that is a query":             {forge(object{"alg": "RS256", "kid": "x' UNION SELECT 'y"}, claims(nil), by(other)), unknownKey},
			"kid that is huge":                {forge(object{"alg": "RS256", "kid": strings.Repeat("k", 4000)}, claims(nil), by(other)), unknownKey},
			"kid that is empty":               {forge(object{"alg": "RS256", "kid": ""}, claims(nil), by(other)), unknownKey},
			"kid missing, another key":        {forge(object{"alg": "RS256"}, claims(nil), by(other)), signature},
			"expired":                         {forge(rs(nil), claims(object{"exp": now.Add(-31 * time.Second).Unix()}), by(private)), expired},
			"no expiry":                       {forge(rs(nil), claims(object{"exp": nil}), by(private)), claim},
			"expiry as a text":                {forge(rs(nil), claims(object{"exp": "never"}), by(private)), malformedSignature},
			"expiry without end":              {forge(rs(nil), `{"iss":"`+issuerURL+`","sub":"a","aud":"`+userstest.Audience+`","exp":1e300}`, by(private)), claim},
			"expiry below zero":               {forge(rs(nil), claims(object{"exp": -1}), by(private)), claim},
			"not yet valid":                   {forge(rs(nil), claims(object{"nbf": now.Add(24 * time.Hour).Unix()}), by(private)), early},
			"another audience":                {forge(rs(nil), claims(object{"aud": "billing"}), by(private)), audience},
			"other audiences":                 {forge(rs(nil), claims(object{"aud": []string{"billing", ""}}), by(private)), audience},
			"no audience":                     {forge(rs(nil), claims(object{"aud": nil}), by(private)), audience},
			"another issuer":                  {forge(rs(nil), claims(object{"iss": "https://evil.example"}), by(private)), foreign},
			"the issuer with a slash":         {forge(rs(nil), claims(object{"iss": issuerURL + "/"}), by(private)), foreign},
			"the issuer in capitals":          {forge(rs(nil), claims(object{"iss": strings.ToUpper(issuerURL)}), by(private)), foreign},
			"the issuer in a list":            {forge(rs(nil), claims(object{"iss": []string{issuerURL}}), by(private)), foreign},
			"no issuer":                       {forge(rs(nil), claims(object{"iss": nil}), by(private)), foreign},
			"the subject twice":               {forge(rs(nil), `{"iss":"`+issuerURL+`","aud":"`+userstest.Audience+`","exp":99999999999,"sub":"alice","sub":"root"}`, by(private)), malformed},
			"the issuer in two spellings":     {forge(rs(nil), `{"iss":"`+issuerURL+`","aud":"`+userstest.Audience+`","exp":99999999999,"sub":"alice","ISS":"https://evil.example"}`, by(private)), malformedSignature},
			"no subject":                      {forge(rs(nil), claims(object{"sub": nil}), by(private)), claim},
			"an empty subject":                {forge(rs(nil), claims(object{"sub": ""}), by(private)), claim},
			"a subject of two lines":          {forge(rs(nil), claims(object{"sub": "a\nb"}), by(private)), claim},
			"a long subject":                  {forge(rs(nil), claims(object{"sub": strings.Repeat("s", 256)}), by(private)), claim},
			"a subject that is a list":        {forge(rs(nil), claims(object{"sub": []string{"a"}}), by(private)), malformedSignature},
			"a tenant with a bar":             {forge(rs(nil), claims(object{"org": object{"name": "a|b"}}), by(private)), claim},
			"a tenant that is an object":      {forge(rs(nil), claims(object{"org": object{"name": object{}}}), by(private)), claim},
			"a tier with a space":             {forge(rs(nil), claims(object{"https://example.com/tier": "paid up"}), by(private)), claim},
		} {
			w.want(name, c.token, "", c.why)
			w.want(name+", once more", c.token, "", c.why)
			time.Sleep(refusedFor + apart) // of the bubble: what was remembered of it is not, and the issuer may be asked
			synctest.Wait()
		}
		if n := p.Fetches(); n > 12 {
			t.Errorf("the keys were fetched %d times", n)
		}
	})
}

// malformedSignature is the reason where the library says no, whatever it did not like.
const malformedSignature = signature

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestLeewayAndOddButGoodTokensPass(t *testing.T) {
	in(t, func(o *Options) { o.Issuers[0].Parties = []string{"app"} }, func(t *testing.T, w *world, p *userstest.Provider) {
		kid, private := p.Key()
		now := time.Now()
		for name, c := range map[string]struct {
			head, changes object
			subject       string
			why           reason
		}{
			"expired within the leeway":   {nil, object{"exp": now.Add(-29 * time.Second).Unix()}, "mallory", good},
			"early within the leeway":     {nil, object{"nbf": now.Add(29 * time.Second).Unix()}, "mallory", good},
			"an expiry with parts":        {nil, object{"exp": float64(now.Unix()) + 100.9}, "mallory", good},
			"one of several audiences":    {nil, object{"aud": []any{"x", userstest.Audience}}, "mallory", good},
			"no kid where one key is":     {object{"alg": "RS256"}, nil, "mallory", good},
			"a tenant that is a number":   {nil, object{"org": object{"name": 42}}, "mallory", good},
			"a tenant past what is exact": {nil, object{"org": object{"name": 1 << 53}}, "", claim},
			"a claim that is null":        {nil, object{"org": nil}, "mallory", good},
			"another party":               {nil, object{"azp": "evil"}, "", party},
			"no party":                    {nil, object{"azp": nil}, "", party},
		} {
			if c.head == nil {
				c.head = object{"alg": "RS256", "kid": kid}
			}
			all := claims(object{"azp": "app"})
			for n, v := range claims(c.changes) {
				all[n] = v
			}
			if _, told := c.changes["azp"]; told && c.changes["azp"] == nil {
				delete(all, "azp")
			}
			w.want(name, forge(c.head, all, by(private)), c.subject, c.why)
		}
	})
}

func TestATokenIsRememberedNoLongerThanItHolds(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		p.SetLife(time.Minute)
		token := p.Token(t, "alice")
		w.want("at first", token, "alice", good)
		time.Sleep(59 * time.Second)
		w.want("from memory", token, "alice", good)
		if n := metric(t, w.metrics, `weir_token_cache_total`, "hit"); n != 1 {
			t.Errorf("%v hits, want 1", n)
		}
		time.Sleep(time.Second) // expired, within the leeway: good, verified each time
		w.want("at its end", token, "alice", good)
		w.want("at its end", token, "alice", good)
		if n := metric(t, w.metrics, `weir_token_cache_total`, "miss"); n != 3 {
			t.Errorf("%v misses, want 3", n)
		}
		time.Sleep(30 * time.Second)
		w.want("after the leeway", token, "", expired)
	})
}

func TestARotatedKeyIsFetchedOnceAndAWithdrawnOneStopsCounting(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		old := p.Token(t, "alice")
		w.want("before", old, "alice", good)
		p.Rotate(t, "second")
		fresh := p.Token(t, "alice")
		time.Sleep(apart) // since the first fetch
		before := p.Fetches()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { w.want("a new key", fresh, "alice", good) })
		}
		all.Wait()
		if n := p.Fetches() - before; n != 1 {
			t.Errorf("%d fetches for a new key, want 1", n)
		}
		// The provider does not name the old key any more: what it signed counts no longer, remembered or not.
		w.want("the old key", old, "", unknownKey)
	})
}

// A client can make up keys at will; the issuer is asked for them once in a while.
func TestForgedKeysDoNotHammerTheIssuer(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		_, private := p.Key()
		before := p.Fetches()
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			w.want("forged", forge(object{"alg": "RS256", "kid": fmt.Sprint("k", i)}, claims(nil), by(private)), "", unknownKey)
		}
		if n := p.Fetches() - before; n > 6 || n < 5 {
			t.Errorf("%d fetches in 60 s, want one each %v", n, apart)
		}
		w.want("a good one beside them", p.Token(t, "alice"), "alice", good)
	})
}

func TestAnIssuerThatIsDownAtTheStartIsRecoveredFrom(t *testing.T) {
	in(t, func(o *Options) { o.Issuers = append(o.Issuers, settings("https://down.example")) }, func(t *testing.T, w *world, p *userstest.Provider) {
		late := userstest.New(t, "https://down.example")
		token := late.Token(t, "bob")
		w.want("down", token, "", issuerDown)
		if _, err := w.Verify(t.Context(), token); !refuses(err, header.LimiterUnavailable, "") {
			t.Errorf("answered %v", err)
		}
		w.want("the other issuer", p.Token(t, "alice"), "alice", good)
		if up := gauge(t, w.metrics, "https://down.example"); up != 0 {
			t.Errorf("weir_issuer_up %v", up)
		}
		if s := w.Standings(); len(s) != 2 || s[0].Issuer != "https://down.example" || s[0].Up || s[0].Keys != 0 || !s[1].Up || s[1].Keys == 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(10 * time.Minute)
		w.add(late)
		time.Sleep(lastRetry + fetchTime) // asked again by then
		synctest.Wait()
		w.want("up", late.Token(t, "bob"), "bob", good)
		if up := gauge(t, w.metrics, late.URL); up != 1 {
			t.Errorf("weir_issuer_up %v", up)
		}
		if s := w.Standings(); !s[0].Up || s[0].Keys == 0 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(w.log.String(), "cannot be asked"); n != 1 {
			t.Errorf("%d lines for one outage:\n%s", n, w.log)
		}
	})
}

// The waits between two tries double up to a minute, and are not the same for all.
func TestAnIssuerThatIsDownIsNotHammered(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		p.SetLife(3 * time.Hour)
		known := p.Token(t, "alice")
		p.Rotate(t, "second")
		unknown := p.Token(t, "alice")
		p.SetDown(true)
		time.Sleep(fresh)
		w.asked.Store(0)
		time.Sleep(time.Hour)
		if n := w.asked.Load(); n < 55 || n > 85 {
			t.Errorf("%d tries in an hour, want 60 to 80", n)
		}
		// Its tokens go on by the keys that were known; of others nothing can be said.
		w.want("known", known, "alice", good)
		w.want("unknown", unknown, "", unknownKey)
		p.SetDown(false)
		time.Sleep(lastRetry + fetchTime)
		synctest.Wait()
		w.want("after it came back", p.Token(t, "alice"), "alice", good)
		p.SetDown(true)
		p.SetLife(100 * time.Hour)
		long := p.Token(t, "alice")
		time.Sleep(stale - time.Hour)
		w.want("a night later", long, "alice", good)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		w.want("keys of yesterday", long, "", issuerDown)
	})
}

func TestAnIssuersKeyDoesNotSpeakForAnother(t *testing.T) {
	in(t, func(o *Options) { o.Issuers = append(o.Issuers, settings("https://b.example")) }, func(t *testing.T, w *world, a *userstest.Provider) {
		b := userstest.New(t, "https://b.example")
		w.add(b)
		time.Sleep(lastRetry)
		synctest.Wait()
		w.want("b's own", b.Token(t, "bob"), "bob", good)
		_, private := b.Key()
		kid, _ := a.Key()
		w.want("a's user by b's key", forge(object{"alg": "RS256", "kid": kid}, claims(nil), by(private)), "", signature)
	})
}

func TestCallersOfOneTokenVerifyItOnce(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		token, entered, release := p.Token(t, "alice"), atomic.Int64{}, make(chan struct{})
		w.verified = func() { entered.Add(1); <-release }
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { w.want("together", token, "alice", good) })
		}
		// One whose client goes away meanwhile is let go.
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan reason)
		synctest.Wait()
		go func() { _, why := w.user(ctx, token); gone <- why }()
		synctest.Wait()
		cancel()
		if why := <-gone; why != interrupted {
			t.Errorf("a caller that went away: %q", why)
		}
		close(release)
		all.Wait()
		if n := entered.Load(); n != 1 {
			t.Errorf("%d verifications, want 1", n)
		}
	})
}

// A flood of tokens that differ takes its share of the processors and no more, and is told that it is too much.
func TestAFloodOfBadTokensIsBounded(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		cached := p.Token(t, "alice")
		w.want("before", cached, "alice", good)
		var at, most atomic.Int64
		release := make(chan struct{})
		w.verified = func() {
			if n := at.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-release
			at.Add(-1)
		}
		slots := cap(w.verifying.slots)
		const sent = 1000
		answers := make(chan reason, sent)
		for i := range sent {
			go func() {
				_, why := w.user(t.Context(), fmt.Sprintf("a%d.b.c", i))
				answers <- why
			}()
		}
		synctest.Wait()
		if n := len(answers); n != sent-slots-waiting {
			t.Errorf("%d answered at once, want all but %d at work and %d waiting", n, slots, waiting)
		}
		w.want("one that is remembered, meanwhile", cached, "alice", good)
		close(release)
		counts := map[reason]int{}
		for range sent {
			counts[<-answers]++
		}
		if counts[overloaded] != sent-slots-waiting || counts[malformed] != slots+waiting || most.Load() > int64(slots) {
			t.Errorf("%v, at most %d at once", counts, most.Load())
		}
		if !refuses(w.answer(overloaded), header.Overloaded, "") {
			t.Error("overload is answered otherwise")
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	in(t, func(o *Options) { o.Cache = 100 }, func(t *testing.T, w *world, p *userstest.Provider) {
		for i := range refusedCache + 2000 {
			w.user(t.Context(), fmt.Sprintf("a%d.b.c", i))
		}
		for i := range 200 {
			w.want("good", p.Token(t, fmt.Sprint("user", i)), fmt.Sprint("user", i), good)
		}
		w.bad.CleanUp()
		w.good.CleanUp()
		if n := w.bad.EstimatedSize(); n > refusedCache {
			t.Errorf("%d refused tokens remembered", n)
		}
		if n := w.good.EstimatedSize(); n > 100 {
			t.Errorf("%d good tokens remembered", n)
		}
	})
}

func TestPolicySaysWhoIsRefused(t *testing.T) {
	for _, c := range []struct {
		why    reason
		policy Policy
		code   header.Code
		asks   string
	}{
		{signature, Policy{}, header.TokenInvalid, `Bearer error="invalid_token"`},
		{expired, Policy{}, header.TokenInvalid, `Bearer error="invalid_token", error_description="the token has expired"`},
		{tooLarge, Policy{AnonymousInvalid: true}, "", ""},
		{foreign, Policy{}, "", ""},
		{foreign, Policy{RefuseForeign: true, AnonymousInvalid: true}, header.TokenInvalid, `Bearer error="invalid_token"`},
		{issuerDown, Policy{}, header.LimiterUnavailable, ""},
		{issuerDown, Policy{AnonymousDown: true}, "", ""},
		{overloaded, Policy{AnonymousInvalid: true, AnonymousDown: true}, header.Overloaded, ""},
	} {
		v := New(Options{Policy: c.policy, Metrics: telemetry.New().Tokens(nil)})
		if err := v.answer(c.why); c.code == "" && err != nil || c.code != "" && !refuses(err, c.code, c.asks) {
			t.Errorf("%s under %+v: %v", c.why, c.policy, err)
		}
	}
}

func refuses(err error, code header.Code, challenge string) bool {
	r, ok := err.(*identity.Refusal)
	return ok && *r == identity.Refusal{Code: code, Challenge: challenge}
}

// An issuer over TLS, whose certificate is no authority's that the system knows.
func TestAnIssuerIsAskedOverTLSUnderItsOwnAuthority(t *testing.T) {
	var p *userstest.Provider
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.ServeHTTP(w, r) }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // a handshake that fails is meant to
	server.StartTLS()
	defer server.Close()
	p = userstest.New(t, server.URL)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for _, c := range []struct {
		ca  *x509.CertPool
		why reason
	}{{pool, good}, {nil, issuerDown}} {
		s := settings(server.URL)
		s.CA = c.ca
		v := New(Options{Issuers: []Issuer{s}, Metrics: telemetry.New().Tokens(Reasons)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { v.Run(ctx); close(ended) }()
		if _, why := v.user(t.Context(), p.Token(t, "alice")); why != c.why { // waits for the first fetch
			t.Errorf("%q, want %q", why, c.why)
		}
		cancel()
		<-ended
	}
}

func gauge(t *testing.T, m *telemetry.Metrics, issuer string) float64 {
	t.Helper()
	return metric(t, m, "weir_issuer_up", issuer)
}

// metric is the value of the series whose only label has a value.
func metric(t *testing.T, m *telemetry.Metrics, name, label string) float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == name && s.GetLabel()[0].GetValue() == label {
				return s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %s", name, label)
	return 0
}
