package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/origin/internal/stand"
)

// watcher reads what the system itself counted.
type watcher struct {
	run    stand.Run
	client *http.Client
}

// sight is what the system had counted at one instant.
type sight struct {
	calls    map[string]int64 // to the API, by client
	commands int64            // to the store, for decisions
}

// since is the growth from an earlier sight.
func (s sight) since(before sight) sight {
	grown := sight{calls: map[string]int64{}, commands: s.commands - before.commands}
	for name, n := range s.calls {
		grown.calls[name] = n - before.calls[name]
	}
	return grown
}

func newWatcher(run stand.Run) watcher {
	return watcher{run, &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{}}}
}

func (w watcher) close() { w.client.CloseIdleConnections() }

// look asks the API and the origin's metrics.
func (w watcher) look(ctx context.Context) (s sight, err error) {
	err = w.get(ctx, w.run.API+CallsPath, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&s.calls)
	})
	if err != nil {
		return sight{}, err
	}
	err = w.get(ctx, w.run.Admin+"/metrics", func(body io.Reader) (err error) {
		s.commands, err = storeCommands(body)
		return err
	})
	return s, err
}

func (w watcher) get(ctx context.Context, url string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := w.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the method and URL, which stand below
		}
		return fmt.Errorf("%s does not answer (%w): is `make run` still there?", url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	if err := read(io.LimitReader(response.Body, 16<<20)); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}

// upkeep are commands that the origin sends on its own, whether or not there is any request.
var upkeep = []string{"time", "ping", "hello", "function", "info", "config", "client"}

// storeCommands sums weir_store_commands_total over all commands but upkeep, in the Prometheus text format.
func storeCommands(metrics io.Reader) (total int64, err error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "weir_store_commands_total{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return 0, fmt.Errorf("not a sample: %q", lines.Text())
		}
		if !isUpkeep(labels) {
			total += int64(n)
		}
	}
	return total, lines.Err()
}

func isUpkeep(labels string) bool {
	for _, command := range upkeep {
		if strings.Contains(strings.ToLower(labels), `command="`+command) {
			return true
		}
	}
	return false
}
