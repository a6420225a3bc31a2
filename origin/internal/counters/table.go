package counters

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirproject/weir/origin/internal/terminal"
)

// Write is the report as text for a terminal.
func (r *Report) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "caller\t%s\n", terminal.Printable(r.Caller.String()))
	fmt.Fprintf(table, "release\t%d, content %s\n\n", r.Release.Number, terminal.Printable(r.Release.Content))
	_ = table.Flush() // the head aligns by itself
	if len(r.Counters) == 0 {
		fmt.Fprintln(table, "No counter holds this caller back.")
	} else {
		fmt.Fprintln(table, "RULE\tPRINCIPAL\tENDPOINT\tLIMIT\tFROM\tUSED\tLEFT\tSTATUS\tFREES\tRESETS\tNOTES")
	}
	for i := range r.Counters {
		fmt.Fprintln(table, r.Counters[i].row())
	}
	_ = table.Flush() // errors of w come back from here on
	var more []string
	if r.Unused > 0 {
		more = append(more, fmt.Sprintf("%d more by endpoint were never used: --all shows them.", r.Unused))
	}
	for _, o := range r.Others {
		more = append(more, "Rule "+o.Rule+" counts by "+o.By+", which was not given.")
	}
	if len(more) > 0 {
		fmt.Fprintf(table, "\n%s\n", strings.Join(more, "\n"))
	}
	return table.Flush()
}

// String names the caller.
func (c Caller) String() string {
	var told []string
	for _, p := range []struct{ name, value string }{{"key", c.KeyID}, {"user", c.User}, {"tenant", c.Tenant}, {"tier", c.Tier}, {"address", c.Address}} {
		if p.value != "" {
			told = append(told, p.name+" "+p.value)
		}
	}
	if len(told) == 0 {
		return "anybody"
	}
	return strings.Join(told, ", ")
}

func (c *Counter) row() string {
	limited := c.Limit
	if c.Burst > 0 {
		limited += " burst " + strconv.FormatInt(c.Burst, 10)
	}
	limited += " " + c.Algorithm
	endpoint := "-"
	if c.Pattern != "" {
		endpoint = c.Method + " " + c.Pattern
	}
	var notes []string
	for _, n := range []struct {
		holds bool
		note  string
	}{{c.Mode != "enforce", c.Mode}, {c.Penalised, "penalised"}, {c.DenyCached, "deny cache"}, {c.Error != "", c.Error}} {
		if n.holds {
			notes = append(notes, n.note)
		}
	}
	columns := []string{c.Rule, c.Principal, endpoint, limited, c.Basis,
		strconv.FormatInt(c.Used, 10), strconv.FormatInt(c.Remaining, 10), c.Status, c.frees(), after(c.ResetsIn), strings.Join(notes, ", ")}
	if c.Status == Foreign || c.Status == Lost {
		columns[5], columns[6], columns[8], columns[9] = "?", "?", "?", "?"
	}
	return strings.TrimRight(terminal.Row(columns...), "\t")
}

func (c *Counter) frees() string {
	switch {
	case c.Never:
		return "never"
	case c.FreesIn == 0:
		return "now"
	}
	return after(c.FreesIn)
}

func after(millis int64) string {
	if millis == 0 {
		return "-"
	}
	return "in " + (time.Duration(millis) * time.Millisecond).String()
}

// String tells what was reset.
func (d Done) String() string {
	c := &d.Before
	of := c.Principal
	if c.Pattern != "" {
		of += " (" + c.Method + " " + c.Pattern + ")"
	}
	was := c.Status
	if c.Status == OK || c.Status == Refused {
		was += fmt.Sprintf(", %d of %d used", c.Used, c.Quota)
	}
	return terminal.Printable(fmt.Sprintf("reset: rule %s, %s, which was %s", c.Rule, of, was))
}
