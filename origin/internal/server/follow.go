package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/livefile"
	"github.com/weirproject/weir/origin/internal/rules"
)

// follow puts each good new content of a file in force until ctx ends; a bad one is told, and the last good stays.
func follow[T any](ctx context.Context, s *Server, name string, f *livefile.File[T], use func(T)) {
	s.metrics.FileRefused.WithLabelValues(name)
	stale := s.metrics.FileStale.WithLabelValues(name)
	err := f.Follow(ctx, func(value T, err error) {
		path := f.Status().Path
		if err != nil {
			s.metrics.FileRefused.WithLabelValues(name).Inc()
			stale.Set(1)
			s.log.Error("a changed file was refused: the last good content stays in force", "file", path, "reason", err.Error())
			return
		}
		stale.Set(0)
		use(value)
		s.log.Info("a changed file is in force", "file", path, "content", f.Status().Content)
	})
	if err != nil {
		s.log.Error("cannot follow a file: its changes need a restart", "file", f.Status().Path, "reason", err.Error())
	}
}

func (s *Server) useRules(r *rules.Release) {
	s.limiter.Use(r)
	s.warn(r)
}

// warn tells that rules are probably not all meant as they stand: one line, however many they are.
func (s *Server) warn(r *rules.Release) {
	if n := len(r.Warnings); n > 0 {
		s.log.Warn("the rules are good, but hardly all meant so: weir check-config tells each", "file", s.config.Rules, "warnings", n, "first", r.Warnings[0].Error())
	}
}

// Readiness tells how the process stands.
func (s *Server) Readiness() admin.Readiness {
	r := admin.Readiness{
		Draining: s.draining.Load(),
		Store:    admin.Store{Kind: "memory", Up: true},
		Rules:    standing(s.rules, s.limiter.Release().Set.Len()),
	}
	if s.valkey != nil {
		r.Store = s.valkeyReadiness()
	}
	if s.keys != nil {
		r.Keys = standing(s.keys, s.table().Len())
	}
	if s.identity != nil {
		r.TLS = standing(s.identity, 1)
	}
	issuers := true
	if s.users != nil {
		for _, i := range s.users.Standings() {
			r.Issuers = append(r.Issuers, admin.Issuer(i))
			issuers = issuers && i.Up
		}
	}
	// Neither the store nor an issuer makes a process unready: it answers by failure modes and by what it knows. Taking it out
	// of service would have all of a region's end together.
	r.Ready = !r.Draining
	r.Degraded = !r.Store.Up || r.Store.Uncounted != "" || !issuers || r.Rules.Error != "" || r.Keys.Error != "" || r.TLS.Error != ""
	return r
}

func standing[T any](f *livefile.File[T], count int) admin.Content {
	st := f.Status()
	c := admin.Content{File: st.Path, Content: st.Content, Since: st.Since, Count: count}
	if st.Err != nil {
		c.Error = st.Err.Error()
	}
	return c
}

// drain tells load balancers to stay away, takes no new connection, and waits for requests in flight, within bounds. The
// doors close in the order of their opening, the admin port last: until the end it tells that the process drains.
func (s *Server) drain() {
	s.draining.Store(true)
	s.log.Info("draining: requests in flight may finish", "at_most", s.drainTime.String())
	ctx, cancel := context.WithTimeout(context.Background(), s.drainTime)
	defer cancel()
	for _, d := range s.doors {
		if err := d.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			s.log.Warn("requests were cut off: they took too long to finish", "role", d.name)
			d.server.Close()
		} else if err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Warn("closing a port failed", "role", d.name, "reason", err.Error())
		}
		if d.drain == nil {
			continue
		}
		if cut := d.drain(ctx); cut > 0 {
			s.log.Warn("websockets were cut off: they took too long to end", "role", d.name, "count", cut)
		}
	}
}

// close releases what Open took.
func (s *Server) close() {
	for _, d := range s.doors {
		d.listener.Close() // closed already after a drain
	}
	if s.gateway != nil {
		s.gateway.Close()
	}
	if s.limiter != nil {
		s.limiter.Close()
	}
	if s.valkey != nil {
		s.valkey.Close()
	}
}
