package main

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// tickPeriod is how often a VM looks for changes of keys, and how often all VMs of an Envoy together ask for them.
	tickPeriod = limit.Second
	// callTimeout is below the period, so that one call is in flight.
	callTimeout = 900 * limit.Millisecond
	// leaderLife outlives two missed ticks.
	leaderLife = 3 * limit.Second
	// heartbeatLife is when a VM that no longer ticks is counted as gone.
	heartbeatLife = 5 * limit.Second
	// clockSkew is how far ahead another VM's reading of the one clock may be. What lies further ahead was not written by a
	// VM of this Envoy.
	clockSkew = limit.Second
	// maxVMs bounds the heartbeats that are looked at: workers and Envoy's main thread.
	maxVMs = 64
	// maxChanges bounds the list that all VMs share; from there on the edge waits for the bundle that holds them.
	maxChanges = 1 << 16
	// compactAt is when the leader starts the list anew from a newer bundle, since entries of its own are in there.
	compactAt = 1 << 12

	controlCluster = "weir_control"
	deltasPath     = "/edge/v1/deltas"
)

// Keys of shared data. Their values outlive the module: another layout has another number.
var (
	leaderKey = []byte("weir.leader1") // {u64 nonce, i64 until}
	keysKey   = []byte("weir.keys1")   // {u64 epoch, u64 base, u64 to, i64 confirmed}
	listKey   = []byte("weir.list1")   // {u64 epoch, u64 base, u64 to, changes}
	vmKey     = []byte("weir.vm1.00")  // {u64 nonce, u64 release, i64 at}
	nodePath  = []byte("xds\x00node\x00id")
)

// control follows what changes between bundles: which keys were issued and revoked, and how the other VMs are.
type control struct {
	root     uint32       // the plugin context whose ticks count: the newest that started
	nonce    uint64       // this VM's, for its heartbeat and as leader
	place    int          // of this VM's heartbeat
	changes  span         // what this VM knows
	calling  bool         // one call at a time
	calledAt limit.Micros // when it went out
	asked    span         // the list that its answer goes on from
	kept     bool         // that list is changes; else one that begins at the bundle
	tooFar   uint64       // Seq of a bundle that one answer did not lead from to where changes ends
	pairs    abi.Pairs
}

// span is which changes of keys a list holds: all after base up to to.
type span struct{ epoch, base, to uint64 }

const (
	spanSize = 3 * 8
	keysSize = spanSize + 8
)

func (s span) append(b []byte) []byte {
	le := binary.LittleEndian
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, s.epoch), s.base), s.to)
}

func readSpan(b []byte) span {
	le := binary.LittleEndian
	return span{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

// fits tells whether a list brings a bundle up to date: one of the same epoch that leaves nothing out after the bundle.
func (s span) fits(g *bundle.Gate) bool {
	return s.epoch != 0 && s.epoch == g.Epoch && s.base <= g.Seq && s.to >= g.Seq
}

// begin makes root the plugin context whose ticks count.
func (f *filter) begin(root uint32) {
	c := &f.control
	for c.nonce == 0 {
		c.nonce = rand.Uint64() // ChaCha8, seeded by the host's random_get
	}
	c.root = root
	abi.SetTickPeriod(uint32(tickPeriod / limit.Millisecond))
}

// tick runs once a period for each plugin context of this VM.
func (f *filter) tick(root uint32) {
	defer func() {
		if recover() != nil {
			f.metrics.recovered()
		}
	}()
	if f.engine == nil || root != f.control.root {
		return
	}
	at := now()
	f.beat(at)
	f.catchUp()
	if f.lead(at) {
		f.tell(at)
		f.ask(at)
	}
}

// catchUp puts in force what the leader has learnt of keys, and drops what a newer bundle knows better.
func (f *filter) catchUp() {
	c, gate := &f.control, f.engine.Gate()
	if c.changes != (span{}) && !c.changes.fits(gate) {
		c.changes = span{}
		f.engine.Learn(keyfilter.Changes{})
	}
	value, _, status := abi.SharedData(keysKey)
	if status != abi.OK || len(value) != keysSize {
		return
	}
	told, confirmed := readSpan(value), limit.Micros(binary.LittleEndian.Uint64(value[spanSize:]))
	if told.epoch == 0 || told.epoch != gate.Epoch {
		return
	}
	if told != c.changes && told.fits(gate) {
		list, _, status := abi.SharedData(listKey)
		if status != abi.OK || len(list) < spanSize {
			return
		}
		// One that ends earlier comes of a VM that was late: what it does not hold yet is not to be forgotten.
		if s := readSpan(list); !s.fits(gate) || s.to < c.changes.to {
			return
		}
		changes, err := keyfilter.ReadChanges(abi.Own(list[spanSize:]))
		if err != nil {
			return
		}
		c.changes = readSpan(list)
		f.engine.Learn(changes)
	}
	if c.changes == told || told.to <= gate.Seq {
		f.engine.Confirm(min(confirmed, now()))
	}
}

// lead makes this VM the one that asks and tells for the whole Envoy, unless another one is.
func (f *filter) lead(now limit.Micros) bool {
	le := binary.LittleEndian
	value, cas, status := abi.SharedData(leaderKey)
	if status != abi.OK {
		cas = edge.CreateCAS
	} else if len(value) == 16 && le.Uint64(value) != f.control.nonce {
		if until := limit.Micros(le.Uint64(value[8:])); now < until && until <= now+leaderLife+clockSkew {
			return false
		}
	}
	mine := le.AppendUint64(le.AppendUint64(nil, f.control.nonce), uint64(now+leaderLife))
	return abi.SetSharedData(leaderKey, mine, cas) == abi.OK
}

// ask fetches the changes of keys since the last that are known.
func (f *filter) ask(now limit.Micros) {
	c, gate := &f.control, f.engine.Gate()
	if gate.Epoch == 0 || c.calling && now-c.calledAt < 2*callTimeout {
		return
	}
	c.asked = span{gate.Epoch, gate.Seq, gate.Seq}
	tooLong := f.engine.Changes().Len() >= compactAt && gate.Seq > c.changes.base && gate.Seq != c.tooFar
	if c.kept = c.changes.fits(gate) && !tooLong; c.kept {
		c.asked = c.changes
	}
	path := deltasPath + "?epoch=" + strconv.FormatUint(gate.Epoch, 10) + "&since=" + strconv.FormatUint(c.asked.to, 10)
	if node, status := abi.Property(nodePath); status == abi.OK {
		path += "&node=" + escape(node)
	}
	c.pairs.Reset()
	c.pairs.Add(":method", "GET")
	c.pairs.Add(":path", path)
	c.pairs.Add(":authority", controlCluster)
	c.pairs.Add("accept", "application/octet-stream")
	if abi.Call(controlCluster, c.pairs.Bytes(), uint32(callTimeout/limit.Millisecond)) != abi.OK {
		f.metrics.deltasFailed.one()
		return
	}
	c.calling, c.calledAt = true, now
}

// escape keeps a node's id from being read as anything else in a query.
func escape(text []byte) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(text))
	for _, c := range text {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// answered takes control's answer. Whatever it holds, the keys that were known stay.
func (f *filter) answered(answered bool, bodySize int) {
	defer func() {
		if recover() != nil {
			f.metrics.recovered()
		}
	}()
	f.control.calling = false
	if f.engine == nil || !answered || !f.take(bodySize) {
		f.metrics.deltasFailed.one()
	}
}

// take puts an answer's changes in force for the whole Envoy. It reports whether the answer was one.
func (f *filter) take(bodySize int) bool {
	c, gate := &f.control, f.engine.Gate()
	code, _ := abi.HeaderValue(abi.CallResponseHeaders, statusName)
	answer := string(code)
	if c.asked.epoch != gate.Epoch || c.kept && c.asked != c.changes {
		return true // a bundle has come meanwhile: the next call asks from there
	}
	s := c.asked
	var changes []keyfilter.Change
	at := now()
	switch answer {
	case "204":
		if c.kept {
			f.publish(s, nil, at)
			return true
		}
	case "409": // control has dropped what we ask from: the next bundle holds it
		return true
	case "200":
		body, status := abi.CallBody(bodySize)
		if status != abi.OK {
			return false
		}
		delta, err := bundle.ReadDelta(body)
		if err != nil || delta.Epoch != s.epoch || delta.From != s.to {
			return false
		}
		if c.kept { // the list that the answer goes on from
			held := f.engine.Changes()
			for i := range held.Len() {
				changes = append(changes, held.At(i))
			}
		}
		if changes = append(changes, delta.Changes...); len(changes) > maxChanges {
			return false
		}
		s.to = delta.To
		if len(delta.Changes) == bundle.MaxDeltaChanges { // there may be more: what is unknown here may be among them
			at -= f.engine.Age(at)
		}
	default:
		return false
	}
	if !c.kept && s.to < c.changes.to {
		c.tooFar = gate.Seq
		return true
	}
	f.publish(s, keyfilter.EncodeChanges(changes), at)
	return true
}

// publish tells all VMs what is known of keys, and that it was all at the instant confirmed. list is nil where nothing
// changed but that. Where another VM has told more meanwhile, as a leader that took over from this one does, that stays.
func (f *filter) publish(s span, list []byte, confirmed limit.Micros) {
	if f.toldTo(keysKey) > s.to && f.toldTo(listKey) > s.to {
		f.catchUp()
		return
	}
	if list != nil {
		abi.SetSharedData(listKey, append(s.append(nil), list...), 0)
	}
	abi.SetSharedData(keysKey, binary.LittleEndian.AppendUint64(s.append(nil), uint64(confirmed)), 0)
	f.catchUp()
}

// toldTo is where the list ends that all VMs share, by one of its two values; 0 if it does not bring the bundle in force up
// to date.
func (f *filter) toldTo(key []byte) uint64 {
	value, _, status := abi.SharedData(key)
	if status != abi.OK || len(value) < spanSize || !readSpan(value).fits(f.engine.Gate()) {
		return 0
	}
	return readSpan(value).to
}

var statusName = []byte(":status")

func vmName(place int) []byte {
	vmKey[len(vmKey)-2], vmKey[len(vmKey)-1] = byte('0'+place/10), byte('0'+place%10)
	return vmKey
}

// heartbeat is one VM's sign of life.
type heartbeat struct {
	nonce, release uint64
	at             limit.Micros
}

// lives tells whether the VM has ticked lately.
func (h heartbeat) lives(now limit.Micros) bool {
	return now-h.at < heartbeatLife && h.at <= now+clockSkew
}

func readHeartbeat(place int) (h heartbeat, cas uint32, ok bool) {
	value, cas, status := abi.SharedData(vmName(place))
	if status != abi.OK || len(value) != 24 {
		return h, cas, status == abi.OK
	}
	le := binary.LittleEndian
	return heartbeat{le.Uint64(value), le.Uint64(value[8:]), limit.Micros(le.Uint64(value[16:]))}, cas, true
}

// beat tells that this VM lives and which release it runs, at a place of its own: the one it had, else the first that is
// free or whose VM is gone.
func (f *filter) beat(now limit.Micros) {
	c := &f.control
	le := binary.LittleEndian
	mine := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, c.nonce), f.engine.Release()), uint64(now))
	for tries, place := 0, c.place; tries < maxVMs; tries, place = tries+1, (place+1)%maxVMs {
		h, cas, ok := readHeartbeat(place)
		if !ok {
			cas = edge.CreateCAS
		} else if h.nonce != c.nonce && h.lives(now) {
			continue
		}
		if abi.SetSharedData(vmName(place), mine, cas) == abi.OK {
			c.place = place
			return
		}
	}
}

// tell records what is true of all VMs together. Gauges are process-wide, so that one VM has to.
func (f *filter) tell(now limit.Micros) {
	workers, low, high := 0, ^uint64(0), uint64(0)
	for place := range maxVMs {
		h, _, ok := readHeartbeat(place)
		if !ok {
			break
		}
		if h.lives(now) {
			workers++
			low, high = min(low, h.release), max(high, h.release)
		}
	}
	if workers == 0 {
		return
	}
	m := &f.metrics
	m.workers.set(uint64(workers))
	m.releaseMin.set(low)
	m.releaseMax.set(high)
	m.age.set(uint64(f.engine.Age(now) / limit.Second))
	m.overAdmission.set(uint64(f.engine.OverAdmission(workers)))
}
