package main

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// withLibraries has a server hold this version's library, another version's, a test's and a stranger's.
func withLibraries(t *testing.T, servers []*valkeytest.Server, o valkey.Options) {
	t.Helper()
	up := make(chan bool, 64)
	o.OnUp, o.Log = func(is bool) { up <- is }, slog.New(slog.DiscardHandler)
	s := valkey.New(o)
	for is, patience := false, time.After(20*time.Second); !is; {
		select {
		case is = <-up:
		case <-patience:
			t.Fatal("the store did not become up")
		}
	}
	s.Close()
	for _, server := range servers {
		for _, name := range []string{"weir_0badcafe", "weir_12345678", "weirtest_01234567", "stranger"} {
			if err := server.Do("FUNCTION", "LOAD", "#!lua name="+name+"\nserver.register_function('"+name+"_f', function() return 1 end)").Error(); err != nil {
				t.Fatal(err)
			}
		}
		server.User("admin", "secret", "-@all", "+function|list", "+function|delete", "+cluster|slots", "+auth", "+hello", "+ping", "+client|setname", "+client|setinfo")
	}
}

// libraryNames are those of all that a server has, in order.
func libraryNames(t *testing.T, server *valkeytest.Server) string {
	t.Helper()
	reply, err := server.Do("FUNCTION", "LIST").ToArray()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range reply {
		fields, _ := entry.AsMap()
		field := fields["library_name"]
		name, _ := field.ToString()
		names = append(names, strings.Replace(name, valkey.LibraryName(), "ours", 1))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestStoreGCListsAndDeletesAsTold(t *testing.T) {
	alone, cluster := valkeytest.Start(t), valkeytest.StartCluster(t, 3)
	for name, test := range map[string]struct {
		servers []*valkeytest.Server
		store   string
		options valkey.Options
	}{
		"standalone": {[]*valkeytest.Server{alone}, "{url: \"valkey://" + alone.Addr + "/2\"}", valkey.Options{Addrs: []string{alone.Addr}}},
		"cluster":    {cluster.Nodes, "{url: \"valkey://" + cluster.Nodes[0].Addr + "\", cluster: true}", valkey.Options{Addrs: cluster.Addrs(), Cluster: true}},
	} {
		t.Run(name, func(t *testing.T) {
			withLibraries(t, test.servers, test.options)
			dir := folder(t, map[string]string{"weir.yaml": "upstream: http://127.0.0.1:9000\nstore: " + test.store + "\nsecrets: {counter: [weir.secret]}\n",
				"weir.secret": strings.Repeat("s", 32), "password": "secret\n", "wrong": "guess\n"})
			gc := func(args ...string) (out string, err error) {
				t.Helper()
				args = append([]string{"store", "gc", filepath.Join(dir, "weir.yaml"), "--username", "admin", "--password-file", filepath.Join(dir, "password")}, args...)
				out, _, err = invoke(t, newRootCommand(), args...)
				return out, err
			}
			hold := func(want string) {
				t.Helper()
				for _, server := range test.servers {
					if got := libraryNames(t, server); got != want {
						t.Errorf("%s holds %s, want %s", server.Addr, got, want)
					}
				}
			}
			const all = "ours stranger weir_0badcafe weir_12345678 weirtest_01234567"
			out, err := gc()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{valkey.LibraryName() + " this version", "weir_0badcafe another version", "weir_12345678 another version", "weirtest_01234567 Weir's tests"} {
				for _, server := range test.servers {
					if !strings.Contains(strings.Join(strings.Fields(out), " "), server.Addr+" "+want) {
						t.Errorf("%q of %s is not in\n%s", want, server.Addr, out)
					}
				}
			}
			if strings.Contains(out, "stranger") {
				t.Errorf("a stranger's library is listed:\n%s", out)
			}
			for want, args := range map[string][]string{
				"want --yes if none of them runs, or --library NAME": {"--delete"},
				"want --delete beside them":                          {"--yes"},
				"want one of the two":                                {"--delete", "--yes", "--library", "weir_0badcafe"},
				"this version's own, which is never deleted":         {"--delete", "--library", valkey.LibraryName()},
				"is none of Weir's":                                  {"--delete", "--library", "stranger"},
				"weir_abcdefab is on no server":                      {"--delete", "--library", "weir_abcdefab,weir_0badcafe"},
				"WRONGPASS":                                          {"--delete", "--yes", "--password-file", filepath.Join(dir, "wrong")},
				"NOPERM":                                             {"--delete", "--yes", "--username", "reader"},
			} {
				for _, server := range test.servers {
					server.Do("ACL", "SETUSER", "reader", "on", ">secret", "-@all", "+function|load", "+cluster|slots", "+hello", "+client|setname", "+client|setinfo")
				}
				if _, err := gc(args...); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: %v, want %q", args, err, want)
				}
			}
			hold(all)
			if out, err = gc("--delete", "--library", "weir_0badcafe"); err != nil || strings.Count(out, "deleted weir_0badcafe on ") != len(test.servers) {
				t.Errorf("%s%v", out, err)
			}
			hold("ours stranger weir_12345678 weirtest_01234567")
			if out, err = gc("--delete", "--yes"); err != nil || strings.Count(out, "deleted ") != 2*len(test.servers) {
				t.Errorf("%s%v", out, err)
			}
			hold("ours stranger")
			if out, err = gc("--delete"); err != nil || !strings.Contains(out, "nothing to delete") {
				t.Errorf("%s%v", out, err)
			}
		})
	}
}

func TestStoreGCWantsAStoreThatHasLibraries(t *testing.T) {
	dir := folder(t, map[string]string{"weir.yaml": "upstream: http://127.0.0.1:9000\n"})
	_, _, err := invoke(t, newRootCommand(), "store", "gc", filepath.Join(dir, "weir.yaml"))
	if err == nil || !strings.Contains(err.Error(), "keeps counters in memory") {
		t.Errorf("%v", err)
	}
	_, _, err = invoke(t, newRootCommand(), "store", "gc", filepath.Join(dir, "weir.yaml"), "--username", "admin")
	if err == nil || !strings.Contains(err.Error(), "both or none") {
		t.Errorf("%v", err)
	}
}
