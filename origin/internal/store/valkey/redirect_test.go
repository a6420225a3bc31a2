package valkey

import (
	"testing"

	"github.com/valkey-io/valkey-go"
)

func TestARedirectionIsReadWhereItNamesAServer(t *testing.T) {
	t.Parallel()
	cluster, alone := &Store{options: Options{Cluster: true}}, &Store{}
	for _, test := range []struct {
		text, addr string
		ask        bool
	}{
		{"MOVED 3999 127.0.0.1:6381", "127.0.0.1:6381", false},
		{"ASK 3999 host.internal:6381", "host.internal:6381", true},
		{"MOVED 3999 ::1:6381", "[::1]:6381", false},
		{"MOVED 3999 [::1]:6381", "[::1]:6381", false},
		{"MOVED 3999 :6381", ":6381", false},
		{"MOVED", "", false}, {"ASK", "", false}, {"MOVED 3999", "", false}, {"ASK 1 ", "", false}, {"MOVED 1 nowhere", "", false},
		{"MOVED 1 h:0", "", false}, {"MOVED 1 h:65536", "", false}, {"MOVED 1 h:-1", "", false}, {"MOVED 1 h:", "", false},
		{"MOVEDX 3999 127.0.0.1:6381", "", false}, {"ASKING 3999 127.0.0.1:6381", "", false}, {"MOVED 1 2 127.0.0.1:6381", "", false},
	} {
		err := serverError(t, test.text)
		if _, answered := valkey.IsValkeyErr(err); !answered {
			t.Fatalf("%q came as %v", test.text, err)
		}
		addr, ask, ok := cluster.redirection(err)
		if addr != test.addr || ask != test.ask || ok != (test.addr != "") || cluster.movedOn(err) != (ok && !ask) {
			t.Errorf("%q: %q, ask %v, %v", test.text, addr, ask, ok)
		}
		if _, _, ok := alone.redirection(err); ok {
			t.Errorf("%q: a server that is alone sends nobody on", test.text)
		}
	}
}
