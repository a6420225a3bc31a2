package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is one client in the table.
type row struct {
	name string
	counts
	calls int64 // to the API
}

// rows are the table's content.
type rows struct {
	clients  [3]row
	commands int64 // to the store
}

// board draws the table: in place on a terminal, else a line now and then with the table at the end.
type board struct {
	out     io.Writer
	inPlace bool
	total   time.Duration
	lines   int // drawn, to be drawn over
}

// interval between two drawings: as fast as the eye follows, or so slow that a log stays short.
func (b *board) interval() time.Duration {
	if b.inPlace {
		return 250 * time.Millisecond
	}
	return 2 * time.Second
}

func (b *board) draw(age time.Duration, title string, r rows) {
	head := fmt.Sprintf("%2.0f of %.0f s, %s", age.Seconds(), b.total.Seconds(), title)
	if b.inPlace {
		b.show(head + "\n\n" + r.table())
		return
	}
	var all counts
	var calls int64
	for _, c := range r.clients {
		all = all.plus(c.counts)
		calls += c.calls
	}
	fmt.Fprintf(b.out, "%s: sent %d, 200 %d, 401 %d, 429 by edge %d, 429 by origin %d, other %d, API calls %d, store commands %d\n",
		head, all.sent, all.allowed, all.unauthorized, all.edge, all.origin, all.other, calls, r.commands)
}

// last draws the table for good.
func (b *board) last(r rows) { b.show("\n" + r.table() + "\n") }

// show draws text over what was drawn before, on a terminal.
func (b *board) show(text string) {
	if b.inPlace && b.lines > 0 {
		// Up to the first line, then clear to the end of the screen.
		text = fmt.Sprintf("\x1b[%dA\x1b[J", b.lines) + text
	}
	b.lines = strings.Count(text, "\n")
	fmt.Fprint(b.out, text)
}

func (r rows) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %-12s  %7s  %7s  %7s  %11s  %13s  %7s  %11s\n", "client", "sent", "200", "401", "edge: 429", "origin: 429", "other", "API calls")
	for _, c := range r.clients {
		fmt.Fprintf(&b, "  %-12s  %7d  %7d  %7d  %11d  %13d  %7d  %11d\n", c.name, c.sent, c.allowed, c.unauthorized, c.edge, c.origin, c.other, c.calls)
	}
	fmt.Fprintf(&b, "\n  store commands %d\n", r.commands)
	return b.String()
}
