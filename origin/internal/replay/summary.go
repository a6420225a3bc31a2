package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// rankingSize is how many principals a rule's ranking holds, of n rules: whoever got more than one part in that of the
// rule's refusals is in it. All rankings together hold a million at most.
func rankingSize(n int) int { return min(10_000, 1_000_000/n) }

// RuleStats are what one rule did to a trace.
type RuleStats struct {
	Rule     *rule.Rule
	Seen     int64 // calls that it was asked about
	Admitted int64 // that it admitted and, but for peeks, charged
	Refused  int64 // that it refused; of a shadow rule, that it would have
	Never    int64 // of those refused, that no wait would have helped
	Void     int64 // that it would have admitted, had another rule
	Absent   int64 // calls that it matched without a principal to limit
	// PeakSeen and PeakAdmitted are the most calls within a second of the clock.
	PeakSeen, PeakAdmitted int64

	refused       *ranking
	second        limit.Micros
	seen, charged int64 // in that second
}

// Refusal is a principal that a rule refused often.
type Refusal struct {
	Principal string
	Count     int64 // refusals, too high by at most Error
	Error     int64
}

// Top are the n principals that the rule refused most, all if n is negative, as far as it is certain: none of whom most of
// the count may be others'.
func (s *RuleStats) Top(n int) []Refusal {
	var list []Refusal
	for _, r := range s.refused.top(n) {
		if r.error <= r.count/2 {
			list = append(list, Refusal{spell(r.name), r.count, r.error})
		}
	}
	return list
}

func (s *RuleStats) add(d *Decision) {
	// A line that is late counts in the second that the trace is in, unless it was that second's line which was ahead.
	if second := d.At - d.At%limit.Second; second > s.second || second < s.second-slack || s.Seen == 0 {
		s.second, s.seen, s.charged = second, 0, 0
	}
	s.Seen++
	s.seen++
	s.PeakSeen = max(s.PeakSeen, s.seen)
	switch {
	case !d.Allowed:
		s.Refused++
		if d.RetryAfter == limit.Never {
			s.Never++
		}
		s.refused.add(d.Principal)
	case d.Charged || d.peek:
		s.Admitted++
		s.charged++
		s.PeakAdmitted = max(s.PeakAdmitted, s.charged)
	default:
		s.Void++
	}
}

// Summary is what a trace came to.
type Summary struct {
	Format      Format
	Lines       int64 // that hold something
	Bad         int64 // of them, that could not be read
	Calls       int64
	Unlimited   int64 // calls that no enforced rule was asked about
	Refused     int64 // calls that some enforced rule refused, or the edge for their address
	Denied      int64 // of those refused, from addresses that the edge denies: no rule was asked
	Exempt      int64 // calls from addresses that no edge rule is for
	First, Last limit.Micros
	Back        int64        // calls earlier than the latest before them
	MaxBack     limit.Micros // how much at most
	Shed        int64        // counters dropped for want of memory
	Rules       []*RuleStats // in the order of the file
}

// Print writes the summary as tables for a terminal, with the top refused principals of each rule, as [RuleStats.Top] gives
// them.
func (s *Summary) Print(w io.Writer, top int) error {
	fmt.Fprintf(w, "%s calls in %s", grouped(s.Calls), span(s.Last-s.First))
	if s.Calls > 0 {
		fmt.Fprintf(w, ", %s to %s", clock(s.First), clock(s.Last))
	}
	fmt.Fprintf(w, "; %s admitted, %s refused\n", grouped(s.Calls-s.Refused), grouped(s.Refused))
	for _, note := range []note{
		{s.Bad, "line", "could not be read"},
		{s.Denied, "call", "refused since the edge denies the address: no rule was asked"},
		{s.Exempt, "call", "from exempt addresses: no rule of the edge was asked"},
		{s.Unlimited, "call", "met no enforced rule"},
		{s.Back, "call", "came earlier than one before, by at most " + span(s.MaxBack)},
		{s.Shed, "counter", "dropped before its time, for want of memory: some principals may have been admitted too much"},
	} {
		if note.n > 0 {
			fmt.Fprintln(w, note)
		}
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tLIMIT\tSEEN\tADMITTED\tREFUSED\tREFUSED %\tPEAK SEEN/s\tPEAK ADMITTED/s")
	for _, r := range s.Rules {
		share := "-"
		if r.Seen > 0 {
			share = strconv.FormatFloat(100*float64(r.Refused)/float64(r.Seen), 'f', 2, 64)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", ruleName(r.Rule), ruleLimit(r.Rule), grouped(r.Seen), grouped(r.Admitted),
			grouped(r.Refused), share, grouped(r.PeakSeen), grouped(r.PeakAdmitted))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range s.Rules {
		r.printMore(w, top)
	}
	return nil
}

// note is a line about n of something.
type note struct {
	n          int64
	noun, text string
}

func (t note) String() string {
	if t.n != 1 {
		t.noun += "s"
	}
	return grouped(t.n) + " " + t.noun + " " + t.text
}

// printMore writes what the table has no room for.
func (s *RuleStats) printMore(w io.Writer, top int) {
	var lines []string
	for _, note := range []note{
		{s.Never, "call", "refused for a cost that the limit can never admit"},
		{s.Void, "call", "had room here, but met a refusal of another rule"},
		{s.Absent, "call", "matched, but had no " + by(s.Rule) + " to be limited by"},
	} {
		if note.n > 0 {
			lines = append(lines, note.String())
		}
	}
	refused := s.Top(top)
	if s.Refused > 0 && len(refused) == 0 && top != 0 {
		lines = append(lines, "no principal stands out among those refused")
	}
	if len(refused) > 0 {
		lines = append(lines, "most refused:")
		for _, r := range refused {
			count := grouped(r.Count)
			if r.Error > 0 {
				count = grouped(r.Count-r.Error) + " to " + count
			}
			lines = append(lines, "  "+count+"  "+r.Principal)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n  %s\n", ruleName(s.Rule), strings.Join(lines, "\n  "))
	}
}

func ruleName(r *rule.Rule) string {
	if r.Mode == rule.Shadow {
		return r.Name + " (shadow)"
	}
	return r.Name
}

func ruleLimit(r *rule.Rule) string {
	text := rule.FormatRate(r.Limit)
	if r.Limit.Burst > 0 {
		text += " burst " + grouped(r.Limit.Burst)
	}
	text += " " + r.Algorithm.String()
	if r.Tier {
		text = "by tier " + r.Algorithm.String()
	}
	return text
}

func by(r *rule.Rule) string {
	var texts []string
	for _, choice := range r.By {
		texts = append(texts, choice.String())
	}
	return strings.Join(texts, " or ")
}

// grouped is 1234567 as 1,234,567.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// span is a duration of the trace. time.Duration reaches 292 years; no longer one is told apart.
func span(d limit.Micros) string {
	const most = limit.Micros(1<<63-1) / 1000
	return (time.Duration(min(max(d, -most), most)) * time.Microsecond).String()
}

func clock(at limit.Micros) string { return time.UnixMicro(int64(at)).UTC().Format(time.RFC3339Nano) }
