package counters

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Report is what holds a caller back, or could.
type Report struct {
	Caller   Caller    `json:"caller"` // with the tenant and the tier that it was found to have
	Release  Release   `json:"release"`
	Counters []Counter `json:"counters"` // those that hold longest first
	Unused   int       `json:"unused"`   // counters by endpoint that were never used, which are left out unless all are asked for
	Others   []Other   `json:"others"`   // origin rules that have no counter of a caller who is told by so much
}

// Release is the rule set that was asked.
type Release struct {
	Number  uint64 `json:"number"`
	Content string `json:"content"`
}

// Other is a rule that counts by what was not told.
type Other struct {
	Rule string `json:"rule"`
	By   string `json:"by"`
}

// The statuses of a counter.
const (
	OK      = "ok"      // the next call of the rule's cost passes
	Refused = "refused" // it does not, by the counter or by a penalty
	Foreign = "foreign" // the store has something there that is no counter: the rule's on-store-failure answers
	Lost    = "lost"    // the store did not answer
)

// Counter is one counter as it stands. Penalised and DenyCached are of this process: others remember their own.
type Counter struct {
	Rule      string `json:"rule"`
	Mode      string `json:"mode"`              // enforce or shadow
	Principal string `json:"principal"`         // as key=acme-prod endpoint
	Method    string `json:"method,omitempty"`  // of a rule by endpoint
	Pattern   string `json:"pattern,omitempty"` // likewise
	Algorithm string `json:"algorithm"`
	Limit     string `json:"limit"` // as 100/1m
	Burst     int64  `json:"burst,omitempty"`
	Basis     string `json:"basis"` // what the limit was taken from: rule, tier, strictest tier, override for key, user, tenant
	Status    string `json:"status"`
	Quota     int64  `json:"quota"` // what a caller may spend at once
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	// FreesIn is after how long the next call of the rule's cost passes, 0 if it does now, at the latest of a cost above 1;
	// Never if it does not, however long one waits. ResetsIn is after how long the counter equals a fresh one.
	FreesIn    int64  `json:"frees_in_ms"`
	Never      bool   `json:"never,omitempty"`
	ResetsIn   int64  `json:"resets_in_ms"`
	Penalised  bool   `json:"penalised"`
	DenyCached bool   `json:"deny_cached"`
	Error      string `json:"error,omitempty"` // why it is lost
}

func (d *door) show(r *http.Request) (any, error) {
	q, err := readQuestion(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	who, err := d.find(&q.Caller)
	if err != nil {
		return nil, err
	}
	held, err := d.Limiter.Holding(r.Context(), who.Caller, q.request())
	if err != nil {
		return nil, &Failure{Status: http.StatusBadRequest, Field: "path", Text: err.Error()}
	}
	release := d.Limiter.Release()
	report := &Report{Caller: q.Caller, Release: Release{release.Number, release.Content}, Counters: []Counter{}, Others: []Other{}}
	shown := map[string]bool{}
	for i := range held {
		h := &held[i]
		if !who.counts(&h.Rule) {
			continue
		}
		shown[h.Rule.Name] = true
		c := counterOf(h)
		if !q.All && h.Pattern != "" && c.Status == OK && c.Used == 0 && !c.Penalised {
			report.Unused++
			continue
		}
		report.Counters = append(report.Counters, c)
	}
	slices.SortStableFunc(report.Counters, byHold)
	if q.Path == "" {
		for ru := range release.Set.Rules() {
			if _, missing := ru.Principal(who.has, nil); ru.Where == rule.Origin && missing != nil {
				report.Others = append(report.Others, Other{ru.Name, byOf(ru.Terms)})
			}
		}
	}
	return report, nil
}

// byHold sorts what holds longest first, then what has the least of its quota left.
func byHold(a, b Counter) int {
	held := func(c Counter) int {
		switch {
		case c.Never:
			return 0
		case c.FreesIn > 0:
			return 1
		case c.Status != OK:
			return 2
		}
		return 3
	}
	left := func(c Counter) float64 { return float64(c.Remaining) / float64(max(1, c.Quota)) }
	return cmp.Or(cmp.Compare(held(a), held(b)), cmp.Compare(b.FreesIn, a.FreesIn), cmp.Compare(left(a), left(b)))
}

func byOf(t *rule.Terms) string {
	choices := make([]string, len(t.By))
	for i, c := range t.By {
		choices[i] = c.String()
	}
	return strings.Join(choices, ", ")
}

func counterOf(h *limiter.Held) Counter {
	c := Counter{
		Rule: h.Rule.Name, Mode: h.Rule.Mode.String(), Principal: h.Principal, Method: h.Method, Pattern: h.Pattern,
		Algorithm: h.Rule.Algorithm.String(), Limit: rule.FormatRate(h.Limit), Burst: h.Limit.Burst, Basis: basis(h.Basis),
		Penalised: h.Penalised, DenyCached: h.DenyCached,
	}
	switch {
	case h.Err != nil:
		c.Status, c.Error = Lost, h.Err.Error()
		return c
	case h.Status == limiter.Lost:
		c.Status = Lost
		return c
	case h.Status == limiter.Foreign:
		c.Status = Foreign
		return c
	}
	d := h.Decision
	if c.Status = OK; h.Status != limiter.Admitted || !d.Allowed || h.Penalised {
		c.Status = Refused
		c.Never = d.RetryAfter == limit.Never
		c.FreesIn = max(millis(d.RetryAfter), millis(h.PenaltyLeft))
	}
	c.Quota, c.Remaining, c.Used, c.ResetsIn = d.Limit, d.Remaining, d.Limit-d.Remaining, millis(d.ResetAfter)
	return c
}

// millis rounds up; 0 for a wait that never ends.
func millis(m limit.Micros) int64 {
	if m == limit.Never {
		return 0
	}
	return int64((m + limit.Millisecond - 1) / limit.Millisecond)
}

func basis(b rule.Basis) string {
	switch b {
	case rule.OfStrictest:
		return "strictest tier"
	case rule.OfTier:
		return "tier"
	case rule.OfTenant:
		return "override for tenant"
	case rule.OfUser:
		return "override for user"
	case rule.OfKey:
		return "override for key"
	}
	return "rule"
}
