package users

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/telemetry"
)

// Times of an issuer's keys.
const (
	// fresh is how long keys are used before they are fetched again: a key that the issuer withdraws counts as long.
	fresh = 15 * time.Minute
	// stale is how long those of an issuer that cannot be reached are used on: it may be down for a night.
	stale = 24 * time.Hour
	// apart is the least time between two fetches that tokens of unknown keys ask for, which anybody can make up. So
	// long may the first users of a new key be refused, if somebody does.
	apart = 10 * time.Second
	// backoff of an issuer that cannot be reached doubles from firstRetry to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// issuer is an issuer with its keys.
type issuer struct {
	*Issuer
	client *http.Client
	log    *slog.Logger
	up     telemetry.Gauge
	asked  atomic.Bool // its keys were fetched, the last time that was tried
	now    func() time.Time
	keys   atomic.Pointer[[]*key] // nil: not known
	wanted chan struct{}          // somebody asks for a fetch

	mu       sync.Mutex
	attempt  chan struct{} // closed when the fetch at hand, or the next, has ended
	began    bool          // it is at hand
	finished time.Time     // when the last one had ended; zero before the first
}

func newIssuer(settings *Issuer, o Options) *issuer {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &issuer{
		Issuer: settings, client: newClient(settings, o.Transport), log: log.With("issuer", settings.URL), up: o.Metrics.Issuer(settings.URL), now: o.Now,
		wanted: make(chan struct{}, 1), attempt: make(chan struct{}),
	}
}

// verify verifies a token of this issuer.
func (i *issuer) verify(ctx context.Context, t *token, now time.Time) (known, reason) {
	if !slices.Contains(i.Algorithms, t.algorithm) {
		return known{}, algorithm
	}
	all := i.keys.Load()
	if all == nil {
		return known{}, issuerDown
	}
	k, why := choose(*all, t)
	if why != good {
		return known{}, why
	}
	if !k.verifies(ctx, t) {
		return known{}, signature
	}
	expiry, why := t.check(i.Issuer, now)
	if why != good {
		return known{}, why
	}
	user := &identity.User{Issuer: i.URL}
	for _, c := range []struct {
		path     string
		into     *string
		required bool
	}{{i.Claims.User, &user.Subject, true}, {i.Claims.Tenant, &user.Tenant, false}, {i.Claims.Tier, &user.Tier, false}} {
		if c.path == "" {
			continue
		}
		text, ok := t.name(c.path)
		if !ok || c.required && text == "" {
			return known{}, claim
		}
		*c.into = text
	}
	// Both stand where names stand: in the rules, and between bars in a user's.
	for _, name := range []string{user.Tenant, user.Tier} {
		if name != "" && keys.CheckName(name) != nil {
			return known{}, claim
		}
	}
	return known{user, k, expiry}, good
}

// ask is closed once keys have been asked for, for a token of which the key is not known; nil if they may not be asked
// for now.
func (i *issuer) ask() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.began, i.finished.IsZero():
	case i.keys.Load() == nil, i.now().Sub(i.finished) < apart:
		return nil // who is down is asked in time without being asked for it
	default:
		select {
		case i.wanted <- struct{}{}:
		default:
		}
	}
	return i.attempt
}

// run fetches the keys and keeps them fresh until ctx ends. It alone fetches, so that there is one fetch at a time.
func (i *issuer) run(ctx context.Context) {
	defer i.client.CloseIdleConnections()
	i.up.Set(0)
	failures := 0
	var confirmed time.Time
	for {
		i.mu.Lock()
		i.began = true
		select { // this fetch is for who asked so far
		case <-i.wanted:
		default:
		}
		i.mu.Unlock()

		err := i.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		next := jitter(fresh)
		if err == nil {
			if failures > 0 {
				i.log.Info("an issuer of users answers")
			}
			failures, confirmed = 0, i.now()
			i.up.Set(1)
			i.asked.Store(true)
		} else {
			next = jitter(min(lastRetry, firstRetry<<min(failures, 10)))
			failures++
			i.up.Set(0)
			i.asked.Store(false)
			if failures == 1 {
				i.log.Warn("an issuer of users cannot be asked for its keys: tokens are verified by those known, if any", "reason", short(err.Error()))
			}
			if all := i.keys.Load(); all != nil && i.now().Sub(confirmed) > stale {
				i.log.Error("the keys of an issuer of users are too old to be believed: none of its tokens is verified")
				i.use(nil)
			}
		}

		i.mu.Lock()
		i.began, i.finished = false, i.now()
		close(i.attempt)
		i.attempt = make(chan struct{})
		i.mu.Unlock()

		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-i.wanted:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// use puts keys in force, nil for none. What was signed by others does not count from here on.
func (i *issuer) use(all []*key) {
	if before := i.keys.Load(); before != nil {
		for _, k := range *before {
			if !slices.Contains(all, k) {
				k.withdrawn.Store(true)
			}
		}
	}
	if all == nil {
		i.keys.Store(nil)
		return
	}
	i.keys.Store(&all)
}

// jitter is d or up to a fifth less, so that processes that were started together do not ask together for ever.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5) }

// short is the beginning of an error's text, which may hold an issuer's answer.
func short(text string) string { return text[:min(len(text), 200)] }
