package wasmhost

// Kinds of a metric, as proxy_define_metric takes them.
const (
	kindCounter = iota
	kindGauge
	kindHistogram
	kinds
)

// A metric id carries its kind in the low two bits and grows by 4, as in Envoy: an id is looked up among the metrics
// of its kind in that VM.
const (
	metricKindMask = 3
	metricStep     = 4
)

// stats are the process's metrics by kind and name: every VM that defines one name gets the same metric.
type stats map[statName]*stat

type statName struct {
	kind uint32
	name string
}

type stat struct {
	value uint64
	seen  int // recordings of a histogram
}

// Counter returns a counter's value, and false for one that no VM has defined.
func (h *Host) Counter(name string) (uint64, bool) { return h.stats.value(kindCounter, name) }

// Gauge returns a gauge's value, and false for one that no VM has defined.
func (h *Host) Gauge(name string) (uint64, bool) { return h.stats.value(kindGauge, name) }

func (s stats) value(kind uint32, name string) (uint64, bool) {
	m, ok := s[statName{kind, name}]
	if !ok {
		return 0, false
	}
	return m.value, true
}

// metricIDs are one VM's ids.
type metricIDs struct {
	byID map[uint32]*stat
	next [kinds]uint32
}

func newMetricIDs() metricIDs {
	m := metricIDs{byID: map[uint32]*stat{}}
	for kind := range m.next {
		m.next[kind] = uint32(kind)
	}
	return m
}

// define gives a new id for each call, also for a name that the VM defined before.
func (m *metricIDs) define(all stats, kind uint32, name string) (uint32, status) {
	if kind >= kinds {
		return 0, badArgument
	}
	key := statName{kind, name}
	if all[key] == nil {
		all[key] = &stat{}
	}
	id := m.next[kind]
	m.next[kind] += metricStep
	m.byID[id] = all[key]
	return id, ok
}

// increment adds to a counter only what is above 0. A gauge moves either way.
func (m *metricIDs) increment(id uint32, offset int64) status {
	s := m.byID[id]
	switch id & metricKindMask {
	case kindCounter:
		if s == nil {
			return notFound
		}
		if offset <= 0 {
			return badArgument
		}
	case kindGauge:
		if s == nil {
			return notFound
		}
	default:
		return badArgument
	}
	s.value += uint64(offset)
	return ok
}

// record adds to a counter and sets a gauge.
func (m *metricIDs) record(id uint32, value uint64) status {
	s := m.byID[id]
	if s == nil {
		return notFound
	}
	switch id & metricKindMask {
	case kindCounter:
		s.value += value
	case kindGauge:
		s.value = value
	default:
		s.seen++
	}
	return ok
}

func (m *metricIDs) get(id uint32) (uint64, status) {
	if id&metricKindMask > kindGauge {
		return 0, badArgument
	}
	s := m.byID[id]
	if s == nil {
		return 0, notFound
	}
	return s.value, ok
}
