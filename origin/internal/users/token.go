package users

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/json"
)

// maxClaim bounds a user, tenant or tier: OpenID Connect bounds sub by 255.
const maxClaim = 255

// latest is the last second that a token may name: 9999-12-31. What is later is no time but an overflow in waiting.
const latest = 253_402_300_799

// token is a JWT that was read and not verified.
type token struct {
	text      string
	issuer    string
	algorithm string
	key       string // its kid; empty for none
	hasKey    bool
	claims    map[string]any
}

// read takes a token apart. Names are case-sensitive and given once, unlike in encoding/json: of two claims of one name,
// the issuer and this reader might mean different ones.
func read(text string) (*token, reason) {
	if strings.Count(text, ".") != 2 {
		return nil, foreign
	}
	head, rest, _ := strings.Cut(text, ".")
	body, _, _ := strings.Cut(rest, ".")
	var header struct {
		Algorithm string  `json:"alg"`
		Key       *string `json:"kid"`
	}
	t := &token{text: text}
	if !decode(head, &header) || !decode(body, &t.claims) {
		return nil, malformed
	}
	t.algorithm = header.Algorithm
	if header.Key != nil {
		t.key, t.hasKey = *header.Key, true
	}
	t.issuer, _ = t.claims["iss"].(string)
	return t, good
}

func decode(segment string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(segment)
	return err == nil && utf8.Valid(text) && json.Unmarshal(text, into) == nil
}

// check holds a verified token against the issuer's settings, giving when it expires.
func (t *token) check(i *Issuer, now time.Time) (expiry time.Time, why reason) {
	expiry, ok := t.time("exp")
	if !ok {
		return expiry, claim
	}
	if !now.Before(expiry.Add(i.Leeway)) {
		return expiry, expired
	}
	if _, told := t.claims["nbf"]; told {
		begins, ok := t.time("nbf")
		if !ok {
			return expiry, claim
		}
		if now.Before(begins.Add(-i.Leeway)) {
			return expiry, early
		}
	}
	if !t.isFor(i.Audience) {
		return expiry, audience
	}
	if len(i.Parties) > 0 {
		if azp, _ := t.claims["azp"].(string); !contains(i.Parties, azp) {
			return expiry, party
		}
	}
	return expiry, good
}

// time is a claim in seconds since 1970, of which parts do not count.
func (t *token) time(name string) (time.Time, bool) {
	seconds, ok := t.claims[name].(float64)
	if !ok || !(seconds >= 0 && seconds <= latest) {
		return time.Time{}, false
	}
	return time.Unix(int64(math.Floor(seconds)), 0), true
}

// isFor tells whether aud, which is a text or a list of texts, has one of the audiences.
func (t *token) isFor(audiences []string) bool {
	switch aud := t.claims["aud"].(type) {
	case string:
		return contains(audiences, aud)
	case []any:
		for _, one := range aud {
			if text, ok := one.(string); ok && contains(audiences, text) {
				return true
			}
		}
	}
	return false
}

func contains(list []string, text string) bool {
	for _, one := range list {
		if one == text && text != "" {
			return true
		}
	}
	return false
}

// name is a claim as a name: a text without control characters or a whole number. It is false for a claim that is
// something else, and empty for one that is absent.
func (t *token) name(path string) (string, bool) {
	value, ok := lookup(t.claims, path)
	if !ok || value == nil {
		return "", true
	}
	switch v := value.(type) {
	case string:
		if len(v) > maxClaim {
			return "", false
		}
		for _, c := range v {
			if c < ' ' || c == 0x7f {
				return "", false
			}
		}
		return v, true
	case float64:
		// From 2^53 on, two numbers would be one.
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return "", false
		}
		return strconv.FormatInt(int64(v), 10), true
	}
	return "", false
}

// lookup finds a claim by its name, else by the way through objects that its dots tell.
func lookup(claims map[string]any, path string) (any, bool) {
	if value, ok := claims[path]; ok {
		return value, true
	}
	for at := 0; ; {
		dot := strings.IndexByte(path[at:], '.')
		if dot < 0 {
			return nil, false
		}
		at += dot
		if inner, ok := claims[path[:at]].(map[string]any); ok {
			return lookup(inner, path[at+1:])
		}
		at++
	}
}
