package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Tokens counts what comes of users' bearer tokens.
type Tokens struct {
	Hit, HitRefused, Miss prometheus.Counter // of the memory of tokens

	rejected *prometheus.CounterVec // reason
	up       *prometheus.GaugeVec   // issuer
}

// Gauge is a metric that goes up and down.
type Gauge = prometheus.Gauge

// Tokens makes the metrics of tokens, once a process. The series appear with it, at zero.
func (m *Metrics) Tokens(reasons []string) *Tokens {
	t := &Tokens{rejected: counters(m, "weir_tokens_rejected_total", "Bearer tokens that gave no user, whether the request was refused for it or went on as nobody's.", "reason")}
	for _, reason := range reasons {
		t.rejected.WithLabelValues(reason)
	}
	cache := counters(m, "weir_token_cache_total", "Bearer tokens that were answered from memory (hit, hit_refused), or had to be verified (miss).", "result")
	t.Hit, t.HitRefused, t.Miss = cache.WithLabelValues("hit"), cache.WithLabelValues("hit_refused"), cache.WithLabelValues("miss")
	t.up = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_issuer_up", Help: "1 while an issuer of users tells its keys."}, []string{"issuer"})
	m.Registry.MustRegister(t.up)
	return t
}

// Rejected counts a token that gave no user.
func (t *Tokens) Rejected(reason string) { t.rejected.WithLabelValues(reason).Inc() }

// Issuer is the gauge of an issuer.
func (t *Tokens) Issuer(url string) Gauge { return t.up.WithLabelValues(url) }
