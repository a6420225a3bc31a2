// Package limiter answers whether a request may go on.
//
// [Limiter.Check] is the one door: it finds the rules of a request, names their counters, asks the deny cache, then the
// store, and falls back to each rule's failure mode where the store has no answer. Doors only translate.
package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// Options are what a limiter is made of. All fields are required.
type Options struct {
	Store    Store
	Fallback Store // asked for rules whose counter cannot be: the same as Store where that is in this process
	// Deadline bounds a request to the store; 0 sets none, for a store in this process.
	Deadline time.Duration
	Secret   []byte              // keys the names of counters
	Now      func() limit.Micros // anchored wall clock: never steps back
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// Limiter is safe for concurrent use.
type Limiter struct {
	o      Options
	namer  *namer
	plan   atomic.Pointer[plan]
	works  sync.Pool // *work
	logged foreignLog
}

// New makes a limiter with a first release.
func New(o Options, first *rules.Release) *Limiter {
	l := &Limiter{o: o, namer: newNamer(o.Secret)}
	l.works.New = func() any { return &work{} }
	l.Use(first)
	return l
}

// Use puts a release in force. A request is answered by one release, whichever is in force when it begins. Remembered
// refusals go with the release they were made under.
func (l *Limiter) Use(r *rules.Release) {
	p := &plan{release: r, rules: make([]planned, r.Set.Len()), deny: denycache.New[Counter](denycache.DefaultSize)}
	for ru := range r.Set.Rules() {
		p.rules[ru.Index] = planned{name: ruleBytes(ru.Name, ru.Algorithm, ru.Limit.Window), metrics: l.o.Metrics.Rule(ru.Name)}
	}
	l.plan.Store(p)
	l.o.Metrics.SetRelease(r.Number, r.Content)
}

// Release is the one in force.
func (l *Limiter) Release() *rules.Release { return l.plan.Load().release }

// plan is a release made ready for checking.
type plan struct {
	release *rules.Release
	rules   []planned
	deny    *denycache.Cache[Counter]
}

// planned is what the checks of a rule need beside it.
type planned struct {
	name    [ruleSize]byte
	metrics *telemetry.Rule
}

// Check answers one request and charges it. All rules that apply must admit it, else none of them is charged.
// An error is a [*RequestError]: then nothing was asked or charged.
func (l *Limiter) Check(ctx context.Context, req Request) (Verdict, error) {
	if err := req.check(); err != nil {
		return Verdict{}, err
	}
	began := time.Now()
	w := l.works.Get().(*work)
	v := l.check(ctx, w, &req)
	l.works.Put(w)
	l.o.Metrics.DecisionDuration.Observe(time.Since(began).Seconds())
	return v, nil
}

func (l *Limiter) check(ctx context.Context, w *work, req *Request) Verdict {
	p := l.plan.Load()
	v := Verdict{Allowed: true, Deciding: -1, Release: p.release}
	w.find(l.namer, p, req)
	if len(w.charges) == 0 {
		return v
	}
	now := l.o.Now()
	v.Views = make([]header.View, 0, len(w.charges))
	if !req.Peek && l.denied(w, p, now, &v) { // a peek asks the store
		return v
	}
	l.ask(ctx, w, now)
	if l.o.Deadline > 0 {
		// The store decided somewhere on the way. Counted from the answer, a remembered refusal opens late by at most
		// that way, never early.
		now = l.o.Now()
	}
	admitted := w.admitted()
	for i := range w.charges {
		w.settle(i, p, now, admitted, &v)
	}
	v.conclude()
	return v
}

// denied answers from the deny cache if a rule that applies is in it.
func (l *Limiter) denied(w *work, p *plan, now limit.Micros, v *Verdict) bool {
	for i, c := range w.charges {
		d, pass, refused := p.deny.Enter(c.Counter, c.Cost, now)
		if w.passes[i] = pass; !refused {
			continue
		}
		v.Views = append(v.Views, w.view(i, d))
		w.rules[i].metrics.Count(refusal(d), telemetry.DenyCache)
	}
	if len(v.Views) == 0 {
		l.o.Metrics.DenyCacheMisses.Inc()
		return false
	}
	for i, c := range w.charges {
		p.deny.Leave(c.Counter, w.passes[i])
	}
	l.o.Metrics.DenyCacheHits.Inc()
	v.conclude()
	return true
}

func refusal(d limit.Decision) telemetry.Outcome {
	if d.RetryAfter == limit.Never {
		return telemetry.Never
	}
	return telemetry.Deny
}

// ask fills the outcomes of all charges: from the store, and by failure mode for those it has no answer for.
func (l *Limiter) ask(ctx context.Context, w *work, now limit.Micros) {
	if err := l.take(ctx, w, now, w.charges, w.outcomes); err != nil {
		l.o.Metrics.StoreErrors.WithLabelValues(reason(err)).Inc()
		w.fail(l.o.Fallback, now, w.others(nil), true)
		return
	}
	foreign := w.foreign()
	if len(foreign) == 0 {
		return
	}
	l.logged.tell(l.o.Log, w, foreign, now)
	l.o.Metrics.StoreErrors.WithLabelValues("foreign").Add(float64(len(foreign)))
	w.fail(l.o.Fallback, now, foreign, w.admitted())
	if !w.admitted() {
		return // nothing was charged: a foreign counter admits nothing
	}
	// The failure modes let it pass, so the others are to be charged after all.
	rest := w.others(foreign)
	if len(rest) == 0 {
		return
	}
	outcomes := make([]Outcome, len(rest))
	if err := l.take(ctx, w, now, w.pick(rest), outcomes); err != nil {
		l.o.Metrics.StoreErrors.WithLabelValues(reason(err)).Inc()
		w.fail(l.o.Fallback, now, rest, true)
	} else {
		for i, at := range rest {
			w.outcomes[at] = outcomes[i]
		}
	}
	if !w.admitted() {
		w.giveBack(l.o.Fallback, now)
	}
}

func (l *Limiter) take(ctx context.Context, w *work, now limit.Micros, charges []Charge, outcomes []Outcome) error {
	if l.o.Deadline > 0 {
		// Without the caller's cancellation: a client that goes away is no failure of the store, and would have its call
		// charged to the fallback instead.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.o.Deadline)
		defer cancel()
	}
	began := time.Now()
	w.call = Call{Now: now, Charges: charges, Outcomes: outcomes}
	err := l.o.Store.Take(ctx, &w.call)
	l.o.Metrics.StoreDuration.WithLabelValues("take").Observe(time.Since(began).Seconds())
	return err
}

func reason(err error) string {
	if failed, ok := errors.AsType[*StoreError](err); ok {
		return failed.Reason
	}
	return "other"
}

// conclude draws the verdict from the views and the codes that settle left.
func (v *Verdict) conclude() {
	v.Deciding = header.Tightest(v.Views)
	for i := range v.Views {
		if !v.Views[i].Decision.Allowed {
			v.Allowed = false
		}
	}
	if !v.Allowed && v.Code == "" {
		v.Code = header.RateLimited
	}
}

// Refund gives back what a call was charged: the cost at most, into the window that it was charged in, once. Refusals
// that are remembered of its counters are forgotten. A nil receipt is one of a call that was charged nothing.
func (l *Limiter) Refund(ctx context.Context, r *Receipt) error {
	if r == nil {
		return nil
	}
	r.call.Now = l.o.Now()
	if err := l.o.Store.Refund(ctx, &r.call); err != nil {
		return fmt.Errorf("refund a call: %w", err)
	}
	return nil
}
