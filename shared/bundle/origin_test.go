package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/rule"
)

func some[T any](r *rand.Rand, from ...T) []T {
	var list []T
	for _, v := range from {
		if r.IntN(3) == 0 {
			list = append(list, v)
		}
	}
	return list
}

func one[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func scalars(texts []string) (list []rule.Scalar) {
	for _, text := range texts {
		list = append(list, rule.Scalar{Text: text, Set: true})
	}
	return list
}

func scalar(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }

// randomSet is a set of n rules whose matches overlap in all ways.
func randomSet(t testing.TB, r *rand.Rand, n int) *rule.Set {
	d := rule.Draft{Partial: true} // partial: rules that fight over one scope may stay
	for i := range n {
		s := rule.Spec{
			Name: scalar(fmt.Sprintf("r-%d-%d", r.IntN(1000), i)), Where: scalar(one(r, "origin", "origin", "origin", "edge")),
			By: []rule.Scalar{scalar("address")}, Limit: scalar("1/1s"), Mode: scalar(one(r, "enforce", "enforce", "enforce", "shadow")),
			Headers: scalar(one(r, "full", "retry-only", "none")),
			Paths:   scalars(some(r, "/", "/**", "/a", "/a/b", "/a/*", "/*/b", "/a/**", "/*/b/**", "/a/b/c", "/*/*", "/A", "/a b", "/x")),
			Hosts:   scalars(some(r, "example.com", "*.example.com", "*.com", "[::1]", "a.b.example.com")),
			Methods: scalars(some(r, "GET", "POST", "HEAD", "OPTIONS")), HeaderNames: scalars(some(r, "x-a", "x-b")),
		}
		d.Rules = append(d.Rules, s)
	}
	set, faults := rule.Compile(d)
	if len(faults) > 0 {
		t.Fatalf("%v", faults)
	}
	return set
}

func randomRequest(r *rand.Rand) rule.Request {
	var path strings.Builder
	for range 1 + r.IntN(4) {
		path.WriteString(one(r, "/", "/", "//", "%2F", "\\", "/./", "/../", "/%2e%2e/") +
			one(r, "a", "a", "b", "b", "c", "%61", "A", "", "a;v=1", "x;y", "a%20b", "..;"))
	}
	names := some(r, "x-a", "x-b")
	q := rule.Request{
		Method: one(r, "GET", "POST", "HEAD", "OPTIONS", "get", ""), Path: path.String() + one(r, "", "", "/", "?q=/a"),
		Host: one(r, "example.com", "EXAMPLE.com:80", "www.example.com.", "a.b.example.com", "com", "[::1]:443", "", "other.org"),
	}
	if r.IntN(4) > 0 {
		q.HasHeader = func(name string) bool { return strings.Contains(strings.Join(names, " "), name) }
	}
	return q
}

// A hint of the origin is applied to what the origin would have matched, nothing more and nothing less.
func TestOriginRulesCoverWhatTheOriginMatches(t *testing.T) {
	r := seeded(t)
	covered, not := 0, 0
	for range 60 {
		set := randomSet(t, r, 1+r.IntN(20))
		b, err := Decode(encode(t, Content{Origin: set}))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			q := randomRequest(r)
			matched := map[string]bool{}
			for _, m := range set.Match(rule.Origin, q, nil) {
				if m.Rule.Mode == rule.Enforce {
					matched[m.Rule.Name] = true
				}
			}
			for i := range b.Origin.Len() {
				name := b.Origin.Name(i)
				if got := b.Origin.Covers(i, &q); got != matched[name] {
					t.Fatalf("%s %s%s: %s covers it: %v; matches: %v", q.Method, q.Host, q.Path, name, got, !got)
				}
				if matched[name] {
					covered++
				} else {
					not++
				}
				delete(matched, name)
			}
			if len(matched) > 0 {
				t.Fatalf("%v match and are not in the bundle", matched)
			}
		}
	}
	t.Logf("%d covered, %d not", covered, not)
	if covered < 1000 || not < 1000 {
		t.Error("one of the answers comes up too seldom to say much")
	}
}

func TestOriginRulesAreFoundByName(t *testing.T) {
	r := seeded(t)
	set := randomSet(t, r, 120)
	b, err := Decode(encode(t, Content{Origin: set}))
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for want := range set.Rules() {
		at, ok := b.Origin.Find(want.Name)
		if ok != (want.Where == rule.Origin && want.Mode == rule.Enforce) {
			t.Fatalf("%s, %v %v: found %v", want.Name, want.Where, want.Mode, ok)
		}
		if !ok {
			continue
		}
		held++
		if b.Origin.Name(at) != want.Name || b.Origin.Headers(at) != want.Headers {
			t.Errorf("%s: %s with headers %v, want %v", want.Name, b.Origin.Name(at), b.Origin.Headers(at), want.Headers)
		}
	}
	if held == 0 || held != b.Origin.Len() {
		t.Errorf("%d found of %d", held, b.Origin.Len())
	}
	for _, name := range []string{"", "r", "r-", "zzz", "~"} {
		if _, ok := b.Origin.Find(name); ok {
			t.Errorf("%q is found", name)
		}
	}
	if _, ok := (OriginRules{}).Find("a"); ok || (OriginRules{}).Len() != 0 {
		t.Error("no rules hold one")
	}
	q := rule.Request{Method: "GET", Path: "/a/b/c", Host: "www.example.com", HasHeader: func(string) bool { return true }}
	name := []byte(b.Origin.Name(5))
	if n := testing.AllocsPerRun(1000, func() {
		if i, ok := b.Origin.Find(string(name)); !ok || b.Origin.Name(i) == "" {
			t.Error("not found")
		}
		for i := range b.Origin.Len() {
			b.Origin.Covers(i, &q)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// All that a rules file may hold fits: the most rules, the most patterns on one rule.
func TestTheMostRulesFit(t *testing.T) {
	d := rule.Draft{Partial: true}
	for i := range rule.MaxRules {
		d.Rules = append(d.Rules, rule.Spec{Name: scalar(fmt.Sprintf("rule-%d", i)), Where: scalar("origin"), By: []rule.Scalar{scalar("key")},
			Limit: scalar("1/1s"), Paths: []rule.Scalar{scalar(fmt.Sprintf("/api/v1/things-%d/**", i))}})
	}
	for i := range 64 {
		d.Rules[0].Paths = append(d.Rules[0].Paths[:i:i], scalar(fmt.Sprintf("/%d/%s", i, strings.Repeat("a", 1000))))
		d.Rules[0].Hosts = append(d.Rules[0].Hosts, scalar(fmt.Sprintf("h%d.example.com", i)))
	}
	set, faults := rule.Compile(d)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	b, err := Decode(encode(t, Content{Origin: set}))
	if err != nil || b.Origin.Len() != rule.MaxRules {
		t.Fatalf("%d rules, %v", b.Origin.Len(), err)
	}
	i, _ := b.Origin.Find("rule-0")
	if q := (rule.Request{Path: "/63/" + strings.Repeat("a", 1000), Host: "h63.example.com"}); !b.Origin.Covers(i, &q) {
		t.Error("the last of many patterns is lost")
	}
}

func TestDamagedOriginRulesAreRefused(t *testing.T) {
	set, faults := rule.Compile(rule.Draft{Rules: []rule.Spec{
		{Name: scalar("a"), Where: scalar("origin"), By: []rule.Scalar{scalar("key")}, Limit: scalar("1/1s"), Methods: scalars([]string{"GET"}), Paths: scalars([]string{"/a"})},
		{Name: scalar("b"), Where: scalar("origin"), By: []rule.Scalar{scalar("key")}, Limit: scalar("2/1s"), Paths: scalars([]string{"/b"})},
	}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	good, err := encodeOrigin(set)
	if err != nil {
		t.Fatal(err)
	}
	first := originHead + 2*4
	with := func(at int, v ...byte) []byte { b := bytes.Clone(good); copy(b[at:], v); return b }
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"no offsets":         good[:first-1],
		"a rule more":        with(0, 3),
		"a rule less":        with(0, 1),
		"2^32-1 rules":       with(0, 0xff, 0xff, 0xff, 0xff),
		"cut":                good[:len(good)-1],
		"longer":             append(bytes.Clone(good), 0),
		"an offset beyond":   with(originHead+4, 0xff, 0xff),
		"both at one place":  with(originHead+4, good[originHead:originHead+4]...),
		"unknown headers":    with(first, 3),
		"a name that is not": with(first+2, 'A'),
		"out of order":       with(first+2, 'c'),
		"one name twice":     with(first+2, 'b'),
		"too many methods":   with(first+3, 0xff),
		"a path too long":    with(len(good)-3, 0xff),
		"many patterns":      with(first+11, 0xff),
	} {
		if o, err := decodeOrigin(b); !errors.Is(err, ErrOriginRules) || o.Len() != 0 {
			t.Errorf("%s: %v, want %v", name, err, ErrOriginRules)
		}
	}
}

// originSet is a small set of origin rules.
var originSet, originFaults = rule.Compile(rule.Draft{Rules: []rule.Spec{
	{Name: scalar("search"), Where: scalar("origin"), By: []rule.Scalar{scalar("key")}, Limit: scalar("1/1s"), Paths: scalars([]string{"/search/**"}), Methods: scalars([]string{"GET"})},
	{Name: scalar("all"), Where: scalar("origin"), By: []rule.Scalar{scalar("address")}, Limit: scalar("9/1m"), HeaderNames: scalars([]string{"x-a"}), Hosts: scalars([]string{"*.example.com"})},
}})

// Whatever the bytes: refused, or rules that answer any request without leaving them.
func FuzzDecodeOrigin(f *testing.F) {
	good, err := encodeOrigin(originSet)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "/search/a", "www.example.com")
	f.Add([]byte{0, 0, 0, 0}, "/a//../b", "")
	f.Fuzz(func(t *testing.T, b []byte, path, host string) {
		o, err := decodeOrigin(b)
		if err != nil {
			return
		}
		q := rule.Request{Method: "HEAD", Path: path, Host: host, HasHeader: func(string) bool { return true }}
		for i := range o.Len() {
			if at, ok := o.Find(o.Name(i)); !ok || at != i {
				t.Fatalf("%s is at %d, found at %d, %v", o.Name(i), i, at, ok)
			}
			o.Covers(i, &q)
			o.Headers(i)
		}
	})
}

// Whatever the bytes: refused, or networks that answer any address without leaving them.
func FuzzDecodeNetworks(f *testing.F) {
	good, err := encodeNetworks([]rule.Network{{Bits: 8, Address: [16]byte{10}}}, []rule.Network{{V6: true, Bits: 3, Address: [16]byte{0x20}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, uint64(1)<<61, uint64(0))
	f.Add(make([]byte, networksHead), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, high, low uint64) {
		n, err := decodeNetworks(b)
		if err != nil {
			return
		}
		if n.Find(true, high, low) > Deny || n.Find(false, high, low) > Deny {
			t.Fatal("an unknown treatment")
		}
	})
}
