// Package counters is the operators' door to what holds a caller back.
//
// GET /counters tells every counter of a caller as a [Report], POST /counters/reset makes one of them a fresh one, see
// [Reset]. Answers are JSON; one that is no 200 is a [Failure].
package counters

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
)

// Paths of the door.
const (
	ShowPath  = "/counters"
	ResetPath = "/counters/reset"
)

// Options are what the door is made of. All are required.
type Options struct {
	Limiter *limiter.Limiter
	Keys    func() *keys.Table // the keys in force
	Log     *slog.Logger       // gets a line for each reset, the audit's
}

// Failure is why a request was not done.
type Failure struct {
	Status int      `json:"-"`
	Text   string   `json:"error"`
	Field  string   `json:"field,omitempty"` // what of the request is wrong
	Rules  []string `json:"rules,omitempty"` // those that there are, where one was named that there is not
	Others []string `json:"others,omitempty"`
}

// Error is the text.
func (f *Failure) Error() string { return f.Text }

func bad(field, format string, args ...any) *Failure {
	return &Failure{Status: http.StatusBadRequest, Field: field, Text: field + " " + fmt.Sprintf(format, args...)}
}

type door struct{ Options }

// New is the door. It has no login: it belongs on a port that operators alone reach. What a browser there sends for another
// site's page is refused.
func New(o Options) http.Handler {
	d := door{o}
	mux := http.NewServeMux()
	mux.Handle("GET "+ShowPath, answer(d.show))
	mux.Handle("POST "+ResetPath, answer(d.reset))
	sameSite := http.NewCrossOriginProtection()
	sameSite.SetDenyHandler(answer(func(*http.Request) (any, error) {
		return nil, &Failure{Status: http.StatusForbidden, Text: "a page of another site may not ask for this"}
	}))
	return knownHost(sameSite.Handler(mux))
}

// knownHost refuses requests for a host by a name: a page whose name was pointed at this machine would be of the same site.
func knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if _, err := netip.ParseAddr(trimBrackets(host)); err == nil || host == "localhost" {
			next.ServeHTTP(w, r)
			return
		}
		write(w, http.StatusForbidden, &Failure{Text: fmt.Sprintf("host %q: want an address or localhost, a name may be anybody's", r.Host)})
	})
}

// answer writes what do returns.
func answer(do func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := do(r)
		if err == nil {
			write(w, http.StatusOK, body)
			return
		}
		failure, ok := errors.AsType[*Failure](err)
		if !ok {
			failure = &Failure{Status: http.StatusBadGateway, Text: err.Error()}
		}
		write(w, failure.Status, failure)
	})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // a client that is gone reads nothing
}
