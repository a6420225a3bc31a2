package valkey

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// unspeakable is what no server says, each of which ended the process, or had it make room for gigabytes.
var unspeakable = []string{
	"+OK\r\n", ":1\r\n", "$5\r\nhello\r\n", "*0\r\n", "-ERR of nobody\r\n", // replies to nothing
	"$-2\r\n", "*-5\r\n", "%-1\r\n", "=-7\r\n", "~-2\r\n",
	"$9223372036854775807\r\n", "$536870912\r\n", "*2147483647\r\n", "*524288\r\n*524288\r\n", "%9999999999\r\n",
	strings.Repeat("*1\r\n", 100_000),
	">3\r\n$9\r\nsubscribe\r\n$9\r\nw1:forget\r\n:1\r\n", ">3\r\n+unsubscribe\r\n+w1:forget\r\n:0\r\n", ">2\r\n$10\r\ninvalidate\r\n_\r\n", ">0\r\n",
	"HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x01\x02", "$?\r\n;3\r\nabc\r\n;0\r\n", "|1\r\n+a\r\n+b\r\n+OK\r\n", "*?\r\n", ".\r\n",
	"_ab", "#true\r\n", "$3\r\nabcd\r\n", "$\r\n", "$--1\r\n", "+OK\n", "+" + strings.Repeat("x", maxMessage+1),
}

// A process whose store says what no server says lives on, and uses the store again as soon as it makes sense.
func TestWhatIsNoServerEndsItsConnectionAlone(t *testing.T) {
	t.Parallel()
	proxy := valkeytest.StartProxy(t, valkeytest.Start(t).Addr)
	heard := make(chan struct{}, 64)
	s := start(t, Options{Addrs: []string{proxy.Addr}, OnForget: func(limiter.Counter) {}, onSubscribed: func() { heard <- struct{}{} }})
	ask := func() error {
		return s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, roomy, 0)}, Outcomes: make([]limiter.Outcome, 1)})
	}
	<-heard
	for _, words := range unspeakable {
		proxy.Say(words)
		within(t, fmt.Sprintf("calls are answered after %.40q", words), func() bool { return ask() == nil })
	}
}

// By whatever pieces a stream comes, the same messages are found in it, as many as there are.
func TestMessagesAreFoundWhereverAStreamIsCut(t *testing.T) {
	stream := "+OK\r\n$-1\r\n*-1\r\n:12\r\n*2\r\n$5\r\nhello\r\n*1\r\n:1\r\n%1\r\n+a\r\n_\r\n*0\r\n$0\r\n\r\n#t\r\n,1.5\r\n(12345\r\n" +
		">3\r\n$7\r\nmessage\r\n$9\r\nw1:forget\r\n$3\r\n\r\n*\r\n!3\r\nERR\r\n=7\r\ntxt:abc\r\n-ERR no\r\n~2\r\n:1\r\n*1\r\n*0\r\n"
	want := "+OK |$ |* |:12 |*hello 1 |%a  |* |$ |#t |,1.5 |(12345 |>message w1:forget |!ERR |=txt:abc |-ERR no |~1  |"
	for size := 1; size <= len(stream); size++ {
		var s scanner
		got := ""
		for rest := stream; rest != ""; rest = rest[min(size, len(rest)):] {
			if err := s.scan([]byte(rest[:min(size, len(rest))]), func(kind byte, words []byte) error {
				got += string(kind) + string(words) + "|"
				return nil
			}); err != nil {
				t.Fatalf("in pieces of %d: %v", size, err)
			}
		}
		if got != want {
			t.Fatalf("in pieces of %d:\n%s, want\n%s", size, got, want)
		}
	}
}

func TestScanningDoesNotAllocate(t *testing.T) {
	var s scanner
	b := []byte("*3\r\n$7\r\nmessage\r\n+a\r\n$3\r\nabc\r\n")
	done := func(byte, []byte) error { return nil }
	if n := testing.AllocsPerRun(100, func() { _ = s.scan(b, done) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever the bytes are, a message that is let through says no more than its bounds allow, nor does one that is not begin to.
func FuzzScanner(f *testing.F) {
	for _, words := range unspeakable[:len(unspeakable)-1] {
		f.Add([]byte(words))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s scanner
		err := s.scan(b, func(byte, []byte) error {
			if s.elements > maxElements || s.size > maxMessage || s.depth != 0 {
				t.Errorf("a message of %d bytes, %d elements, %d deep", s.size, s.elements, s.depth)
			}
			return nil
		})
		if err == nil && (s.elements > maxElements || s.size > maxMessage || s.depth > maxNesting) {
			t.Errorf("begins a message of %d bytes, %d elements, %d deep", s.size, s.elements, s.depth)
		}
	})
}
