package rules

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

// maxListFaults keeps a file of networks that is none from answering with as many lines.
const maxListFaults = 20

// readEdge takes what a file says of the edge beside its rules. faults are those in files of networks.
func readEdge(v document.Value, folder string) (s rule.EdgeSpec, faults rule.Faults) {
	fields := v.Fields("exempt", "deny", "exempt-file", "deny-file", "table-entries", "stale-after", "unverified")
	for _, list := range []struct {
		name string
		to   *[]rule.NetworkSpec
	}{{"exempt", &s.Exempt}, {"deny", &s.Deny}} {
		more, wrong := listed(fields.Get(list.name+"-file"), folder)
		*list.to = append(networks(fields.Get(list.name)), more...)
		faults = append(faults, wrong...)
	}
	s.TableEntries, s.StaleAfter = fields.Get("table-entries").Scalar(), fields.Get("stale-after").Scalar()
	if v := fields.Get("unverified"); v.Present() {
		unverified := v.Fields("limit", "burst")
		s.UnverifiedAt, s.UnverifiedLimit, s.UnverifiedBurst = v.At(), unverified.Get("limit").Scalar(), unverified.Get("burst").Scalar()
	}
	return s, faults
}

// networks reads a list of networks. One that cannot be read is a fault, and left out.
func networks(v document.Value) (specs []rule.NetworkSpec) {
	for _, item := range v.Items() {
		text := item.Scalar()
		if !text.Set {
			continue
		}
		n, reason := parseNetwork(text.Text)
		if reason != "" {
			item.Fault(reason)
			continue
		}
		specs = append(specs, rule.NetworkSpec{At: text.At, Field: item.Field(), Text: text.Text, Network: n})
	}
	return specs
}

// listed reads the file of networks that v names, one a line. What follows a # is a comment.
func listed(v document.Value, folder string) (specs []rule.NetworkSpec, faults rule.Faults) {
	name := v.Scalar()
	if !name.Set || folder == "" {
		return nil, nil
	}
	path := name.Text
	if path == "" {
		v.Fault("want the name of a file")
		return nil, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	content, err := document.Content(path)
	if err != nil {
		v.Fault("cannot be read: " + err.Error())
		return nil, nil
	}
	if len(content) > document.MaxBytes {
		v.Fault("is too large: want at most " + strconv.Itoa(document.MaxBytes) + " bytes")
		return nil, nil
	}
	seen := map[rule.Network]bool{}
	line := 0
	for text := range bytes.Lines(content) {
		line++
		text, _, _ = bytes.Cut(text, []byte("#"))
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		at := rule.Source{File: path, Line: line}
		n, reason := parseNetwork(string(text))
		switch {
		case reason != "":
			faults = append(faults, rule.Fault{At: at, Value: string(text), Want: reason})
		case !seen[n]:
			seen[n] = true
			specs = append(specs, rule.NetworkSpec{At: at, Text: string(text), Network: n})
		}
		if len(faults) == maxListFaults {
			return nil, append(faults, rule.Fault{At: rule.Source{File: path}, Want: "is not read on after " + strconv.Itoa(maxListFaults) + " faults"})
		}
		if len(specs) > rule.MaxNetworks {
			return nil, append(faults, rule.Fault{At: at, Want: "want at most " + strconv.Itoa(rule.MaxNetworks) + " networks"})
		}
	}
	return specs, faults
}

// parseNetwork reads an address or a network, v4 mapped into v6 as v4. reason, if any, says what is allowed.
func parseNetwork(text string) (n rule.Network, reason string) {
	const want = "want an address or a network, as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
	var p netip.Prefix
	var err error
	if strings.Contains(text, "/") {
		p, err = netip.ParsePrefix(text)
	} else {
		var a netip.Addr
		a, err = netip.ParseAddr(text)
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
		if a.Zone() != "" {
			return n, want + ", without a zone"
		}
	}
	if err != nil {
		return n, want
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return n, "is neither of v4 nor of v6: want the v4 network, or a v6 network outside ::ffff:0:0/96"
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if whole := p.Masked(); whole != p {
		return n, "begins before it: want " + whole.String()
	}
	n.V6, n.Bits = p.Addr().Is6(), uint8(p.Bits())
	copy(n.Address[:], p.Addr().AsSlice())
	return n, ""
}
