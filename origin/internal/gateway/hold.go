package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

// hold lets an admitted call wait for its turn, in a room of its own, so that calls that wait keep none from passing. A
// call that cannot wait, or whose client did not, is given back what it was charged; then it reports false, and r is
// answered.
func (g *Gateway) hold(w http.ResponseWriter, r *http.Request, v *limiter.Verdict, inFlight *place) bool {
	if v.Hold > g.o.MaxHold || !g.held.enter() {
		g.refund(r, v)
		g.overloaded(w, r)
		return false
	}
	defer g.held.leave()
	g.o.Metrics.Held.Inc()
	defer g.o.Metrics.Held.Dec()
	inFlight.leave()
	switch {
	case !g.wait(r.Context(), v.Hold):
		g.refund(r, v)
		w.WriteHeader(statusClientGone)
		return false
	case !inFlight.take():
		g.refund(r, v)
		g.overloaded(w, r)
		return false
	}
	return true
}

// refund gives a call back that was admitted and will not be made.
func (g *Gateway) refund(r *http.Request, v *limiter.Verdict) {
	// The client that it was for may be gone.
	if err := g.o.Limiter.Refund(context.WithoutCancel(r.Context()), v.Receipt); err != nil {
		g.o.Metrics.StoreErrors.WithLabelValues("refund").Inc()
		g.o.Log.Debug("a call that was not made stays charged until its counter has freed it", "reason", err.Error())
	}
}

// waitFor waits until d has passed; false if ctx ended first.
func waitFor(ctx context.Context, d limit.Micros) bool {
	timer := time.NewTimer(time.Duration(d) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
