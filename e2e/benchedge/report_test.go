package benchedge

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// median is the middle of a list, of the two in the middle the mean.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// table is the medians in µs, in Markdown.
func table(cases []*one) string {
	var b strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	version := "unknown"
	if out, err := exec.Command(mustFind(stand.Envoy), "--version").Output(); err == nil {
		version = regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(strings.TrimPrefix(string(out), mustFind(stand.Envoy)))
	}
	fmt.Fprintf(&b, "%s, Envoy %s, %s, load average %s\n", machine(), version, time.Now().UTC().Format(time.DateOnly),
		strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
	fmt.Fprintf(&b, "CPU of the one worker for each request, medians of %d alternating rounds of %d requests over %d connections\n\n",
		*rounds, *requests, *connections)
	b.WriteString("| group | case | µs | least | most | ÷ native |\n|---|---|---|---|---|---|\n")
	medians := map[string]float64{}
	for _, c := range cases {
		medians[c.group+"/"+c.name] = median(c.ns) / 1000
	}
	for _, c := range cases {
		m := medians[c.group+"/"+c.name]
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f | %.1f | %s |\n",
			c.group, c.name, m, slices.Min(c.ns)/1000, slices.Max(c.ns)/1000, ratio(m, medians[c.group+"/native"]))
	}
	allowed := medians["proxied/weir-allowed"]
	fmt.Fprintf(&b, "\nallowed ÷ native, proxied: %s (bound 1.5)\n", ratio(allowed, medians["proxied/native"]))
	fmt.Fprintf(&b, "denied ÷ allowed proxied: %s (bound 1)\n", ratio(medians["refused/weir-denied"], allowed))
	return b.String()
}

// ratio is a ÷ b, or a dash where -cases left one of them out.
func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func mustFind(p stand.Part) string {
	path, err := stand.Find(p)
	if err != nil {
		return ""
	}
	return path
}

// machine is the processor's name and how many of them there are.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	model, count := "unknown CPU", 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "processor":
			count++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s, %d cores", model, count)
}

// reportCounts prints what the allowed path asks of Envoy, once its lease is there: exact, by the host of the tests.
func reportCounts(b *testing.B, bundle []byte, key string) {
	b.Helper()
	h := newHost(b, bundle)
	request := wasmhost.Request{From: "192.0.2.1:40000", Path: "/"}
	request.Headers.Add("x-api-key", key)
	var response wasmhost.Response
	for range 4 { // leases of 1, 2, 4
		if response = h.Send(0, request); response.Status != 200 {
			b.Fatalf("wasmhost: status %d", response.Status)
		}
	}
	for response.Calls["proxy_get_shared_data"] > 0 {
		response = h.Send(0, request)
	}
	fmt.Printf("allowed, lease in memory: callbacks %s\n", counted(response.Callbacks))
	fmt.Printf("allowed, lease in memory: host calls %s\n", counted(response.Calls))
}

func counted(counts map[string]int) string {
	sum := 0
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		sum += counts[name]
		parts = append(parts, fmt.Sprintf("%s %d", strings.TrimPrefix(name, "proxy_"), counts[name]))
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}

func newHost(b *testing.B, bundle []byte) *wasmhost.Host {
	b.Helper()
	code, err := os.ReadFile(stand.Path(b, stand.Wasm))
	if err != nil {
		b.Fatal(err)
	}
	h, err := wasmhost.New(code, wasmhost.Options{Guard: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	if err := h.Push(wasmhost.Config{Plugin: bundle}); err != nil {
		b.Fatal(err)
	}
	return h
}

// reportMemory prints what a VM takes.
func reportMemory(b *testing.B, without, with *envoy, bundle []byte) {
	b.Helper()
	fmt.Printf("bundle: %d keys, %d bytes, %.3f bytes a key\n", keyCount, len(bundle), float64(len(bundle))/keyCount)
	h := newHost(b, bundle)
	fmt.Printf("memory: %.1f MiB of linear memory a VM\n", float64(h.MemoryBytes())/(1<<20))
	vms := with.stat(b, "wasm.envoy.wasm.runtime.v8.active")
	more := float64(residentKiB(b, with.PID())-residentKiB(b, without.PID())) / 1024
	fmt.Printf("memory: %.1f MiB resident more than an Envoy without the filter, for %d VMs\n", more, vms)
}

// reportSwap prints the longest that a request took while releases were put in force, and while none was.
func reportSwap(b *testing.B, e *envoy, k keys) {
	b.Helper()
	nothing := func() error { return nil }
	l := load{address: e.listeners["whole"], path: "/", keys: k.known, status: 200, origin: true}
	defer l.close()
	quiet, err := l.run(prepared, 1000, nothing, nothing)
	if err != nil {
		b.Fatal(err)
	}
	const swaps, forever = 5, 1 << 40
	until := make(chan struct{})
	l.until = until
	var longest time.Duration
	ended := make(chan error)
	go func() {
		var err error
		longest, err = l.run(prepared, forever, nothing, nothing)
		ended <- err
	}()
	for i := range swaps {
		number := release + 1 + i
		e.push(b, k.bundle(b, uint64(number), wide))
		e.Until(b, "runs the next release", func() error {
			if got := e.stat(b, "wasmcustom.weir_edge_release"); got != number {
				return fmt.Errorf("runs %d", got)
			}
			return nil
		})
	}
	close(until)
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	fmt.Printf("swap of %d keys: longest request %v across %d pushes, %v without\n",
		keyCount, longest.Round(10*time.Microsecond), swaps, quiet.Round(10*time.Microsecond))
}
