package valkey

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// guarded is a connection that ends where the other side does not speak as a server does. valkey-go believes what it reads:
// a negative length, one of gigabytes, a reply that nobody asked for, each panics in a goroutine of its own and ends the
// process, and arrays in arrays without end overflow its stack.
type guarded struct {
	net.Conn
	in, out  scanner
	sent     atomic.Int64 // commands
	answered int64        // replies; the reader's own
	// subscribes is the number of the command that is a SUBSCRIBE, 0 if none was sent: what comes by itself is for it alone.
	subscribes atomic.Int64
	resp2      atomic.Bool // messages come as arrays
	left       atomic.Bool // an UNSUBSCRIBE was sent: nobody listens any more, and valkey-go miscounts what follows
}

// errNoServer is of a connection that ended so.
var errNoServer = errors.New("what answers is no Valkey")

// dialGuarded connects as valkey-go does by itself.
func dialGuarded(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (conn net.Conn, err error) {
	if c != nil {
		conn, err = (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = d.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return &guarded{Conn: conn}, nil
}

// Write notes commands before they are sent, so that no reply comes too early.
func (g *guarded) Write(b []byte) (int, error) {
	if err := g.out.scan(b, g.command); err != nil {
		return 0, err // never: valkey-go writes it
	}
	return g.Conn.Write(b)
}

func (g *guarded) command(_ byte, words []byte) error {
	n := g.sent.Add(1)
	switch {
	case bytes.HasPrefix(words, []byte("SUBSCRIBE ")):
		g.subscribes.Store(n)
	case bytes.HasPrefix(words, []byte("UNSUBSCRIBE")):
		g.left.Store(true)
	case bytes.Equal(words, []byte("HELLO 2 ")):
		g.resp2.Store(true)
	}
	return nil
}

// Read gives what was read as far as it is a server's.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.left.Load() {
		return 0, net.ErrClosed
	}
	if bad := g.in.scan(b[:n], g.reply); bad != nil {
		return 0, fmt.Errorf("%w: %w", errNoServer, bad)
	}
	return n, err
}

func (g *guarded) reply(kind byte, words []byte) error {
	subscribes := g.subscribes.Load()
	if kind == '>' || kind == '*' && subscribes > 0 && g.resp2.Load() && !bytes.HasPrefix(words, []byte("pong ")) {
		switch {
		case subscribes > 0 && bytes.HasPrefix(words, []byte("message ")):
			return nil
		case subscribes == 0 || !bytes.HasPrefix(words, []byte("subscribe ")) || g.answered+1 != subscribes:
			return errors.New("a message that nobody subscribed to")
		}
	}
	if g.answered++; g.answered > g.sent.Load() {
		return errors.New("a reply without a command")
	}
	return nil
}

// What a message may hold at most: a cluster of 16,384 slots that belong to another server each is told in 1 MB.
const (
	maxMessage  = 8 << 20 // bytes
	maxElements = 1 << 19 // announced, all in all: valkey-go makes room for 48 bytes each before it reads one
	maxNesting  = 8
	maxWords    = 24 // bytes of a message's first two words that are looked at
)

// scanner finds the messages in a stream of RESP, by the length of each part alone, and what is none at its first wrong byte:
// valkey-go, which skips some bytes unseen, takes no message for complete before it is here. It does not allocate. The zero
// value is at the beginning of a message.
type scanner struct {
	at     func(*scanner, byte) error // what the next byte is; nil: a type
	kind   byte                       // of the message
	typ    byte                       // of the element
	left   [maxNesting]int64          // elements, by depth
	depth  int
	number int64 // length, or count of elements
	length int   // of the line
	minus  bool
	body   int64 // of a text that are yet to come

	size, elements int64 // of the message
	heard          int   // elements of the message that are no arrays
	words          [maxWords]byte
	wordsLen       int
}

// scan reads on, and tells done of each message that ended: its type, and what its first two words begin with, each followed
// by a space.
func (s *scanner) scan(b []byte, done func(kind byte, words []byte) error) error {
	for len(b) > 0 {
		if s.body > 0 {
			n := min(int64(len(b)), s.body)
			s.word(b[:n])
			b, s.body = b[n:], s.body-n
			continue
		}
		c := b[0]
		b = b[1:]
		if s.size++; s.size > maxMessage {
			return fmt.Errorf("a message of more than %d bytes", maxMessage)
		}
		at := s.at
		if at == nil {
			at = (*scanner).begin
		}
		if err := at(s, c); err != nil {
			return err
		}
		if s.at != nil || s.depth > 0 || s.body > 0 {
			continue
		}
		if err := done(s.kind, s.words[:s.wordsLen]); err != nil {
			return err
		}
		*s = scanner{}
	}
	return nil
}

// word keeps what is looked at.
func (s *scanner) word(b []byte) {
	if s.heard < 2 {
		s.wordsLen += copy(s.words[s.wordsLen:], b)
	}
}

// begin reads a type.
func (s *scanner) begin(c byte) error {
	if s.size == 1 {
		s.kind = c
	}
	s.typ, s.number, s.length, s.minus = c, 0, 0, false
	switch c {
	case '+', '-', ':', ',', '(', '#', '_':
		s.at = (*scanner).line
	case '$', '=', '!', '*', '~', '>', '%':
		s.at = (*scanner).count
	default: // attributes and parts of unknown length, which no server sends, among them
		return fmt.Errorf("type %q", c)
	}
	return nil
}

// line reads a text up to its end.
func (s *scanner) line(c byte) error {
	switch {
	case s.typ == '_' && c != '\r', s.typ == '#' && (s.length == 1) != (c == '\r'): // read by their length alone
		return fmt.Errorf("%q after %q", c, s.typ)
	case c == '\r':
		s.at = (*scanner).lineEnd
	case c == '\n':
		return errors.New("a line without an end")
	default:
		s.length++
		s.word([]byte{c})
	}
	return nil
}

func (s *scanner) lineEnd(c byte) error {
	if c != '\n' {
		return errors.New("a line without an end")
	}
	s.end()
	return nil
}

// count reads a length or a count.
func (s *scanner) count(c byte) error {
	switch {
	case c == '-' && s.length == 0 && (s.typ == '$' || s.typ == '*'):
		s.minus = true
	case c >= '0' && c <= '9' && s.number <= maxMessage:
		s.number = 10*s.number + int64(c-'0')
	case c == '\r' && s.length > 0 && (!s.minus || s.length == 2 && s.number == 1):
		s.at = (*scanner).countEnd
		return nil
	default:
		return fmt.Errorf("%q in the length after %q", c, s.typ)
	}
	s.length++
	return nil
}

func (s *scanner) countEnd(c byte) error {
	if c != '\n' {
		return errors.New("a length without an end")
	}
	if s.minus { // nothing
		s.end()
		return nil
	}
	switch s.typ {
	case '$', '=', '!':
		if s.size += s.number; s.size > maxMessage {
			return fmt.Errorf("a message of more than %d bytes", maxMessage)
		}
		s.body, s.at = s.number, (*scanner).textEnd
		return nil
	case '%':
		s.number *= 2
	}
	if s.elements += s.number; s.elements > maxElements {
		return fmt.Errorf("a message of more than %d elements", maxElements)
	}
	if s.number == 0 {
		s.end()
		return nil
	}
	if s.depth == maxNesting {
		return fmt.Errorf("arrays in each other, %d deep", maxNesting+1)
	}
	s.left[s.depth] = s.number
	s.depth++
	s.at = nil
	return nil
}

// textEnd reads what follows a text of known length.
func (s *scanner) textEnd(c byte) error {
	if c != '\r' {
		return errors.New("a text longer than it said")
	}
	s.at = (*scanner).lineEnd
	return nil
}

// end ends an element, and the arrays whose last it is.
func (s *scanner) end() {
	s.word([]byte{' '})
	s.heard++
	s.at = nil
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
}
