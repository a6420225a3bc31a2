package stand

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// readyWithin bounds a part's start. Envoy compiles the filter in 3 to 9 s on two busy cores.
	readyWithin = 90 * time.Second
	// askEvery is the pause between two looks at a part that is not ready.
	askEvery = 50 * time.Millisecond
	// askWithin bounds one look.
	askWithin = 2 * time.Second
)

// await returns when check succeeds, or with the reason why p did not get there: it ended, the time is over, or ctx.
func await(ctx context.Context, p *process, check func(context.Context) error) error {
	deadline := time.NewTimer(readyWithin)
	defer deadline.Stop()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, askWithin)
		err := check(asking)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.death()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("%s is not ready after %v (%w), its log is %s", p.name, readyWithin, err, p.log)
		case <-tick.C:
		}
	}
}

// answers checks that url answers with a status that ok accepts.
func answers(url string, ok func(status int) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		request.Close = true // no idle connection to a part that is about to serve
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
		if !ok(response.StatusCode) {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}

// pings checks that a Valkey server answers PING.
func pings(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer connection.Close()
		if deadline, ok := ctx.Deadline(); ok {
			_ = connection.SetDeadline(deadline)
		}
		if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
			return err
		}
		answer, err := bufio.NewReader(io.LimitReader(connection, 64)).ReadString('\n')
		if err == nil && answer != "+PONG\r\n" {
			err = fmt.Errorf("PING answered %q", answer)
		}
		return err
	}
}
