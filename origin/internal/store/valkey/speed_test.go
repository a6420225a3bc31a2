package valkey

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// BenchmarkFunction measures what a call costs the server: µs of the function as INFO commandstats counts them
// (server-us/op), µs of the server's processor with all it takes to read the call and to answer it (cpu-us/op), and both as
// multiples of what one rule costs in the same run (x-one-rule, x-one-cpu). Ten thousand
// counters, 64 callers on one connection.
func BenchmarkFunction(b *testing.B) {
	f := newLive(b, production)
	for _, a := range algorithms {
		for _, verdict := range []string{"admitted", "refused"} {
			f.measure(b, a, verdict)
		}
	}
}

const (
	benchCounters = 10_000
	benchCallers  = 64
)

func (f *live) measure(b *testing.B, a rule.Algorithm, verdict string) {
	l := limit.Limit{Count: 1_000_000, Window: limit.Hour}
	if a == rule.SlidingLog {
		l.Count = limit.MaxLogCount
	}
	ruleCounts := []int{1, 3, 6}
	commands := make([][]valkey.Completed, len(ruleCounts))
	if err := f.do("FLUSHALL").Error(); err != nil {
		b.Fatal(err)
	}
	for i, rules := range ruleCounts {
		for n := range benchCounters / 10 {
			charges := make([]limiter.Charge, rules)
			for j := range charges {
				charges[j] = chargeOf(n*10+j, a, l, 1)
				if verdict == "refused" && j == rules-1 {
					charges[j].Cost = l.Count // more than is left of what the calls before took
				}
			}
			r := f.library.take(limit.Micros(limit.MaxCount), 0, limiter.CallID{}, charges)
			commands[i] = append(commands[i], f.client.B().Fcall().Function(r.function).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build().Pin())
		}
	}
	for n := range benchCounters { // every counter exists, as most do
		f.client.Do(context.Background(), f.client.B().Arbitrary("FCALL", f.library.check).Args(fcallArgs(f.library.take(limit.Micros(limit.MaxCount), 0, limiter.CallID{}, []limiter.Charge{chargeOf(n, a, l, 1)}))...).Build())
	}
	var one [2]float64
	for i, rules := range ruleCounts {
		b.Run(fmt.Sprintf("algorithm=%s/verdict=%s/rules=%d", a, verdict, rules), func(b *testing.B) {
			b.SetParallelism(benchCallers / runtime.GOMAXPROCS(0))
			before, used := f.spent(b)
			b.RunParallel(func(pb *testing.PB) {
				for n := rand.IntN(len(commands[i])); pb.Next(); n++ {
					if err := f.client.Do(context.Background(), commands[i][n%len(commands[i])]).Error(); err != nil {
						b.Error(err)
						return
					}
				}
			})
			after, usedAfter := f.spent(b)
			calls := float64(after.calls - before.calls)
			perCall, cpu := float64(after.us-before.us)/calls, (usedAfter-used)*1e6/calls
			if rules == 1 {
				one = [2]float64{perCall, cpu}
			}
			b.ReportMetric(perCall, "server-us/op")
			b.ReportMetric(cpu, "cpu-us/op")
			b.ReportMetric(perCall/one[0], "x-one-rule")
			b.ReportMetric(cpu/one[1], "x-one-cpu")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func fcallArgs(r request) []string {
	return append(append([]string{strconv.Itoa(len(r.keys))}, r.keys...), r.args...)
}

// stat is what the server says of a command.
type stat struct{ calls, us int64 }

// spent is what the server has spent on functions, µs, and of its processor, s.
func (f *live) spent(b testing.TB) (s stat, cpu float64) {
	text, err := f.do("INFO", "commandstats", "cpu").ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var v float64
		fmt.Sscanf(line, "cmdstat_fcall:calls=%d,usec=%d", &s.calls, &s.us)
		for _, part := range []string{"used_cpu_user:%g", "used_cpu_sys:%g"} {
			if n, _ := fmt.Sscanf(line, part, &v); n == 1 {
				cpu += v
			}
		}
	}
	return s, cpu
}
