package decorate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/telemetry"
)

// Metered counts the time of every request to next, and by reason each one that failed or lost a part: a call of which
// three charges are lost to one dead part is three.
func Metered(next limiter.Store, m *telemetry.Metrics) limiter.Store {
	return &metered{next: next, errors: m.StoreErrors,
		take: m.StoreDuration.WithLabelValues("take"), refund: m.StoreDuration.WithLabelValues("refund"), reset: m.StoreDuration.WithLabelValues("reset")}
}

type metered struct {
	next                limiter.Store
	errors              *prometheus.CounterVec // reason
	take, refund, reset prometheus.Observer
}

func (m *metered) Take(ctx context.Context, c *limiter.Call) error {
	began := time.Now()
	err := m.next.Take(ctx, c)
	m.note(m.take, began, err)
	if err == nil {
		for i := range c.Outcomes {
			if o := &c.Outcomes[i]; o.Status == limiter.Lost {
				m.errors.WithLabelValues(reason(o.Err)).Inc()
			}
		}
	}
	return err
}

func (m *metered) Refund(ctx context.Context, c *limiter.Call) error {
	began := time.Now()
	err := m.next.Refund(ctx, c)
	m.note(m.refund, began, err)
	return err
}

func (m *metered) Reset(ctx context.Context, c *limiter.Call) error {
	began := time.Now()
	err := m.next.Reset(ctx, c)
	m.note(m.reset, began, err)
	return err
}

func (m *metered) note(duration prometheus.Observer, began time.Time, err error) {
	duration.Observe(time.Since(began).Seconds())
	if err != nil {
		m.errors.WithLabelValues(reason(err)).Inc()
	}
}
