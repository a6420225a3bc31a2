package counters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// maxBody bounds a request; maxText what it says of itself, which goes into the log.
	maxBody = 64 << 10
	maxText = 500
)

// Reset is what [ResetPath] is asked: the one counter of a rule for a caller. Of a rule by endpoint, method and pattern
// name it as a [Report] does.
type Reset struct {
	Rule string `json:"rule"`
	Caller
	Method  string `json:"method,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	Reason  string `json:"reason"` // why, for the audit
	By      string `json:"by"`     // who, for the audit
}

// Done is the counter that was reset, as it was before.
type Done struct {
	Before Counter `json:"before"`
}

func (d *door) reset(r *http.Request) (any, error) {
	want, err := readReset(r)
	if err != nil {
		return nil, err
	}
	of, err := d.ruleOf(want)
	if err != nil {
		return nil, err
	}
	who, err := d.find(&want.Caller)
	if err != nil {
		return nil, err
	}
	h, err := d.one(r, want, of, &who)
	if err != nil {
		return nil, err
	}
	err = d.Limiter.Reset(r.Context(), h)
	line := []any{"audit", true, "action", "counters.reset", "rule", h.Rule.Name, "principal_hash", h.Counter.PrincipalHash(),
		"reason", want.Reason, "author", want.By}
	if failed, ok := errors.AsType[*limiter.StoreError](err); ok && !failed.Asked() {
		d.Log.Error("a counter was not reset, the store was not asked", append(line, "error", err.Error())...)
		return nil, &Failure{Status: http.StatusBadGateway, Text: err.Error() + ": it was not reset, try again"}
	}
	if err != nil {
		d.Log.Error("a counter may have been reset, the store did not say", append(line, "error", err.Error())...)
		return nil, &Failure{Status: http.StatusBadGateway, Text: err.Error() + ": it may have been reset or not, try again"}
	}
	d.Log.Info("a counter was reset", line...)
	return &Done{counterOf(&h)}, nil
}

// readReset reads the request. A page of another site cannot send this media type without asking first, which no answer
// here allows.
func readReset(r *http.Request) (want Reset, err error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return want, &Failure{Status: http.StatusUnsupportedMediaType, Field: "content-type",
			Text: fmt.Sprintf("content-type is %q: want application/json", r.Header.Get("Content-Type"))}
	}
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		return want, bad("body", "cannot be read: %v: want a JSON object of rule, key_id, user, tenant, tier, address, method, pattern, reason, by", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return want, bad("body", "goes on after its JSON object: want one")
	}
	for _, f := range []struct{ name, text string }{{"rule", want.Rule}, {"reason", want.Reason}, {"by", want.By}} {
		switch {
		case strings.TrimSpace(f.text) == "":
			return want, bad(f.name, "is missing: want %s", map[string]string{
				"rule": "the rule whose counter is to be reset", "reason": "why it is reset, for the audit", "by": "who resets it, for the audit"}[f.name])
		case len(f.text) > maxText || !utf8.ValidString(f.text) || strings.ContainsFunc(f.text, unicode.IsControl):
			return want, bad(f.name, "is not one line of text: want at most %d bytes without control characters", maxText)
		}
	}
	return want, nil
}

// ruleOf is the origin rule that is named.
func (d *door) ruleOf(want Reset) (found rule.Rule, err error) {
	var names []string
	for r := range d.Limiter.Release().Set.Rules() {
		if r.Where != rule.Origin {
			continue
		}
		if r.Name == want.Rule {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return found, &Failure{Status: http.StatusNotFound, Field: "rule", Rules: names,
		Text: fmt.Sprintf("rule %q: there is no such rule at this origin: want one of %s", want.Rule, strings.Join(names, ", "))}
}

// one is the counter that is meant.
func (d *door) one(r *http.Request, want Reset, of rule.Rule, who *known) (h limiter.Held, err error) {
	if _, missing := of.Principal(who.has, nil); missing != nil || !who.counts(&of) {
		return h, &Failure{Status: http.StatusConflict, Field: "rule", Text: fmt.Sprintf("rule %s counts by %s: want the caller told by that", of.Name, byOf(of.Terms))}
	}
	held, err := d.Limiter.HoldingOf(r.Context(), who.Caller, of.Name, want.Method, want.Pattern)
	if err == nil && len(held) == 1 && held[0].Method == want.Method && held[0].Pattern == want.Pattern {
		return held[0], nil
	}
	if err == nil && len(held) == 0 { // it is not one that there is: tell those
		held, err = d.Limiter.HoldingOf(r.Context(), who.Caller, of.Name, "", "")
	}
	if err != nil {
		return h, &Failure{Status: http.StatusBadRequest, Field: "method, pattern", Text: err.Error()}
	}
	if len(held) == 0 {
		return h, &Failure{Status: http.StatusConflict, Field: "rule", Text: "rule " + of.Name + " does not limit this caller"}
	}
	var endpoints []string
	for _, c := range held {
		if c.Pattern != "" {
			endpoints = append(endpoints, c.Method+" "+c.Pattern)
		}
	}
	if len(endpoints) == 0 {
		return h, bad("method, pattern", "are for rules by endpoint: rule %s counts by %s", of.Name, byOf(of.Terms))
	}
	return h, &Failure{Status: http.StatusConflict, Field: "method, pattern", Others: endpoints,
		Text: fmt.Sprintf("rule %s counts each endpoint apart: want the method and the pattern of one, as %s", of.Name, endpoints[0])}
}
