package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/weirproject/weir/origin/internal/stand"
)

// The clients' names.
const (
	namePolite = "polite"
	nameStorm  = "retry storm"
	nameForged = "forged keys"
)

// Pace of the clients. The storm sends more than the edge lets one address with a key have (100/s in `weir run`'s
// rules), so that both tiers are seen to refuse it; the forger sends more than one without a key may (50/s).
const (
	politeEvery = 500 * time.Millisecond
	stormEvery  = time.Second / 150
	forgedEvery = time.Second / 80
)

// MinFor is the shortest demo: the forger needs some of it for himself, the storm a window of its rule.
const MinFor = 4 * time.Second

// aloneShare of the time belongs to the forger alone, since the store's commands do not tell who caused them.
const aloneShare = 4

// Options say what to show.
type Options struct {
	Run      stand.Run     // the running system
	For      time.Duration // how long; at least MinFor
	Out      io.Writer
	Terminal bool // Out is a terminal: draw the table in place
}

// Show sends the clients at the running system, drawing what happens, and ends with a summary. The error says what
// did not hold, or that nothing runs.
func Show(ctx context.Context, o Options) error {
	if o.For < MinFor {
		return fmt.Errorf("for: %v: want at least %v", o.For, MinFor)
	}
	watch := newWatcher(o.Run)
	defer watch.close()
	start, err := watch.look(ctx)
	if err != nil {
		return err
	}
	d := &show{
		board: board{out: o.Out, inPlace: o.Terminal, total: o.For},
		watch: watch, start: start,
		polite: &client{name: namePolite, from: net.IPv4(127, 0, 0, 11), target: o.Run.Door() + "/search", every: politeEvery},
		storm:  &client{name: nameStorm, from: net.IPv4(127, 0, 0, 12), target: o.Run.Door() + "/hello", every: stormEvery, key: func() string { return o.Run.DemoKey }},
		forged: &client{name: nameForged, from: net.IPv4(127, 0, 0, 13), target: o.Run.Door() + "/hello", every: forgedEvery, key: forge(rand.Reader)},
	}
	began := time.Now()
	alone, err := d.phase(ctx, began, o.For/aloneShare, nameForged+" alone", d.forged)
	if err != nil {
		return err
	}
	together := time.Now()
	end, err := d.phase(ctx, began, o.For, "all three", d.polite, d.storm, d.forged)
	if err != nil {
		return err
	}
	d.board.last(d.rows(end))
	if ctx.Err() != nil {
		_, err := fmt.Fprintln(o.Out, "  ended early: nothing is judged")
		return err
	}
	return d.summary(o.Out, alone, end, together, time.Now())
}

// show is one demo under way.
type show struct {
	board                 board
	watch                 watcher
	start                 sight
	polite, storm, forged *client
}

// phase runs some clients until the demo is as old as until, drawing meanwhile, and returns what the system counted
// from the demo's start to the answer of the last request.
func (d *show) phase(ctx context.Context, began time.Time, until time.Duration, title string, clients ...*client) (sight, error) {
	sending, stop := context.WithDeadline(ctx, began.Add(until))
	defer stop()
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(func() { c.run(sending) })
	}
	draw := time.NewTicker(d.board.interval())
	defer draw.Stop()
	for done := false; !done; {
		select {
		case <-sending.Done():
			done = true
		case <-draw.C:
			if now, err := d.watch.look(sending); err == nil { // a look that fails is made up for by the next
				d.board.draw(time.Since(began), title, d.rows(now.since(d.start)))
			}
		}
	}
	running.Wait()
	// Ctrl-C ends the demo early; its summary is of use all the same.
	now, err := d.watch.look(context.WithoutCancel(ctx))
	if err != nil {
		return sight{}, err
	}
	grown := now.since(d.start)
	d.board.draw(time.Since(began), title, d.rows(grown))
	return grown, nil
}

// rows pairs the clients' counts with the system's.
func (d *show) rows(s sight) rows {
	var r rows
	for i, c := range []*client{d.polite, d.storm, d.forged} {
		r.clients[i] = row{c.name, c.tally.read(), s.calls[c.name]}
	}
	r.commands = s.commands
	return r
}
