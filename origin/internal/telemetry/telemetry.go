// Package telemetry counts what a process does, for Prometheus.
package telemetry

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Outcome is how a rule's decision came out.
type Outcome uint8

// The outcomes. Open and Closed are the rule's failure mode answering in place of its counter. A shadow rule that would
// have refused counts ShadowDeny, one that was not asked ShadowSkipped.
const (
	Allow Outcome = iota
	Deny
	Open
	Closed
	Never
	ShadowDeny
	ShadowSkipped
	outcomes
)

var outcomeNames = [outcomes]string{"allow", "deny", "open", "closed", "never", "shadow_deny", "shadow_skipped"}

// Source is what answered.
type Source uint8

// The sources.
const (
	DenyCache Source = iota
	Store
	Local
	sources
)

var sourceNames = [sources]string{"deny_cache", "store", "local"}

// buckets of decision and store times in seconds: around the 1 ms that a decision may add and the 10 ms that it may wait.
var buckets = []float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 1}

// Metrics are the metrics of one process. Label values come from configuration only, never from a client.
type Metrics struct {
	Registry *prometheus.Registry

	DecisionDuration prometheus.Histogram
	StoreDuration    *prometheus.HistogramVec // op
	StoreCommands    *prometheus.CounterVec   // command
	StoreErrors      *prometheus.CounterVec   // reason
	StoreUp          prometheus.Gauge
	GiveBacks        *prometheus.CounterVec // result
	BreakerState     *prometheus.GaugeVec   // shard
	ClockOffset      *prometheus.GaugeVec   // shard
	LiveProcesses    prometheus.Gauge
	Uncounted        prometheus.Gauge
	DenyCacheHits    prometheus.Counter
	DenyCacheMisses  prometheus.Counter
	KeysRejected     *prometheus.CounterVec // reason
	Overflowed       prometheus.Counter
	FileRefused      *prometheus.CounterVec // file
	FileStale        *prometheus.GaugeVec   // file
	Keys             prometheus.Gauge
	Upstream         *prometheus.CounterVec // class
	Overloaded       prometheus.Counter
	Held             prometheus.Gauge
	Tunnels          prometheus.Gauge

	decisions *prometheus.CounterVec // rule, outcome, source
	near      *prometheus.CounterVec // rule
	penalties *prometheus.CounterVec // rule
	release   *prometheus.GaugeVec   // release, content

	mu    sync.Mutex
	rules map[string]*Rule
}

// Rule counts the decisions of one rule.
type Rule struct {
	NearLimit prometheus.Counter // calls that left little
	Penalties prometheus.Counter // refusals that a penalty made longer
	counters  [outcomes][sources]prometheus.Counter
}

// Count adds one decision. It does not allocate.
func (r *Rule) Count(o Outcome, s Source) { r.counters[o][s].Inc() }

// New makes the metrics with their own registry, to which Go's and the process's are added.
func New() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), rules: map[string]*Rule{}}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.decisions = counters(m, "weir_decisions_total", "Decisions by rule: an admitted call counts for each rule that applied, a refused one for the rules that refused it. A shadow rule counts allow or shadow_deny for what it would have said, shadow_skipped where it was not asked.", "rule", "outcome", "source")
	m.near = counters(m, "weir_near_limit_total", "Admitted calls that leave less than 10 % of the rule's quota to their caller.", "rule")
	m.penalties = counters(m, "weir_penalties_total", "Refusals that the rule's penalty made longer.", "rule")
	m.DecisionDuration = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_decision_duration_seconds", Help: "Time of one check over all rules, store included.", Buckets: buckets})
	m.StoreDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_store_request_duration_seconds", Help: "Time of one request to the store.", Buckets: buckets}, []string{"op"})
	m.StoreCommands = counters(m, "weir_store_commands_total", "Commands sent to the store.", "command")
	m.StoreErrors = counters(m, "weir_store_errors_total", "Failed requests to the store, and counters in it that are not ours (foreign).", "reason")
	m.StoreUp = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_store_up", Help: "1 while the store answers."})
	m.GiveBacks = counters(m, "weir_store_give_backs_total", "Slots of a cluster that were asked to give back what they charged for a call that another refused: done, failed, dropped because too many were under way.", "result")
	m.BreakerState = gauges(m, "weir_breaker_state", "State of a server's breaker: 0 closed, 1 probing, 2 open.", "shard")
	m.ClockOffset = gauges(m, "weir_clock_offset_seconds", "How far a server's clock is ahead of this process's.", "shard")
	m.LiveProcesses = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_live_processes", Help: "Live processes that share the store, this one included, as they were counted last."})
	m.LiveProcesses.Set(1)
	m.Uncounted = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_processes_uncounted", Help: "1 while the store answers, but does not count the live processes: their number is an old one."})
	m.Registry.MustRegister(m.LiveProcesses, m.Uncounted)
	denyCache := counters(m, "weir_deny_cache_total", "Checks that found a refusal in the deny cache, or none.", "result")
	m.DenyCacheHits, m.DenyCacheMisses = denyCache.WithLabelValues("hit"), denyCache.WithLabelValues("miss")
	m.KeysRejected = counters(m, "weir_keys_rejected_total", "Requests refused for their API key, before any counter was touched.", "reason")
	for _, reason := range []string{"key_unknown", "key_malformed", "key_conflict"} {
		m.KeysRejected.WithLabelValues(reason)
	}
	m.Overflowed = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_memory_overflow_total", Help: "Decisions on a counter that principals share because the memory store is full."})
	m.release = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_release_info", Help: "1 for the release in force."}, []string{"release", "content"})
	m.FileRefused = counters(m, "weir_file_refused_total", "Changed files that were refused; the last good content stayed in force.", "file")
	m.FileStale = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_file_stale", Help: "1 while a file's newest content is refused."}, []string{"file"})
	m.Keys = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_keys", Help: "API keys known."})
	m.Upstream = counters(m, "weir_upstream_responses_total", "Responses of the API by class; unreachable where there was none, timeout where it came too late.", "class")
	m.Overloaded = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_overloaded_total", Help: "Requests refused because too many were in flight."})
	m.Held = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_held_calls", Help: "Admitted calls that wait for their turn in a leaky queue."})
	m.Tunnels = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_tunnels", Help: "Upgraded connections, as websockets, that are open."})
	m.Registry.MustRegister(m.Held, m.Tunnels)
	m.Registry.MustRegister(m.DecisionDuration, m.StoreDuration, m.StoreUp, m.Overflowed, m.release, m.FileStale, m.Keys, m.Overloaded)
	return m
}

func counters(m *Metrics, name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.Registry.MustRegister(v)
	return v
}

func gauges(m *Metrics, name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.Registry.MustRegister(v)
	return v
}

// Rule is the counters of a rule, which live on across releases. The series appear with the rule, at zero, so that
// a rate over the first refusal is right.
func (m *Metrics) Rule(name string) *Rule {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.rules[name]; ok {
		return r
	}
	r := &Rule{NearLimit: m.near.WithLabelValues(name), Penalties: m.penalties.WithLabelValues(name)}
	for o := range outcomes {
		for s := range sources {
			r.counters[o][s] = m.decisions.WithLabelValues(name, outcomeNames[o], sourceNames[s])
		}
	}
	m.rules[name] = r
	return r
}

// SetRelease tells which release is in force.
func (m *Metrics) SetRelease(number uint64, content string) {
	m.release.Reset()
	m.release.WithLabelValues(strconv.FormatUint(number, 10), content).Set(1)
}
