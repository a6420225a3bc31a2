// Package server runs an origin process from its configuration until it is told to end.
package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/certificate"
	"github.com/weirproject/weir/origin/internal/clock"
	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/counters"
	"github.com/weirproject/weir/origin/internal/gateway"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/livefile"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/decorate"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/origin/internal/users"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// storeWait is how long a start waits to learn whether the store answers: calls before that would be counted by this
	// process alone. A server that refuses connections tells at once; one that is silent is given up on after a second.
	storeWait = 1500 * time.Millisecond
	// defaultDrainTime is how long requests in flight may take to finish once the process was told to end.
	defaultDrainTime = 10 * time.Second
	// requestHeadTime bounds how long a client may take to send a request's head, and idleTime how long a connection may
	// wait for its next request.
	requestHeadTime = 10 * time.Second
	idleTime        = 2 * time.Minute
	maxHead         = 128 << 10
)

// Server is an origin process. Make it with [Open], run it with [Server.Run].
type Server struct {
	config  config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics

	rules    *livefile.File[*rules.Release]
	keys     *livefile.File[*keys.Table] // nil without a keys file
	identity *livefile.File[*tls.Config] // of the gateway's port; nil in clear text
	users    *users.Verifier             // nil without issuers of users
	valkey   *valkey.Store               // nil with the memory store
	limiter  *limiter.Limiter
	// forgetter is limiter, for what other processes announce: the store may hear them before there is one.
	forgetter atomic.Pointer[limiter.Limiter]
	gateway   *gateway.Gateway
	doors     []door
	draining  atomic.Bool
	// drainTime is defaultDrainTime; tests have less time.
	drainTime time.Duration
}

// door is a listener with what answers on it.
type door struct {
	name     string
	listener net.Listener
	server   *http.Server
	drain    func(context.Context) (cut int) // ends what server leaves open when it shuts down; nil: nothing
}

// Open reads the files that c names, takes the ports, waits shortly for the store. On an error nothing is left open.
// A store that is not there is no error: the process starts degraded.
func Open(c config.Config, log *slog.Logger) (*Server, error) { return openWithin(c, log, 0) }

// openWithin is [Open] of a gateway with so many requests in flight at most; 0: its default.
func openWithin(c config.Config, log *slog.Logger, inFlight int) (*Server, error) {
	s := &Server{config: c, log: log, metrics: telemetry.New(), drainTime: defaultDrainTime}
	if err := s.open(inFlight); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(inFlight int) error {
	var err error
	if s.rules, err = livefile.Open(s.config.Rules, s.parseRules); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if s.config.Keys != "" {
		if s.keys, err = livefile.OpenStream(s.config.Keys, readKeys); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
	}
	s.metrics.Keys.Set(float64(s.table().Len()))
	if err := s.makeLimiter(); err != nil {
		return err
	}
	if s.config.Roles.Gateway {
		s.gateway = gateway.New(gateway.Options{
			Upstream: s.config.Upstream,
			Resolver: &identity.Resolver{Keys: s.table, Believes: s.config.Trust.Believes, Users: s.verifier()},
			Limiter:  s.limiter, Metrics: s.metrics, Log: s.log,
			EdgeNames: s.config.Trust.EdgeNames, UpstreamTimeout: s.config.Gateway.UpstreamTimeout,
			InFlight: inFlight,
		})
		var serving *tls.Config
		if t := s.config.TLS; t != nil {
			if s.identity, err = certificate.Open(t.Files()); err != nil {
				return fmt.Errorf("tls.gateway: %w", err)
			}
			serving = certificate.Serving(s.identity)
		}
		if err := s.listen("gateway", s.config.Listen.Gateway, s.gateway, serving, s.gateway.Drain); err != nil {
			return err
		}
	}
	if s.config.Roles.Admin {
		held := counters.New(counters.Options{Limiter: s.limiter, Keys: s.table, Log: s.log})
		return s.listen("admin", s.config.Listen.Admin, admin.New(s.metrics.Registry, s.Readiness, held), nil, nil)
	}
	return nil
}

func readKeys(name string, content io.Reader) (*keys.Table, error) {
	f, err := keys.Read(name, content)
	if err != nil {
		return nil, err
	}
	return f.Table(), nil
}

var noKeys = (&keys.File{}).Table()

// table is the keys in force.
func (s *Server) table() *keys.Table {
	if s.keys == nil {
		return noKeys
	}
	return s.keys.Get()
}

func (s *Server) makeLimiter() error {
	o := limiter.Options{Secret: s.config.Secrets.Counter, Now: clock.Anchored(), Metrics: s.metrics, Log: s.log}
	o.RetryJitter = limit.Micros(s.config.Gateway.RetryJitter.Microseconds())
	local := memory.New(memory.DefaultSize, s.metrics.Overflowed.Inc)
	o.Store, o.Fallback = local, local
	if v := s.config.Store.Valkey; v != nil {
		s.valkey = valkey.New(s.valkeyOptions(v))
		o.Processes = s.valkey.Processes
		o.Store, o.Slot, o.Announce = decorate.Deadline(s.valkey, s.config.Store.Deadline), s.valkey.Slot, s.valkey.Announce
		if former := s.config.Secrets.Former; former != nil {
			o.Rotation = &limiter.Rotation{Former: former}
		}
	} else {
		s.metrics.StoreUp.Set(1)
	}
	o.Store = decorate.Traced(decorate.Metered(o.Store, s.metrics))
	if o.Secret == nil { // names in this process's memory only
		o.Secret = make([]byte, config.MinSecret)
		if _, err := rand.Read(o.Secret); err != nil {
			return fmt.Errorf("make a secret for counter names: %w", err)
		}
	}
	s.limiter = limiter.New(o, s.rules.Get())
	s.warn(s.rules.Get())
	s.forgetter.Store(s.limiter)
	if s.valkey != nil {
		ctx, cancel := context.WithTimeout(context.Background(), storeWait)
		defer cancel()
		s.valkey.AwaitFirst(ctx)
	}
	return nil
}

// verifier makes what verifies users, nil without issuers.
func (s *Server) verifier() identity.Verifier {
	if len(s.config.Identity.Issuers) == 0 {
		return nil
	}
	s.users = users.New(users.Options{
		Issuers: s.config.Identity.Issuers, Policy: s.config.Identity.Policy, Metrics: s.metrics.Tokens(users.Reasons), Log: s.log,
	})
	return s.users
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (s *Server) listen(name, address string, handler http.Handler, serving *tls.Config, drain func(context.Context) int) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen.%s: %w", name, err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // within TLS
	protocols.SetUnencryptedHTTP2(serving == nil)
	s.doors = append(s.doors, door{name, l, &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: requestHeadTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead, TLSConfig: serving,
		DisableGeneralOptionsHandler: true,                                                // OPTIONS * is refused by the handlers: net/http would answer it uncounted
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients do to their connections
	}, drain})
	return nil
}

func (d *door) serve() error {
	if d.server.TLSConfig != nil {
		return d.server.ServeTLS(d.listener, "", "")
	}
	return d.server.Serve(d.listener)
}

// Address is where a door listens, by its name in weir.yaml; empty for one that is not open.
func (s *Server) Address(name string) string {
	for _, d := range s.doors {
		if d.name == name {
			return d.listener.Addr().String()
		}
	}
	return ""
}

// Run serves until ctx ends, then lets requests in flight finish. It returns the error that ended it early, if one did.
// A server runs once.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	following, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { follow(following, s, "rules", s.rules, s.useRules) })
	if s.keys != nil {
		background.Go(func() {
			follow(following, s, "keys", s.keys, func(t *keys.Table) { s.metrics.Keys.Set(float64(t.Len())) })
		})
	}
	if s.identity != nil {
		background.Go(func() { follow(following, s, "tls.gateway", s.identity, func(*tls.Config) {}) })
	}
	if s.users != nil {
		background.Go(func() { s.users.Run(following) })
	}
	defer background.Wait()
	defer stop()

	ended := make(chan error, len(s.doors))
	for _, d := range s.doors {
		background.Go(func() { ended <- d.serve() })
		s.log.Info("listening", "role", d.name, "address", d.listener.Addr().String())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	s.drain()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
