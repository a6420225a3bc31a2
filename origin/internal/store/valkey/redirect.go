package valkey

import (
	"net"
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"
)

// Words by which a server of a cluster sends its callers on to another one.
const (
	wordMoved = "MOVED" // that has the slot
	wordAsk   = "ASK"   // that is taking the slot over: for this call alone, and told by ASKING
)

// redirection is the address that a server of a cluster sends its caller on to, as `MOVED 3999 127.0.0.1:6381` and
// `ASK 3999 ::1:6381` do; the host may be left out. ok is false of any other error, and where no address is to be read:
// valkey-go's own IsMoved panics then.
func (s *Store) redirection(err error) (addr string, ask, ok bool) {
	e, answered := valkey.IsValkeyErr(err)
	if !answered || !s.options.Cluster {
		return "", false, false
	}
	words := strings.Fields(e.Error())
	if len(words) != 3 || words[0] != wordMoved && words[0] != wordAsk {
		return "", false, false
	}
	at := strings.LastIndexByte(words[2], ':')
	if at < 0 {
		return "", false, false
	}
	host, port := strings.Trim(words[2][:at], "[]"), words[2][at+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false, false
	}
	return net.JoinHostPort(host, port), words[0] == wordAsk, true
}

// movedOn tells whether err only says that another server has the slot.
func (s *Store) movedOn(err error) bool {
	_, ask, ok := s.redirection(err)
	return ok && !ask
}
