package valkey

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// upkeepRules are what an ACL user needs to list and delete libraries, as the origin's README tells.
var upkeepRules = []string{"-@all", "+function|list", "+function|delete", "+cluster|slots", "+auth", "+hello", "+ping", "+client|setname", "+client|setinfo"}

// loadOthers gives a server libraries: an earlier version's, a test's, and some that are nobody's business.
func loadOthers(t *testing.T, server *valkeytest.Server) {
	t.Helper()
	for _, name := range []string{"weir_0badcafe", "weirtest_01234567", "weir_0badcafe1", "weir_0BADFACE", "weird", "someone_else"} {
		code := fmt.Sprintf("#!lua name=%s\nserver.register_function('%s_f', function() return 1 end)", name, name)
		if err := server.Do("FUNCTION", "LOAD", code).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// libraryCount is how many libraries a server has, whosever they are.
func libraryCount(t *testing.T, server *valkeytest.Server) int {
	t.Helper()
	all, err := server.Do("FUNCTION", "LIST").ToArray()
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestLibrariesOfOtherVersionsAreFoundAndDeletedOnEveryPrimary(t *testing.T) {
	t.Parallel()
	alone, cluster := valkeytest.Start(t), valkeytest.StartClusterWithReplicas(t, 3, 1)
	for name, test := range map[string]struct {
		servers []*valkeytest.Server
		options Options
	}{
		"standalone": {[]*valkeytest.Server{alone}, Options{Addrs: []string{alone.Addr}, DB: 3}},
		"cluster":    {cluster.Primaries(), Options{Addrs: []string{cluster.Nodes[1].Addr}, Cluster: true}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := start(t, test.options) // loads this version's
			var want, others []string
			for _, server := range test.servers {
				loadOthers(t, server)
				server.User("admin", "secret", upkeepRules...)
			}
			o := test.options
			o.Credentials = user("admin", "secret")
			found, err := Libraries(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			var rest []Library
			got := map[string]bool{}
			for _, l := range found {
				got[l.Server+" "+l.Name] = true
				if l.Name != LibraryName() {
					rest = append(rest, l)
				}
			}
			for _, server := range test.servers {
				want = append(want, server.Addr+" "+LibraryName())
				others = append(others, server.Addr+" weir_0badcafe", server.Addr+" weirtest_01234567")
			}
			for _, l := range append(want, others...) {
				if !got[l] {
					t.Errorf("%s was not found", l)
				}
			}
			if len(found) != 3*len(test.servers) {
				t.Errorf("found %v", found)
			}
			deleted, err := DeleteLibraries(ctx, o, rest)
			if err != nil || len(deleted) != len(others) {
				t.Errorf("deleted %v, %v", deleted, err)
			}
			if left, err := Libraries(ctx, o); err != nil || len(left) != len(want) || left[0].Name != LibraryName() {
				t.Errorf("left %v, %v", left, err)
			}
			for _, server := range test.servers { // this version's, and four that are not Weir's
				if n := libraryCount(t, server); n != 5 {
					t.Errorf("%s has %d libraries, want 5", server.Addr, n)
				}
			}
			if again, err := DeleteLibraries(ctx, o, rest); err != nil || len(again) != 0 {
				t.Errorf("once more: deleted %v, %v", again, err)
			}
			for _, name := range []string{LibraryName(), "someone_else"} {
				if d, err := DeleteLibraries(ctx, o, []Library{{test.servers[0].Addr, name}}); err == nil || len(d) != 0 {
					t.Errorf("%s was deleted", name)
				}
			}
			if _, err := Libraries(ctx, Options{Addrs: o.Addrs, Cluster: o.Cluster, Credentials: user("admin", "wrong")}); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("with a wrong password: %v", err)
			}
			// A process whose library is deleted goes on all the same.
			for _, server := range test.servers {
				if err := server.Do("FUNCTION", "DELETE", LibraryName()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			l := limit.Limit{Count: 5, Window: limit.Hour}
			if o := take(t, s, -1, spreadCharge(1, l, 1), spreadCharge(0x7001, l, 1), spreadCharge(0xf001, l, 1)); statuses(o) != "admitted+ admitted+ admitted+" {
				t.Errorf("after its library was deleted: %v", statuses(o))
			}
		})
	}
}

// A primary that does not answer leaves no list that could be taken for a whole one.
func TestLibrariesOfAServerThatDoesNotAnswerAreAnError(t *testing.T) {
	t.Parallel()
	cluster := valkeytest.StartCluster(t, 3)
	cluster.Nodes[2].Kill()
	all, err := Libraries(context.Background(), Options{Addrs: cluster.Addrs()[:1], Cluster: true})
	if err == nil || !strings.Contains(err.Error(), cluster.Nodes[2].Addr) || all != nil {
		t.Errorf("%v, %v", all, err)
	}
	bare := valkeytest.Start(t, "--rename-command", "FUNCTION", "")
	if _, err := Libraries(context.Background(), Options{Addrs: []string{bare.Addr}}); err == nil || !strings.Contains(err.Error(), errNoFunctions.Error()) {
		t.Errorf("of a server without functions: %v", err)
	}
}
