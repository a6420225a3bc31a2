package valkey

import (
	"context"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
)

const (
	// forgetChannel carries names of counters, one after the other, that other processes better forget what they remember of.
	forgetChannel = "w1:forget"
	// maxAnnounced bounds the counters of one message, and maxWaiting the messages that wait to be sent. What is beyond
	// is not told: a hint may get lost.
	maxAnnounced = 100
	maxWaiting   = 256
	// hintRest is how long a lost subscription waits before the next try.
	hintRest = 500 * time.Millisecond
)

// hints tells other processes that counters were changed by other means than a check, and is told of theirs. A message is a
// hint, whoever sent it: nothing is lost with it but what is remembered.
type hints struct {
	out     chan string
	running sync.WaitGroup
}

func (s *Store) startHints(ctx context.Context) {
	s.hints.out = make(chan string, maxWaiting)
	s.hints.running.Go(func() { s.publish(ctx) })
	if s.options.OnForget != nil {
		s.hints.running.Go(func() { s.subscribe(ctx) })
	}
}

func (h *hints) wait() { h.running.Wait() }

// Announce tells other processes to forget what they remember of counters: as a hint, some may not hear it. It does not wait.
func (s *Store) Announce(counters []limiter.Counter) {
	for len(counters) > 0 {
		n := min(len(counters), maxAnnounced)
		message := make([]byte, 0, n*limiter.CounterSize)
		for i := range n {
			message = append(message, counters[i][:]...)
		}
		select {
		case s.hints.out <- string(message):
		default:
			return
		}
		counters = counters[n:]
	}
}

// publish sends what Announce is given. In a cluster any server passes a message on to all others.
func (s *Store) publish(ctx context.Context) {
	for {
		var message string
		select {
		case <-ctx.Done():
			return
		case message = <-s.hints.out:
		}
		client := s.anyClient()
		if client == nil {
			continue
		}
		s.count("publish")
		within, cancel := context.WithTimeout(ctx, ioTimeout)
		err := client.Do(within, client.B().Publish().Channel(forgetChannel).Message(message).Build()).Error()
		cancel()
		if err != nil {
			s.options.Log.Debug("a hint to other processes was not sent", "reason", err.Error())
		}
	}
}

// anyClient is a connection to a server that answers, nil if there is none.
func (s *Store) anyClient() valkey.Client {
	for _, n := range s.topology.all() {
		if c := n.client.Load(); c != nil && n.up.Load() {
			return *c
		}
	}
	return nil
}

// subscribe listens on a connection of its own, so that a flood of messages delays no answer, until ctx ends.
func (s *Store) subscribe(ctx context.Context) {
	var told troubles
	for ctx.Err() == nil {
		err := s.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if reason, news := told.add(err); news {
				s.options.Log.Warn("hints of other processes are not heard: what they reset counts here once its refusal has run out", "reason", reason)
			}
		}
		sleep(ctx, hintRest)
	}
}

// listen hears one server until the connection is lost. Without a server that answers it does nothing: the watch tells.
func (s *Store) listen(ctx context.Context) error {
	addr := ""
	for _, n := range s.topology.all() {
		if n.up.Load() {
			addr = n.addr
			break
		}
	}
	if addr == "" {
		return nil
	}
	o := s.clientOption(addr)
	o.PipelineMultiplex = -1 // one connection
	client, err := valkey.NewClient(o)
	if client != nil {
		defer client.Close()
	}
	if err != nil {
		return err
	}
	s.count("subscribe")
	if heard := s.options.onSubscribed; heard != nil {
		ctx = valkey.WithOnSubscriptionHook(ctx, func(valkey.PubSubSubscription) { heard() })
	}
	return client.Receive(ctx, client.B().Subscribe().Channel(forgetChannel).Build(), func(m valkey.PubSubMessage) {
		s.heard(m.Message)
	})
}

// heard takes a message apart. One that is not made of names is nobody's hint.
func (s *Store) heard(message string) {
	if len(message) == 0 || len(message)%limiter.CounterSize != 0 || len(message) > maxAnnounced*limiter.CounterSize {
		return
	}
	for len(message) > 0 {
		var c limiter.Counter
		copy(c[:], message)
		s.options.OnForget(c)
		message = message[limiter.CounterSize:]
	}
}
