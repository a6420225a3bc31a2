package benchedge

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

var (
	rounds      = flag.Int("rounds", 41, "rounds that count, of each case; warmRounds more go before them")
	requests    = flag.Int("requests", 800, "requests of each case in a round")
	only        = flag.String("cases", "", "regular expression of the cases to measure, as proxied/weir-allowed; empty for all")
	other       = flag.String("other", "", "another build of the filter, measured beside it as proxied/other-allowed")
	connections = flag.Int("connections", 8, "keep-alive connections, each from an address of its own; Envoy's own limiter keeps 20 buckets")
)

const (
	// prepared is how many requests each connection sends in a round before those that count: caches hold another case's.
	prepared = 5
	// warmRounds let V8 compile what is hot; many short rounds then part a busy machine's noise evenly among the cases.
	warmRounds = 4
)

// one case is measured again and again: where its requests go, and how many ns of the worker each took, by round.
type one struct {
	group, name string
	envoy       *envoy
	chain       string
	load        load
	ns          []float64
}

// BenchmarkEdge prints a line for each case and round as benchstat reads it, then a table of medians. It measures by
// rounds of its own, whatever -benchtime says: rounds alternate between the cases, so that a machine which slows down
// does so for all.
func BenchmarkEdge(b *testing.B) {
	stand.Need(b, stand.Envoy, stand.Weir, stand.Wasm, stand.EmptyWasm)
	if runtime.GOOS != "linux" {
		fmt.Fprintf(os.Stderr, "\nNOT MEASURED: the CPU of one thread is read from Linux's /proc, this is %s\n\n", runtime.GOOS)
		b.Skip("needs Linux")
	}
	k := newKeys(b, *connections)
	wideBundle, tightBundle := k.bundle(b, release, wide), k.bundle(b, release, tight)
	address := stand.Loopback(b)
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	up := stand.Start(b, b.TempDir(), "upstream", program, nil, []string{upstreamEnv + "=" + address})
	client := stand.NewClient(b, "")
	up.Until(b, "answers", func() error {
		_, err := client.Try("http://" + address + "/")
		return err
	})

	module := stand.Path(b, stand.Wasm)
	plain := &envoy{name: "plain", chains: map[string]chain{
		"none": bare(), "native": bare(nativeLimit(1 << 30)), "denying": bare(nativeLimit(1)),
		"unfiltered": without("weir", "weir-guard"),
	}}
	empty := &envoy{name: "empty", chains: map[string]chain{"empty": bare(emptyWasm(stand.Path(b, stand.EmptyWasm)))}}
	filter := &envoy{name: "weir", module: module, bundle: wideBundle, chains: map[string]chain{"whole": whole, "unguarded": without("weir-guard")}}
	denying := &envoy{name: "denying", module: module, bundle: tightBundle, chains: map[string]chain{"whole": whole, "plain-replies": plainReplies}}
	hinted := &envoy{name: "hinted", module: module, bundle: wideBundle, chains: map[string]chain{"whole": whole}}

	none := make([]string, *connections)
	var cases []*one
	add := func(group, name string, e *envoy, chain, path string, keys []string, status int) {
		cases = append(cases, &one{group: group, name: name, envoy: e, chain: chain, load: load{
			path: path, keys: keys, status: status, origin: path == "/" && status == 200,
		}})
	}
	for group, path := range map[string]string{"proxied": "/", "direct": directPath} {
		add(group, "none", plain, "none", path, k.known, 200)
		add(group, "native", plain, "native", path, k.known, 200)
		add(group, "empty-wasm", empty, "empty", path, k.known, 200)
		add(group, "weir-allowed", filter, "whole", path, k.known, 200)
	}
	if *other != "" {
		e := &envoy{name: "other", module: *other, bundle: wideBundle, chains: map[string]chain{"whole": whole}}
		add("proxied", "other-allowed", e, "whole", "/", k.known, 200)
	}
	// Where the time goes.
	add("proxied", "weir-without-filter", plain, "unfiltered", "/", k.known, 200)
	add("proxied", "weir-without-guard", filter, "unguarded", "/", k.known, 200)
	add("proxied", "weir-without-key", filter, "whole", "/", none, 200)
	// A refusal reaches no route, so that it is the same before an upstream and before a direct response.
	add("refused", "native", plain, "denying", "/", none, 429)
	add("refused", "weir-denied", denying, "whole", "/", none, 429)
	add("refused", "weir-denied-plain-replies", denying, "plain-replies", "/", none, 429)
	add("refused", "weir-forged", filter, "whole", "/", k.forged, 401)
	add("refused", "weir-hinted", hinted, "whole", hintedPath, k.known, 429)
	cases[len(cases)-1].load.strays = *connections
	slices.SortStableFunc(cases, func(a, b *one) int { return strings.Compare(a.group, b.group) })

	wanted, err := regexp.Compile(*only)
	if err != nil {
		b.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c *one) bool { return !wanted.MatchString(c.group + "/" + c.name) })
	for _, c := range cases {
		if c.envoy.Process == nil {
			c.envoy.start(b, address)
		}
		c.load.address = c.envoy.listeners[c.chain]
		b.Cleanup(c.load.close)
	}
	for round := range *rounds + warmRounds {
		order := slices.Clone(cases)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			ns, err := c.measure()
			if err != nil {
				b.Fatalf("%s/%s: %v", c.group, c.name, err)
			}
			if round < warmRounds {
				continue
			}
			c.ns = append(c.ns, ns)
			fmt.Printf("BenchmarkEdge/%s/%s-%d\t%d\t%.0f ns/req\n", c.group, c.name, runtime.GOMAXPROCS(0), c.requests(), ns)
		}
	}
	b.ReportMetric(0, "ns/op") // of this function as a whole, which says nothing
	fmt.Print("\n", table(cases), "\n")
	if *only != "" {
		return
	}
	reportCounts(b, wideBundle, k.known[0])
	reportMemory(b, plain, filter, wideBundle)
	reportSwap(b, filter, k)
}

func (c *one) each() int { return max(1, *requests / *connections) }

func (c *one) requests() int { return c.each() * len(c.load.keys) }

// measure is the ns of the worker for each request of a round.
func (c *one) measure() (ns float64, err error) {
	var before, after int64
	read := func(into *int64) func() error {
		return func() (err error) {
			*into, err = c.envoy.worker.cpu()
			return err
		}
	}
	_, err = c.load.run(prepared, c.each(), read(&before), read(&after))
	return float64(after-before) / float64(c.requests()), err
}
