package valkey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

const (
	// refreshEvery is how often a cluster is asked who has which slot where nothing says that it changed, and refreshRest how
	// long after one time it is not asked again, however many calls are sent on meanwhile.
	refreshEvery = 30 * time.Second
	refreshRest  = 100 * time.Millisecond
	// lingerTime is how long a server is kept that has no slot: one that is taking over its first one, or gave its last away.
	lingerTime = time.Minute
)

// topology is who has which slot. Its zero value knows nobody.
type topology struct {
	only  *node // the standalone server; nil in a cluster
	slots [slotCount]atomic.Pointer[node]

	mu     sync.Mutex
	nodes  map[string]*node     // by address
	wanted map[string]time.Time // when a node was last named by somebody
	closed bool

	stopping sync.WaitGroup
	refresh  chan struct{} // look at the cluster soon
	done     chan struct{} // closed when follow has ended
}

// nodeFor is the server to send a part to.
func (s *Store) nodeFor(ctx context.Context, p *part) (*node, error) {
	t := &s.topology
	if t.only != nil {
		return t.only, nil
	}
	if p.target != "" {
		return s.await(ctx, p.target)
	}
	if n := t.slots[p.slot].Load(); n != nil {
		return n, nil
	}
	s.refreshSoon()
	return nil, errNobody
}

// await is the server of an address that another one named, connected, which it waits for.
func (s *Store) await(ctx context.Context, addr string) (*node, error) {
	n := s.node(addr)
	if n == nil {
		return nil, errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	select {
	case <-n.ready:
		return n, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", addr, errNotConnected)
	}
}

// node is the server of an address, which is connected to if it is new; nil once the store is closed.
func (s *Store) node(addr string) *node {
	t := &s.topology
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	n, ok := t.nodes[addr]
	if !ok {
		n = s.newNode(addr)
		t.nodes[addr] = n
		n.start()
	}
	t.wanted[addr] = time.Now()
	return n
}

// all are the servers now.
func (t *topology) all() []*node {
	if t.only != nil {
		return []*node{t.only}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.nodes), func(a, b *node) int { return strings.Compare(a.addr, b.addr) })
}

// moved notes that a server said that another has a slot.
func (s *Store) moved(slot uint16, addr string) {
	if n := s.node(addr); n != nil {
		select {
		case <-n.ready:
			s.topology.slots[slot].Store(n)
		default:
		}
	}
	s.refreshSoon()
}

func (s *Store) refreshSoon() {
	select {
	case s.topology.refresh <- struct{}{}:
	default:
	}
}

// follow keeps the topology of a cluster true until ctx ends.
func (s *Store) follow(ctx context.Context) {
	defer close(s.topology.done)
	for ctx.Err() == nil {
		err := s.discover(ctx)
		if ctx.Err() != nil {
			return
		}
		s.tell(&s.topologyTold, s.options.shown(), "cluster does not tell who has its slots: the last known are used", err)
		s.mapped.Store(err == nil || s.mapped.Load())
		s.upChanged()
		wait, rest := refreshEvery, refreshRest
		if err != nil {
			wait, rest = probeEvery, probeEvery
			s.firstLookDone()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.topology.refresh:
			sleep(ctx, rest)
		}
		timer.Stop()
	}
}

// discover asks a server of the cluster who has which slot, connects to whom it did not know, and lets go of whom nobody
// names any more.
func (s *Store) discover(ctx context.Context) error {
	ranges, err := s.askSlots(ctx)
	if err != nil {
		return err
	}
	t := &s.topology
	nodes := map[string]*node{}
	patience, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	for _, r := range ranges {
		nodes[r.addr] = s.node(r.addr)
	}
	for _, n := range nodes {
		if n == nil {
			return nil // closed
		}
		// The one that had its slots before still knows better than one that is not connected.
		select {
		case <-n.ready:
		case <-patience.Done():
		}
	}
	for _, r := range ranges {
		for slot := r.from; slot <= r.to; slot++ {
			t.slots[slot].Store(nodes[r.addr])
		}
	}
	s.letGo(nodes)
	return nil
}

// letGo stops the servers that have no slot and that nobody named for a while.
func (s *Store) letGo(serving map[string]*node) {
	t := &s.topology
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, n := range t.nodes {
		if serving[addr] != nil || time.Since(t.wanted[addr]) < lingerTime && n.up.Load() {
			continue
		}
		for slot := range t.slots {
			t.slots[slot].CompareAndSwap(n, nil)
		}
		delete(t.nodes, addr)
		delete(t.wanted, addr)
		t.stopping.Go(n.stop)
	}
}

// stop ends all servers.
func (t *topology) stop() {
	if t.only != nil {
		t.only.stop()
		return
	}
	<-t.done
	t.mu.Lock()
	t.closed = true
	for _, n := range t.nodes {
		t.stopping.Go(n.stop)
	}
	t.mu.Unlock()
	t.stopping.Wait()
}

// slotRange is a run of slots of one primary.
type slotRange struct {
	from, to uint16
	addr     string
}

// askSlots asks the servers one after the other, first those that are connected, until one answers.
func (s *Store) askSlots(ctx context.Context) ([]slotRange, error) {
	var errs []error
	for _, n := range s.topology.all() {
		client := n.client.Load()
		if client == nil || !n.up.Load() {
			continue
		}
		ranges, err := s.slotsOf(ctx, *client, n.addr)
		if err == nil {
			return ranges, nil
		}
		errs = append(errs, err)
	}
	for _, addr := range s.options.Addrs {
		client, err := valkey.NewClient(s.clientOption(addr))
		if err == nil {
			var ranges []slotRange
			ranges, err = s.slotsOf(ctx, client, addr)
			client.Close()
			if err == nil {
				return ranges, nil
			}
		} else if client != nil {
			client.Close()
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return nil, errors.Join(errs...)
}

func (s *Store) slotsOf(ctx context.Context, client valkey.Client, addr string) ([]slotRange, error) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	s.count("cluster slots")
	reply, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		if strings.Contains(err.Error(), "cluster support disabled") {
			err = fmt.Errorf("the server is no part of a cluster: want store.cluster: false (%w)", err)
		}
		return nil, err
	}
	var ranges []slotRange
	for _, entry := range reply {
		r, err := readRange(entry, addr)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, errors.New("no slot of the cluster is served")
	}
	return ranges, nil
}

// readRange reads an entry of CLUSTER SLOTS: from, to, primary, replicas; a server is its host, port and more. A host that is
// not told is that of who was asked.
func readRange(entry valkey.ValkeyMessage, asked string) (slotRange, error) {
	fields, err := entry.ToArray()
	if err != nil || len(fields) < 3 {
		return slotRange{}, fmt.Errorf("%w: CLUSTER SLOTS told a range of %d fields", errUnreadable, len(fields))
	}
	from, err1 := fields[0].AsInt64()
	to, err2 := fields[1].AsInt64()
	server, err3 := fields[2].ToArray()
	if err := errors.Join(err1, err2, err3); err != nil || len(server) < 2 || from < 0 || to < from || to >= slotCount {
		return slotRange{}, fmt.Errorf("%w: CLUSTER SLOTS told slots %d to %d", errUnreadable, from, to)
	}
	port, err := server[1].AsInt64()
	if err != nil {
		return slotRange{}, fmt.Errorf("%w: CLUSTER SLOTS: port: %w", errUnreadable, err)
	}
	host, err := server[0].ToString()
	if err != nil || host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return slotRange{uint16(from), uint16(to), net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}
