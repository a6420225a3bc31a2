package demo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// drain is how long calls in flight get to end once the serving is to end.
const drain = 5 * time.Second

// Serve serves a part of the demo on l, which it closes, until ctx ends.
func Serve(ctx context.Context, l net.Listener, part http.Handler) error {
	server := &http.Server{Handler: part, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Those who are cut off find out by themselves.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
