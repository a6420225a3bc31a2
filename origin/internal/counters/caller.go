package counters

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// Caller is who is asked about: by at most one of key, user and tenant, since a key and a user tell their tenant, and by an
// address.
type Caller struct {
	KeyID   string `json:"key_id,omitempty"` // the key's id, never the key
	User    string `json:"user,omitempty"`   // issuer|tenant|subject, as in an override
	Tenant  string `json:"tenant,omitempty"`
	Tier    string `json:"tier,omitempty"` // of the user or the tenant; a key tells its own
	Address string `json:"address,omitempty"`
}

// Question is what [ShowPath] is asked, in its query: who, and if there is a path, the request whose rules alone count.
type Question struct {
	Caller
	Method, Path, Host string
	All                bool // counters by endpoint that were never used as well
}

// Query is the question as a URL has it.
func (q Question) Query() string {
	v := url.Values{}
	for _, p := range q.parameters() {
		if *p.value != "" {
			v.Set(p.name, *p.value)
		}
	}
	if q.All {
		v.Set("all", "true")
	}
	return v.Encode()
}

type parameter struct {
	name  string
	value *string
}

func (q *Question) parameters() []parameter {
	return []parameter{{"key-id", &q.KeyID}, {"user", &q.User}, {"tenant", &q.Tenant}, {"tier", &q.Tier}, {"address", &q.Address},
		{"method", &q.Method}, {"path", &q.Path}, {"host", &q.Host}}
}

// readQuestion reads what Query wrote.
func readQuestion(query string) (q Question, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, bad("query", "cannot be read: %v", err)
	}
	all := ""
	known := append(q.parameters(), parameter{"all", &all})
	for name, given := range values {
		at := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		switch {
		case at < 0:
			names := make([]string, len(known))
			for i, p := range known {
				names[i] = p.name
			}
			return q, bad("query", "has %q: want some of %s", name, strings.Join(names, ", "))
		case len(given) > 1:
			return q, bad(name, "is given %d times: want it once", len(given))
		case given[0] == "":
			return q, bad(name, "is empty: want a value, or leave it out")
		}
		*known[at].value = given[0]
	}
	switch all {
	case "", "false":
	case "true":
		q.All = true
	default:
		return q, bad("all", "is %q: want true or false", all)
	}
	switch {
	case q.Path == "" && (q.Method != "" || q.Host != ""):
		return q, bad("path", "is missing: a method or a host narrows a path down")
	case q.Path != "" && q.Path[0] != '/':
		return q, bad("path", "is %q: want one that begins with /", q.Path)
	case q.Path != "" && q.Method == "":
		q.Method = http.MethodGet
	}
	return q, nil
}

// request is the one whose rules alone count, zero for any. It has every header: which it would have is not told.
func (q *Question) request() rule.Request {
	if q.Path == "" {
		return rule.Request{}
	}
	return rule.Request{Method: q.Method, Path: q.Path, Host: q.Host, HasHeader: func(string) bool { return true }}
}

// known is a caller as the limiter knows it. has are the parts that were told of it: a tenant alone is known as a user of
// it whose other names nobody has, so that counters by user are none of it.
type known struct {
	identity.Caller
	has rule.Parts
}

// find finds the caller, whose tenant and tier it fills in.
func (d *door) find(c *Caller) (k known, err error) {
	named := 0
	for _, name := range []string{c.KeyID, c.User, c.Tenant} {
		if name != "" {
			named++
		}
	}
	switch {
	case named > 1:
		return k, bad("key-id, user, tenant", "are several principals: want one of them, since a key and a user tell their tenant")
	case c.Tier != "" && c.User == "" && c.Tenant == "":
		return k, bad("tier", "is for a user or a tenant: a key's tier is known, an address has none")
	}
	switch {
	case c.KeyID != "":
		if (keyfilter.Format{}).Check([]byte(c.KeyID)) || d.Keys().Lookup([]byte(c.KeyID)) != nil {
			return k, bad("key-id", "is a key itself: want its id, as `weir key new --id` was given")
		}
		if k.Key = d.Keys().Find(c.KeyID); k.Key == nil {
			return k, &Failure{Status: http.StatusNotFound, Field: "key-id", Text: "key-id " + c.KeyID + ": no key of this id is in force"}
		}
		c.Tenant, c.Tier = k.Key.Tenant, k.Key.Tier
		k.has = k.has.With(rule.Key)
	case c.User != "":
		parts := strings.SplitN(c.User, "|", 3) // subjects may hold a |, issuers and tenants do not
		if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
			return k, bad("user", "is %q: want issuer|tenant|subject, the tenant may be empty", c.User)
		}
		k.User = &identity.User{Issuer: parts[0], Tenant: parts[1], Subject: parts[2], Tier: c.Tier}
		c.Tenant = k.User.Tenant
		k.has = k.has.With(rule.User)
	case c.Tenant != "":
		k.User = &identity.User{Tenant: c.Tenant, Tier: c.Tier}
	}
	if c.Tenant != "" {
		k.has = k.has.With(rule.Tenant)
	}
	if c.Address != "" {
		if k.Address, err = netip.ParseAddr(trimBrackets(c.Address)); err != nil {
			return k, bad("address", "is %q: want an IP address, as 192.0.2.7 or 2001:db8::1", c.Address)
		}
		k.has = k.has.With(rule.Address)
	}
	return k, nil
}

func trimBrackets(host string) string {
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1]
	}
	return host
}

// counts tells whether a counter of r is one that the caller was told by. The limiter takes the first part of a choice as
// well, but from a user that stands for its tenant alone.
func (k *known) counts(r *rule.Rule) bool {
	told, missing := r.Principal(k.has, nil)
	if missing != nil {
		return false
	}
	full := k.has
	if k.User != nil {
		full = full.With(rule.User)
	}
	taken, _ := r.Principal(full, nil)
	return slices.Equal(told, taken)
}
