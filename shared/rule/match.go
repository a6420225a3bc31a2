package rule

import (
	"slices"
	"strconv"
)

// pairs are all combinations of the rule's hosts and paths.
func (c *compiler) pairs(spec *Spec) []Pattern {
	paths := c.list(spec.Paths, ".match.paths", checkPath)
	hosts := c.list(spec.Hosts, ".match.hosts", checkHost)
	if len(paths) == 0 {
		paths = []string{anyPath}
	}
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	if c.pairsLeft -= len(paths) * len(hosts); c.pairsLeft < 0 {
		if c.pairsLeft+len(paths)*len(hosts) >= 0 {
			c.fault(spec.MatchAt, ".match", "", "want at most "+strconv.Itoa(maxPairs)+" pairs of a host and a path in all rules together")
		}
		return nil
	}
	pairs := make([]Pattern, 0, len(paths)*len(hosts))
	for _, host := range hosts {
		for _, path := range paths {
			pairs = append(pairs, Pattern{host, path})
		}
	}
	return pairs
}

func (c *compiler) methods(spec *Spec) []string {
	return c.list(spec.Methods, ".match.methods", func(text string) string {
		valid := text != "" && len(text) <= 32
		for i := range len(text) {
			valid = valid && (text[i] >= 'A' && text[i] <= 'Z' || text[i] == '-')
		}
		if !valid {
			return "want an HTTP method in capitals, as GET"
		}
		return ""
	})
}

func (c *compiler) headerNames(spec *Spec) []string {
	return c.list(spec.HeaderNames, ".match.headers", func(text string) string {
		valid := text != "" && len(text) <= maxName
		for i := range len(text) {
			ch := text[i]
			valid = valid && (ch >= 'a' && ch <= 'z' || ch >= '0' && ch <= '9' || ch == '-' || ch == '_')
		}
		if !valid {
			return "want a header's name in lower case, 1 to 63 of a-z, 0-9, -, _"
		}
		return ""
	})
}

// list reads values of which none stands twice.
func (c *compiler) list(scalars []Scalar, field string, check func(string) string) []string {
	if len(scalars) > maxList {
		c.fault(scalars[maxList].At, field, strconv.Itoa(len(scalars)), "want at most "+strconv.Itoa(maxList)+" values")
		return nil
	}
	var values []string
	for i, s := range scalars {
		reason := check(s.Text)
		if reason == "" && slices.Contains(values, s.Text) {
			reason = "stands twice in the list"
		}
		if reason != "" {
			c.fault(s.At, field+"["+strconv.Itoa(i)+"]", s.Text, reason)
			continue
		}
		values = append(values, s.Text)
	}
	return values
}
