package wasmhost

import "time"

// Epoch is the wall clock's first instant. It lies far from the monotonic clock's, so that a filter that mixes the
// two up is caught.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// boot is the monotonic clock's first reading: a machine that runs for an hour. A filter that takes a small reading
// for "never" is caught by [Clock.Reset].
const boot = time.Hour

// Clock is a pair of clocks, wall and monotonic, that moves only when told to.
type Clock struct {
	mono time.Duration
	step time.Duration // what the wall clock was stepped by
}

// NewClock starts at [Epoch] on the wall and at one hour on the monotonic side.
func NewClock() *Clock { return &Clock{mono: boot} }

// Monotonic is the monotonic reading.
func (c *Clock) Monotonic() time.Duration { return c.mono }

// Wall is the wall clock's reading.
func (c *Clock) Wall() time.Time { return Epoch.Add(c.mono - boot + c.step) }

// Step moves the wall clock alone, forward or back, as a clock correction does.
func (c *Clock) Step(d time.Duration) { c.step += d }

// Reset sets the monotonic clock to d, as if the machine had booted d ago. Use it before the first VM starts.
func (c *Clock) Reset(d time.Duration) { c.mono = d }

func (c *Clock) set(d time.Duration) { c.mono = d }
