// Package explain says which rules apply to a request, with which principal and limit, and why the others do not.
package explain

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/terminal"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Question is a request to explain. Parts that it has not are empty.
type Question struct {
	Method  string
	Path    string // as a client would send it
	Host    string
	Caller  rule.Caller
	Address netip.Addr
	Headers []string // names, or `Name: value`
}

// ParseTarget reads PATH, as /search?q=1, or a whole URL, whose host it gives.
func ParseTarget(target string) (host, path string, err error) {
	if strings.HasPrefix(target, "/") {
		return "", target, nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", "", fmt.Errorf("target %q: want a path that begins with /, or a URL with http or https", target)
	}
	// The path is taken as written, which url.URL does not keep in all cases.
	_, rest, _ := strings.Cut(target, "://")
	if at := strings.IndexAny(rest, "/?#"); at >= 0 && rest[at] == '/' {
		return u.Host, rest[at:], nil
	}
	return u.Host, "/", nil
}

// Write explains q by the rules of s, as text for a terminal. Every rule of the set is named.
func Write(w io.Writer, s *rule.Set, q Question) error {
	e := explanation{set: s, q: q}
	e.request = rule.Request{Method: q.Method, Path: q.Path, Host: q.Host, HasHeader: func(name string) bool {
		return slices.ContainsFunc(q.Headers, func(h string) bool {
			h, _, _ = strings.Cut(h, ":")
			return strings.EqualFold(strings.TrimSpace(h), name)
		})
	}}
	networks := rules.NewNetworks(s.EdgeSettings)
	e.treatment, e.network = networks.Find(q.Address)
	for r := range s.Rules() {
		e.rule(&r)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	e.head(table)
	section := func(title, columns string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(table, "\n%s\n  %s\n  %s\n", title, columns, strings.Join(lines, "\n  "))
		}
		_ = table.Flush() // sections align by themselves
	}
	section("Applies", "RULE\tLINE\tWHERE\tPRINCIPAL\tENDPOINT\tLIMIT\tFROM", e.applies)
	section("Does not apply", "RULE\tLINE\tWHERE\tWHY", e.others)
	switch {
	case e.treatment == rules.Denied:
		fmt.Fprintf(table, "\nThe edge refuses this request with 403, since %s is denied.\n", e.network)
	case !e.limited:
		fmt.Fprintf(table, "\nNo enforced rule applies: nothing limits this request.\n")
	}
	return table.Flush()
}

type explanation struct {
	set     *rule.Set
	q       Question
	request rule.Request
	applies []string
	others  []string
	limited bool
	// The network of the edge block that decides about the address, if there is one.
	treatment rules.Treatment
	network   netip.Prefix
}

func (e *explanation) head(w io.Writer) {
	fmt.Fprintf(w, "request\t%s\n", terminal.Printable(e.q.Method+" "+e.q.Path))
	if e.q.Host != "" {
		fmt.Fprintf(w, "host\t%s\n", terminal.Printable(e.q.Host))
	}
	fmt.Fprintf(w, "read as\t%s\n", terminal.Printable(strings.Join(rule.Readings(e.q.Path), "  and  ")))
	var who []string
	for _, p := range []struct{ name, value string }{
		{"key", e.q.Caller.Key}, {"user", e.q.Caller.User}, {"tenant", e.q.Caller.Tenant}, {"tier", e.q.Caller.Tier}, {"address", e.address()},
	} {
		if p.value != "" {
			who = append(who, p.name+" "+p.value)
		}
	}
	if len(who) == 0 {
		who = []string{"nothing known"}
	}
	fmt.Fprintf(w, "caller\t%s\n", terminal.Printable(strings.Join(who, ", ")))
}

func (e *explanation) address() string {
	if !e.q.Address.IsValid() {
		return ""
	}
	return e.q.Address.String()
}

// rule files one rule under those that apply or those that do not.
func (e *explanation) rule(r *rule.Rule) {
	pattern, matched, line := "", false, strconv.Itoa(int(r.Line))
	switch {
	case e.treatment == rules.Denied:
		e.others = append(e.others, terminal.Row(r.Name, line, r.Where.String(), "the edge refuses all requests from "+e.network.String()))
		return
	case e.treatment == rules.Exempt && r.Where == rule.Edge:
		e.others = append(e.others, terminal.Row(r.Name, line, r.Where.String(), "the address is exempt, as one of "+e.network.String()))
		return
	}
	for _, m := range e.set.Match(r.Where, e.request, nil) {
		if m.Rule.Index == r.Index {
			pattern, matched = m.Pattern, true
		}
	}
	if !matched {
		e.others = append(e.others, terminal.Row(r.Name, line, r.Where.String(), e.set.Mismatch(r, e.request)))
		return
	}
	chosen, missing := r.Principal(e.present(), nil)
	if missing != nil {
		e.others = append(e.others, terminal.Row(r.Name, line, r.Where.String(), "the request has no "+strings.Join(strings.Split(missing.String(), "|"), " and no ")+", which it is limited by"))
		return
	}
	e.limited = e.limited || r.Mode == rule.Enforce
	principal := make([]string, len(chosen))
	for i, part := range chosen {
		principal[i] = e.part(r, part)
	}
	allowed, from := e.limit(r, chosen)
	name := r.Name
	if r.Mode == rule.Shadow {
		name += " (shadow)"
	}
	e.applies = append(e.applies, terminal.Row(name, line, r.Where.String(), strings.Join(principal, " "), rule.EndpointMethod(e.q.Method)+" "+pattern, allowed, from))
}

func (e *explanation) present() (p rule.Parts) {
	for _, part := range []struct {
		part rule.Part
		has  bool
	}{{rule.Key, e.q.Caller.Key != ""}, {rule.User, e.q.Caller.User != ""}, {rule.Tenant, e.q.Caller.Tenant != ""}, {rule.Address, e.q.Address.IsValid()}} {
		if part.has {
			p = p.With(part.part)
		}
	}
	return p
}

func (e *explanation) part(r *rule.Rule, part rule.Part) string {
	switch part {
	case rule.Key:
		return "key=" + e.q.Caller.Key
	case rule.User:
		return "user=" + e.q.Caller.User
	case rule.Tenant:
		return "tenant=" + e.q.Caller.Tenant
	case rule.Address:
		text := "address=" + Network(r, e.q.Address)
		if r.OuterV6 > 0 && e.q.Address.Unmap().Is6() {
			text += " and " + prefix(e.q.Address, r.OuterV6)
		}
		return text
	}
	return part.String()
}

// Network is the part of an address that is one principal of r, as 192.0.2.7/32.
func Network(r *rule.Rule, address netip.Addr) string {
	v4, v6 := rule.DefaultPrefixV4, rule.DefaultPrefixV6
	if r.Where == rule.Edge {
		v4, v6 = r.PrefixV4, r.PrefixV6
	}
	if address.Unmap().Is4() {
		return prefix(address, v4)
	}
	return prefix(address, v6)
}

func prefix(address netip.Addr, bits int) string {
	p, err := address.Unmap().WithZone("").Prefix(bits)
	if err != nil { // bits are validated with the rule
		return address.String()
	}
	return p.String()
}

// limit is what r admits of the caller, and why that much.
func (e *explanation) limit(r *rule.Rule, chosen []rule.Part) (allowed, from string) {
	if r.Where == rule.Edge && e.q.Caller.Key != "" {
		if r.Valid == nil {
			return Limit(r, r.Limit), "the rule, in a bucket of known keys"
		}
		return Limit(r, *r.Valid), "the rule's valid-key, if the key was issued"
	}
	g := e.set.Grant(r, chosen, e.q.Caller)
	allowed = Limit(r, g.Limit)
	if g.Unlimited {
		allowed = "unlimited"
	}
	switch g.Basis {
	case rule.OfKey:
		return allowed, "an override for key " + e.q.Caller.Key
	case rule.OfUser:
		return allowed, "an override for user " + e.q.Caller.User
	case rule.OfTenant:
		return allowed, "an override for tenant " + e.q.Caller.Tenant
	case rule.OfTier:
		return allowed, "tier " + e.q.Caller.Tier
	case rule.OfStrictest:
		if tiered := func(p rule.Part) bool { return p == rule.Key || p == rule.User || p == rule.Tenant }; e.q.Caller.Tier != "" && slices.ContainsFunc(chosen, tiered) {
			return allowed, "the strictest tier, as the rules have no tier " + e.q.Caller.Tier
		}
		return allowed, "the strictest tier, as the principal has none"
	}
	return allowed, "the rule"
}

// Limit spells a limit of r: rate, burst, algorithm.
func Limit(r *rule.Rule, l limit.Limit) string {
	text := rule.FormatRate(l)
	if l.Burst != 0 {
		text += fmt.Sprintf(" burst %d", l.Burst)
	}
	text += " " + r.Algorithm.String()
	if r.Cost != 1 {
		text += fmt.Sprintf(", cost %d", r.Cost)
	}
	return text
}

// ParseMethod reads a method as rules compare it: the usual ones in capitals, however a shell's user writes them.
func ParseMethod(text string) (string, error) {
	if upper := strings.ToUpper(text); slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace}, upper) {
		return upper, nil
	}
	if text == "" || strings.ContainsFunc(text, func(c rune) bool { // RFC 9110 section 5.6.2
		return !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	}) {
		return "", fmt.Errorf("method %q: want an HTTP method, as GET", text)
	}
	return text, nil
}
