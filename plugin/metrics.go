package main

import (
	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/header"
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

func (m metric) one() { m.add(1) }

// add counts n more; Envoy's counters must never be incremented by 0.
func (m metric) add(n uint8) {
	if m.defined && n > 0 {
		abi.Increment(m.id, int64(n))
	}
}

// set records a gauge. It is set and never added to: each VM starts anew at each push.
func (m metric) set(value uint64) {
	if m.defined {
		abi.Record(m.id, value)
	}
}

// metrics are the filter's, named as they appear in Envoy's /stats. Names come from config alone, so that no client makes
// one.
type metrics struct {
	allowed      [edge.Classes]metric
	denied       [len(codes)]metric // by the edge's rule
	hinted       []metric           // by the origin's rule, each defined when first counted
	forged       metric
	unverified   metric
	hints        metric
	tableUsed    metric
	evictions    metric
	casExhausted metric
	badBundles   metric
	deltasFailed metric
	recoveries   metric
	release      metric // the last one that a VM started
	lease        metric
	// Recorded by one VM for the whole Envoy.
	workers, releaseMin, releaseMax, age, overAdmission metric
}

// define makes known what depends on no rule. The host finds metrics by name, so a second start finds the first's.
func (m *metrics) define() {
	for class := range edge.Classes {
		m.allowed[class] = define(abi.Counter, "weir_edge_allowed."+class.String())
	}
	m.forged = define(abi.Counter, "weir_edge_forged")
	m.unverified = define(abi.Counter, "weir_edge_unverified")
	m.hints = define(abi.Counter, "weir_edge_hints")
	m.tableUsed = define(abi.Counter, "weir_edge_table_used")
	m.evictions = define(abi.Counter, "weir_edge_table_evictions")
	m.casExhausted = define(abi.Counter, "weir_edge_cas_exhausted")
	m.badBundles = define(abi.Counter, "weir_edge_bundle_rejected")
	m.deltasFailed = define(abi.Counter, "weir_edge_deltas_failed")
	m.recoveries = define(abi.Counter, "weir_edge_recovered")
	m.release = define(abi.Gauge, "weir_edge_release")
	m.lease = define(abi.Gauge, "weir_edge_lease")
	m.workers = define(abi.Gauge, "weir_edge_workers")
	m.releaseMin = define(abi.Gauge, "weir_edge_release_min")
	m.releaseMax = define(abi.Gauge, "weir_edge_release_max")
	m.age = define(abi.Gauge, "weir_edge_bundle_age_seconds")
	m.overAdmission = define(abi.Gauge, "weir_edge_over_admission")
}

// defineRules makes known what depends on the edge's rule, and makes room for as many of the origin's.
func (m *metrics) defineRules(name string, originRules int) {
	for i, code := range codes {
		m.denied[i] = define(abi.Counter, deniedName(code, name))
	}
	m.hinted = make([]metric, originRules)
}

func deniedName(code header.Code, rule string) string {
	return "weir_edge_denied." + string(code) + "." + rule
}

// record tells the release in force and the largest lease of any bucket, the term of the bound that a worker adds.
func (m *metrics) record(e *edge.Engine) {
	m.release.set(e.Release())
	m.lease.set(uint64(e.LargestLease()))
}

func (m *metrics) count(v *edge.Verdict, edgeRule string) {
	switch {
	case v.Allowed:
		m.allowed[v.Class].one()
		if v.Class == edge.Unverified {
			m.unverified.one()
		}
	case v.Hinted:
		m.countHinted(v)
	case v.Rule != "" && v.Rule != edgeRule: // the cap on unverified keys: rare, and no rule of anybody's
		define(abi.Counter, deniedName(v.Code, v.Rule)).one()
	default:
		m.denied[codeIndex(v.Code)].one()
	}
	if v.Forged {
		m.forged.one()
	}
	if v.Exhausted {
		m.casExhausted.one()
	}
	m.tableUsed.add(v.Created)
	m.evictions.add(v.Evicted)
}

func (m *metrics) countHinted(v *edge.Verdict) {
	if v.Hint >= len(m.hinted) {
		return
	}
	if own := &m.hinted[v.Hint]; !own.defined {
		*own = define(abi.Counter, deniedName(v.Code, v.Rule))
	}
	m.hinted[v.Hint].one()
}

func (m *metrics) rejected()  { m.badBundles.one() }
func (m *metrics) recovered() { m.recoveries.one() }
