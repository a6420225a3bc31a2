package main

import (
	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
)

// metric is a metric of the host. One that the host would not define stays silent: no count is worth a refusal.
type metric struct {
	id      uint32
	defined bool
}

func define(kind abi.MetricKind, name string) metric {
	id, status := abi.DefineMetric(kind, name)
	return metric{id, status == abi.OK}
}

// one adds 1; Envoy's counters must never be incremented by 0.
func (m metric) one() {
	if m.defined {
		abi.Increment(m.id, 1)
	}
}

// set records a gauge. It is set and never added to: each VM starts anew at each push.
func (m metric) set(value uint64) {
	if m.defined {
		abi.Record(m.id, value)
	}
}

// metrics are the filter's, named as they appear in Envoy's /stats.
type metrics struct {
	allowed      [2]metric // by edge.Class
	denied       [len(codes)]metric
	casExhausted metric
	badBundles   metric
	recoveries   metric
	release      metric
	lease        metric
}

// define makes known what depends on no rule. The host finds metrics by name, so a second start finds the first's.
func (m *metrics) define() {
	for _, class := range []edge.Class{edge.Anonymous, edge.Valid} {
		m.allowed[class] = define(abi.Counter, "weir_edge_allowed."+class.String())
	}
	m.casExhausted = define(abi.Counter, "weir_edge_cas_exhausted")
	m.badBundles = define(abi.Counter, "weir_edge_bundle_rejected")
	m.recoveries = define(abi.Counter, "weir_edge_recovered")
	m.release = define(abi.Gauge, "weir_edge_release")
	m.lease = define(abi.Gauge, "weir_edge_lease")
}

func (m *metrics) defineRule(name string) {
	for i, code := range codes {
		m.denied[i] = define(abi.Counter, "weir_edge_denied."+string(code)+"."+name)
	}
}

// record tells the release in force and the largest lease of any class, the term of the bound that a worker adds.
func (m *metrics) record(release uint64, lease int64) {
	m.release.set(release)
	m.lease.set(uint64(lease))
}

func (m *metrics) count(v *edge.Verdict) {
	if v.Allowed {
		m.allowed[v.Class].one()
		return
	}
	m.denied[codeIndex(v.Code)].one()
	if v.Exhausted {
		m.casExhausted.one()
	}
}

func (m *metrics) rejected()  { m.badBundles.one() }
func (m *metrics) recovered() { m.recoveries.one() }
