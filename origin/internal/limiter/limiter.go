// Package limiter answers whether a request may go on.
//
// [Limiter.Check] is the one door: it finds the rules of a request, names their counters, asks what it remembers of
// them, then the store, and falls back to each rule's failure mode where the store has no answer. Doors only translate.
package limiter

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/origin/internal/penalty"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Options are what a limiter is made of. Fields are required where nothing else is said.
type Options struct {
	Store    Store
	Fallback Store               // asked for rules whose counter cannot be; in this process, so that it always answers
	Secret   []byte              // keys the names of counters
	Rotation *Rotation           // nil: Secret replaces no other
	Now      func() limit.Micros // anchored wall clock: never steps back
	// Slot tells which counters Store can charge in one step; nil: all of them.
	Slot func(*Counter) uint32
	// Processes is how many processes share the limits, this one included, as far as is known: each falls back to its [Share]
	// of them. It must be quick. nil: this one alone.
	Processes func() int64
	// Announce tells the other processes to [Limiter.Forget] counters; nil: there are none. It must not block.
	Announce func([]Counter)
	// RetryJitter spreads the waits that refused callers are told, each by a part of its own: see [header.Jitter]. 0: none.
	RetryJitter limit.Micros
	Metrics     *telemetry.Metrics
	Log         *slog.Logger
}

// Limiter is safe for concurrent use. Close it when no call is left.
type Limiter struct {
	o         Options
	namer     *namer
	plan      atomic.Pointer[plan]
	penalties *penalty.Book[Counter]
	works     sync.Pool // *work
	logged    foreignLog
	aside     aside
}

// New makes a limiter with a first release.
func New(o Options, first *rules.Release) *Limiter {
	l := &Limiter{o: o, namer: newNamer(o.Secret, o.Rotation), penalties: penalty.New[Counter](penalty.DefaultSize)}
	l.works.New = func() any { return &work{} }
	l.aside.slots = make(chan struct{}, maxAside)
	l.Use(first)
	return l
}

// Close waits for what shadow rules still ask the store.
func (l *Limiter) Close() { l.aside.calls.Wait() }

// Use puts a release in force. A request is answered by one release, whichever is in force when it begins. Remembered
// refusals go with the release they were made under; penalties stay with the counters that they are about.
func (l *Limiter) Use(r *rules.Release) {
	p := &plan{release: r, rules: make([]planned, r.Set.Len()), deny: denycache.New[Counter](denycache.DefaultSize), newcomers: map[string]*newcomers{}}
	before := l.plan.Load()
	for ru := range r.Set.Rules() {
		come := &newcomers{}
		if before != nil && before.newcomers[ru.Name] != nil {
			come = before.newcomers[ru.Name]
		}
		p.newcomers[ru.Name] = come
		p.rules[ru.Index] = planned{
			name: ruleBytes(ru.Name, ru.Algorithm, ru.Limit.Window), newcomers: come, room: roomFor(ru.Limit.Window), scope: scopeOf(ru.Terms),
		}
		if ru.Where == rule.Origin { // the edge's are no series of an origin
			p.rules[ru.Index].metrics = l.o.Metrics.Rule(ru.Name)
		}
	}
	l.plan.Store(p)
	l.o.Metrics.SetRelease(r.Number, r.Content)
}

// Release is the one in force.
func (l *Limiter) Release() *rules.Release { return l.plan.Load().release }

// plan is a release made ready for checking.
type plan struct {
	release   *rules.Release
	rules     []planned
	deny      *denycache.Cache[Counter]
	newcomers map[string]*newcomers // by rule, to go over to the next release
}

// planned is what the checks of a rule need beside it.
type planned struct {
	name      [ruleSize]byte
	metrics   *telemetry.Rule
	newcomers *newcomers
	room      uint64 // of newcomers
	scope     string // of its hints, "" if an edge could not tell whom one is about
}

// scopeOf is how an edge knows the principal of a rule by itself: as the key or the address of a stream.
func scopeOf(t *rule.Terms) string {
	if len(t.By) == 1 && len(t.By[0]) == 1 && (t.By[0][0] == rule.Key || t.By[0][0] == rule.Address) {
		return t.By[0][0].String()
	}
	return ""
}

// Check answers one request and charges it. All enforced rules that apply must admit it, else none of them is charged.
// Shadow rules are decided and charged beside, each for itself. An error is a [*RequestError]: then nothing was asked or
// charged.
func (l *Limiter) Check(ctx context.Context, req Request) (Verdict, error) {
	if err := req.check(); err != nil {
		return Verdict{}, err
	}
	began := time.Now()
	w := l.works.Get().(*work)
	w.req = req // a pointer would have each request allocated
	v := l.check(ctx, w)
	w.clear()
	l.works.Put(w)
	l.o.Metrics.DecisionDuration.Observe(time.Since(began).Seconds())
	return v, nil
}

func (l *Limiter) check(ctx context.Context, w *work) Verdict {
	p := l.plan.Load()
	v := Verdict{Allowed: true, Deciding: -1, Release: p.release}
	w.find(l.namer, p)
	if len(w.charges) == 0 {
		return v
	}
	now := l.o.Now()
	if w.enforced > 0 {
		v.Views = make([]header.View, 0, w.enforced)
	}
	if !l.remembered(w, p, now) {
		l.ask(ctx, w, p, now)
		// The store decided somewhere on the way. Counted from the answer, a remembered refusal opens late by at most
		// that way, never early.
		now = l.o.Now()
	}
	l.settle(w, p, now, &v)
	return v
}
