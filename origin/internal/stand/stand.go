// Package stand runs the whole system on one machine's loopback ports.
package stand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/weirproject/weir/origin/internal/issuer"
)

// Preferred ports; a taken one is exchanged for a free one.
const (
	portEdge       = 8080
	portGateway    = 8081
	portAdmin      = 8084
	portAPI        = 8090
	portIssuer     = 8091
	portEnvoyAdmin = 9901
	portValkey     = 6390
)

// workers of the Envoy: two, so that the demo shows one bucket kept by more than one.
const workers = "2"

// Options say what a stand consists of. All fields but the switches are required.
type Options struct {
	Root     string       // the checkout's folder, where .tools and build are
	Weir     string       // the weir binary, which the origin runs from
	API      http.Handler // the API behind the gateway, served by this process
	Progress io.Writer    // told about each part as it starts
	Memory   bool         // keep counters in the origin's memory: no Valkey
	NoEnvoy  bool         // the origin alone
}

// System is a running stand. Whoever starts one stops it.
type System struct {
	Run     Run
	LogsAt  string // folder of the logs
	folder  folder
	runFile string
	parts   []*process     // in the order of their start
	servers []*http.Server // what this process serves itself: the API, the issuer
	died    chan error     // one for each part or server that ended
}

// addresses are host:port; empty for what does not run.
type addresses struct{ Edge, Gateway, Admin, API, Issuer, EnvoyAdmin, Valkey string }

// Start starts all parts, each once the one before it is ready, then writes build/run.json. On an error nothing is
// left running.
func Start(ctx context.Context, o Options) (*System, error) {
	s := &System{
		runFile: filepath.Join(o.Root, "build", "run.json"),
		died:    make(chan error, 8), // more than there are parts: nobody has to read it
	}
	programs, err := o.find() // what is missing is told before anything is made
	if err != nil {
		return nil, err
	}
	if s.folder, err = openFolder(filepath.Join(o.Root, "build", "run")); err != nil {
		return nil, err
	}
	s.LogsAt = s.folder.path
	if err := s.start(ctx, o, programs); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// programs are paths of tools; empty for what does not run.
type programs struct{ envoy, valkey string }

func (o Options) find() (p programs, err error) {
	if !o.NoEnvoy {
		if p.envoy, err = Envoy.Find(o.Root); err != nil {
			return p, err
		}
		if _, err := os.Stat(o.wasm()); err != nil {
			return p, fmt.Errorf("%w: run `make build` in Weir's checkout first", err)
		}
	}
	if !o.Memory {
		p.valkey, err = Valkey.Find(o.Root)
	}
	return p, err
}

func (s *System) start(ctx context.Context, o Options, p programs) error {
	a, err := o.addresses()
	if err != nil {
		return err
	}
	s.Run = Run{Origin: "http://" + a.Gateway, Admin: "http://" + a.Admin, API: "http://" + a.API, Issuer: "http://" + a.Issuer}
	if s.Run.DemoKey, err = s.folder.writeOrigin(a); err != nil {
		return err
	}
	if !o.Memory {
		s.Run.Valkey = "valkey://" + a.Valkey
		if err := s.launch(ctx, o.Progress, part{
			name: "valkey", program: p.valkey, args: valkeyArgs(a.Valkey, s.folder.path), ready: pings(a.Valkey),
		}); err != nil {
			return err
		}
	}
	if err := s.serve("the API", a.API, o.API); err != nil {
		return err
	}
	if err := s.serveIssuer(a.Issuer); err != nil {
		return err
	}
	if err := s.launch(ctx, o.Progress, part{
		name: "origin", program: o.Weir, args: []string{"serve", "--config", s.folder.file("weir.yaml")},
		ready: answers(s.Run.Admin+"/readyz", func(status int) bool { return status == http.StatusOK }),
	}); err != nil {
		return err
	}
	if !o.NoEnvoy {
		s.Run.Edge, s.Run.EnvoyAdmin = "http://"+a.Edge, "http://"+a.EnvoyAdmin
		if err := s.folder.writeEnvoy(a, o.wasm()); err != nil {
			return err
		}
		if err := s.launch(ctx, o.Progress, part{
			name: "envoy", note: "compiles the filter, some seconds",
			program: p.envoy, args: envoyArgs(s.folder.file("envoy.yaml")), ready: filterAnswers(s.Run.Edge),
		}); err != nil {
			return err
		}
	}
	return s.Run.write(s.runFile)
}

func (o Options) wasm() string { return filepath.Join(o.Root, "build", "weir-edge.wasm") }

func (o Options) addresses() (a addresses, err error) {
	p := ports{given: map[int]bool{}, moved: func(name string, from, to int) {
		fmt.Fprintf(o.Progress, "port %d is taken: %s goes to %d\n", from, name, to)
	}}
	for _, want := range []struct {
		name   string
		port   int
		absent bool
		at     *string
	}{
		{"the edge", portEdge, o.NoEnvoy, &a.Edge},
		{"the origin", portGateway, false, &a.Gateway},
		{"the admin port", portAdmin, false, &a.Admin},
		{"the API", portAPI, false, &a.API},
		{"the issuer", portIssuer, false, &a.Issuer},
		{"Envoy's admin", portEnvoyAdmin, o.NoEnvoy, &a.EnvoyAdmin},
		{"Valkey", portValkey, o.Memory, &a.Valkey},
	} {
		if want.absent {
			continue
		}
		if *want.at, err = p.take(want.name, want.port); err != nil {
			return addresses{}, err
		}
	}
	return a, nil
}

// part is a process to launch, with how to tell that it is ready.
type part struct {
	name, note, program string
	args                []string
	ready               func(context.Context) error
}

func (s *System) launch(ctx context.Context, progress io.Writer, p part) error {
	label := p.name
	if p.note != "" {
		label += " (" + p.note + ")"
	}
	fmt.Fprintf(progress, "starting %s ... ", label)
	began := time.Now()
	process, err := start(p.name, s.folder.file(p.name+".log"), p.program, p.args)
	if err == nil {
		s.parts = append(s.parts, process)
		err = await(ctx, process, p.ready)
	}
	if err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(progress, "failed")
			return err
		}
		fmt.Fprintln(progress, "stopping …")
		if process != nil {
			process.kill() // Envoy, while it compiles, heeds no request to end
		}
		return err
	}
	fmt.Fprintf(progress, "ready after %.1f s\n", time.Since(began).Seconds())
	go func() {
		<-process.done
		s.died <- process.death()
	}()
	return nil
}

// serve serves a part in this process.
func (s *System) serve(name, address string, part http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	server := &http.Server{Handler: part, ReadHeaderTimeout: 10 * time.Second}
	s.servers = append(s.servers, server)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.died <- fmt.Errorf("%s ended: %w", name, err)
		}
	}()
	return nil
}

// serveIssuer serves the issuer of users, and gets the demo user's token.
func (s *System) serveIssuer(address string) error {
	i, err := issuer.New(s.Run.Issuer)
	if err == nil {
		s.Run.UserToken, err = i.Token(DemoUser, issuer.MaxLife)
	}
	if err != nil {
		return fmt.Errorf("start the issuer: %w", err)
	}
	return s.serve("the issuer", address, i)
}

// Wait returns nil when ctx ends, or an error when a part ended before.
func (s *System) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.died:
		return err
	}
}

// Stop ends all parts, the last started first, and removes build/run.json. It returns when all have ended.
func (s *System) Stop() {
	if s.Run.DemoKey != "" {
		_ = os.Remove(s.runFile) // not there when the start failed
	}
	for i := len(s.parts) - 1; i >= 0; i-- {
		s.parts[i].stop()
	}
	for _, server := range s.servers {
		_ = server.Close()
	}
	s.folder.close()
}

func valkeyArgs(address, folder string) []string {
	host, port, _ := net.SplitHostPort(address) // made by ports
	return []string{"--bind", host, "--port", port, "--dir", folder, "--save", "", "--appendonly", "no", "--daemonize", "no"}
}

func envoyArgs(bootstrap string) []string {
	return []string{
		"-c", bootstrap, "--concurrency", workers,
		"--disable-hot-restart",             // its shared memory would keep a second Envoy from starting
		"--file-flush-interval-msec", "500", // a reader of the access log waits 10 s otherwise
		"--log-level", "info",
	}
}

// filterAnswers checks that the filter is at work, by a key that the filter alone refuses: it costs no counter and no
// call to the API. 503 is the guard, before the filter is there.
func filterAnswers(edge string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, edge+"/", nil)
		if err != nil {
			return err
		}
		request.Header.Set("x-api-key", "not-a-key")
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			return fmt.Errorf("a forged key is answered %s, not 401", response.Status)
		}
		return nil
	}
}
