// Package users verifies bearer tokens of OpenID Connect issuers, which tell who the user of a request is.
package users

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
)

const (
	// maxToken bounds a token before anything of it is looked at: real ones take one or two kilobytes.
	maxToken = 8 << 10
	// DefaultCache is how many verified tokens are remembered: at some 300 bytes each, 15 MB.
	DefaultCache = 50_000
	// refusedCache is how many refused ones are, and for how long: enough that a client which goes on with one costs
	// nothing. A flood of distinct ones must not push out the good, which have a cache of their own.
	refusedCache = 10_000
	refusedFor   = 5 * time.Second
	// waiting bounds the requests that wait for a verification, theirs or another one's of the same token.
	waiting = 256
	// awaiting bounds those of them that wait for an issuer to tell of a key, and awaitFor each of them.
	awaiting = 64
	awaitFor = 2 * time.Second
)

// Options are what a verifier is made of. Issuers and Metrics are required.
type Options struct {
	Issuers []Issuer
	Policy  Policy
	Metrics *telemetry.Tokens
	Log     *slog.Logger
	Cache   int              // 0 stands for [DefaultCache]
	Now     func() time.Time // nil stands for [time.Now]
	// Transport carries requests to issuers; nil stands for HTTP under each issuer's certificate authorities.
	Transport http.RoundTripper
}

// Policy says how a request is answered whose token gives no user. The zero value refuses what is wrong, and takes what is
// for somebody else as nobody's.
type Policy struct {
	AnonymousInvalid bool // an invalid token is as none, rather than 401
	RefuseForeign    bool // a token that no configured issuer made, or that is no JWT, is 401, rather than as none
	AnonymousDown    bool // a token that cannot be verified, since its issuer's keys are not known, is as none, rather than 503
}

// Issuer is whose tokens are believed.
type Issuer struct {
	URL        string   // exactly as the tokens have it in iss
	Audience   []string // of which a token must be for one
	Algorithms []string // of [Algorithms]
	Parties    []string // of which azp must be one; empty for any
	Leeway     time.Duration
	Claims     Claims
	CA         *x509.CertPool // that the issuer's certificate must come from; nil for the system's
}

// Claims name the claims of a token that tell who the user is. A name that no claim has leads into objects at its dots, so
// that both "https://example.com/tenant" and "realm.tenant" can be said. An empty one is not asked for; User is required.
type Claims struct{ User, Tenant, Tier string }

// reason is why a token gave no user; it is a metric's label.
type reason string

const (
	good        reason = ""
	foreign     reason = "foreign"
	tooLarge    reason = "too_large"
	malformed   reason = "malformed"
	algorithm   reason = "algorithm"
	unknownKey  reason = "unknown_key"
	signature   reason = "signature"
	audience    reason = "audience"
	party       reason = "party"
	expired     reason = "expired"
	early       reason = "not_yet_valid"
	claim       reason = "claim"
	issuerDown  reason = "issuer_down"
	overloaded  reason = "overloaded"
	interrupted reason = "interrupted" // the caller went away
)

// Reasons are the values of the label reason.
var Reasons = []string{
	string(foreign), string(tooLarge), string(malformed), string(algorithm), string(unknownKey), string(signature), string(audience),
	string(party), string(expired), string(early), string(claim), string(issuerDown), string(overloaded), string(interrupted),
}

// kept tells whether the answer to a token stays the same for a while.
func (r reason) kept() bool {
	switch r {
	case early, issuerDown, overloaded, interrupted:
		return false
	}
	return true
}

// id is a token's SHA-256: what is remembered of it.
type id [sha256.Size]byte

// known is a verified token.
type known struct {
	user  *identity.User
	key   *key // that signed it
	until time.Time
}

// refused is a token that gave no user.
type refused struct {
	why   reason
	until time.Time
}

// Verifier implements [identity.Verifier]. It knows no issuer's keys until [Verifier.Run] has fetched them.
type Verifier struct {
	o       Options
	issuers map[string]*issuer
	good    *otter.Cache[id, known]
	bad     *otter.Cache[id, refused]

	verifying *gate // at work on a token
	following *gate // waiting for the verification of the same token by another
	asking    *gate // waiting for an issuer's keys

	mu      sync.Mutex
	flights map[id]*flight

	verified func() // called within a verification, for tests; nil outside them
}

// flight is a verification at work, for all who show its token.
type flight struct {
	done chan struct{}
	user *identity.User
	why  reason
}

// New makes a verifier.
func New(o Options) *Verifier {
	if o.Cache == 0 {
		o.Cache = DefaultCache
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	v := &Verifier{
		o: o, issuers: map[string]*issuer{}, flights: map[id]*flight{},
		good: otter.Must(&otter.Options[id, known]{MaximumSize: o.Cache}),
		bad:  otter.Must(&otter.Options[id, refused]{MaximumSize: refusedCache}),
		// Half of the processors: a flood of tokens that must all be looked at leaves the other half to everybody else.
		verifying: newGate(max(1, runtime.GOMAXPROCS(0)/2), waiting),
		following: newGate(waiting, 0),
		asking:    newGate(awaiting, 0),
	}
	for i := range o.Issuers {
		made := newIssuer(&o.Issuers[i], o)
		v.issuers[made.URL] = made
	}
	return v
}

// Run fetches the issuers' keys, and keeps them, until ctx ends.
func (v *Verifier) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, i := range v.issuers {
		running.Go(func() { i.run(ctx) })
	}
	running.Wait()
}

// Standing is how an issuer stands.
type Standing struct {
	Issuer string
	Up     bool // it told its keys when it was asked last
	Keys   int  // that tokens are verified by, also while it is not up
}

// Standings are all issuers as they stand, by their names.
func (v *Verifier) Standings() (all []Standing) {
	for _, url := range slices.Sorted(maps.Keys(v.issuers)) {
		i := v.issuers[url]
		s := Standing{Issuer: url, Up: i.asked.Load()}
		if known := i.keys.Load(); known != nil {
			s.Keys = len(*known)
		}
		all = append(all, s)
	}
	return all
}

// Verify implements [identity.Verifier]. A token that it has seen is answered from memory, without an allocation; of one
// that it has not, the signature is checked once for all who show it at the same time.
func (v *Verifier) Verify(ctx context.Context, token string) (*identity.User, error) {
	user, why := v.user(ctx, token)
	if why == good {
		return user, nil
	}
	v.o.Metrics.Rejected(string(why))
	return nil, v.answer(why)
}

var (
	errInvalid    = &identity.Refusal{Code: header.TokenInvalid, Challenge: `Bearer error="invalid_token"`}
	errExpired    = &identity.Refusal{Code: header.TokenInvalid, Challenge: `Bearer error="invalid_token", error_description="the token has expired"`}
	errDown       = &identity.Refusal{Code: header.LimiterUnavailable}
	errOverloaded = &identity.Refusal{Code: header.Overloaded}
)

// answer is the refusal by policy, nil where the request goes on as nobody's.
func (v *Verifier) answer(why reason) error {
	anonymous, refusal := v.o.Policy.AnonymousInvalid, errInvalid
	switch why {
	case foreign:
		anonymous = !v.o.Policy.RefuseForeign
	case issuerDown:
		anonymous, refusal = v.o.Policy.AnonymousDown, errDown
	case overloaded, interrupted:
		anonymous, refusal = false, errOverloaded
	case expired:
		refusal = errExpired // the one thing that a client can mend by itself
	}
	if anonymous {
		return nil
	}
	return refusal
}

// user is a token's user, from memory if it can be.
func (v *Verifier) user(ctx context.Context, token string) (*identity.User, reason) {
	if len(token) > maxToken {
		return nil, tooLarge
	}
	var room [maxToken]byte
	sum := id(sha256.Sum256(room[:copy(room[:], token)]))
	now := v.o.Now()
	if k, ok := v.good.GetIfPresent(sum); ok && now.Before(k.until) && !k.key.withdrawn.Load() {
		v.o.Metrics.Hit.Inc()
		return k.user, good
	}
	if r, ok := v.bad.GetIfPresent(sum); ok && now.Before(r.until) {
		v.o.Metrics.HitRefused.Inc()
		return nil, r.why
	}
	v.o.Metrics.Miss.Inc()

	v.mu.Lock()
	f, flying := v.flights[sum]
	if !flying {
		f = &flight{done: make(chan struct{})}
		v.flights[sum] = f
	}
	v.mu.Unlock()
	if flying {
		return v.follow(ctx, f)
	}
	defer func() { // also if a library panics: the others must not wait for ever
		v.mu.Lock()
		delete(v.flights, sum)
		v.mu.Unlock()
		close(f.done)
	}()
	f.why = overloaded
	// Others may depend on it: it does not end with the client that happened to be first.
	f.user, f.why = v.fly(context.WithoutCancel(ctx), sum, token)
	return f.user, f.why
}

// follow waits for the verification of the same token that another request began.
func (v *Verifier) follow(ctx context.Context, f *flight) (*identity.User, reason) {
	if !v.following.enter(ctx) {
		return nil, overloaded
	}
	defer v.following.leave()
	select {
	case <-f.done:
		return f.user, f.why
	case <-ctx.Done():
		return nil, interrupted
	}
}

// fly verifies a token and remembers what came of it. Where its key is not known, the issuer is asked once, if it may be.
func (v *Verifier) fly(ctx context.Context, sum id, token string) (*identity.User, reason) {
	k, from, why := v.verify(ctx, token)
	if why == unknownKey || why == issuerDown {
		if attempt := from.ask(); attempt != nil {
			if !v.asking.enter(ctx) {
				return nil, overloaded
			}
			timer := time.NewTimer(awaitFor)
			select {
			case <-attempt:
			case <-timer.C:
			}
			timer.Stop()
			v.asking.leave()
			k, _, why = v.verify(ctx, token)
		}
	}
	switch {
	case why == good:
		v.good.Set(sum, k)
	case why.kept():
		v.bad.Set(sum, refused{why, v.o.Now().Add(refusedFor)})
	}
	return k.user, why
}

// verify verifies a token by what is known of its issuer, which it tells as far as it can.
func (v *Verifier) verify(ctx context.Context, token string) (known, *issuer, reason) {
	if !v.verifying.enter(ctx) {
		return known{}, nil, overloaded
	}
	defer v.verifying.leave()
	if v.verified != nil {
		v.verified()
	}
	t, why := read(token)
	if why != good {
		return known{}, nil, why
	}
	from := v.issuers[t.issuer]
	if from == nil {
		return known{}, nil, foreign
	}
	k, why := from.verify(ctx, t, v.o.Now())
	return k, from, why
}
