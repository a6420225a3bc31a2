package users

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// fetchTime bounds a fetch, of the settings and then of the keys.
	fetchTime = 10 * time.Second
	// maxAnswer bounds what is read of an issuer's answer.
	maxAnswer    = 1 << 20
	maxRedirects = 3
)

var errTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)

// newClient is what an issuer is asked by.
func newClient(i *Issuer, transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: fetchTime}).DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: i.CA, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: fetchTime,
			MaxIdleConns:        2,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
		}
	}
	return &http.Client{
		Transport: bounded{transport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			return secure(via[0].URL, r.URL)
		},
	}
}

// secure tells whether an issuer at from may send us to another address: not to one that is less secure than its own.
func secure(from, to *url.URL) error {
	if to.Scheme == "https" || from.Scheme == "http" && to.Scheme == "http" {
		return nil
	}
	return fmt.Errorf("%s leads to %s, which is not https", from.Redacted(), to.Redacted())
}

// bounded bounds what is read of answers, which libraries read to their end.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{ReadCloser: answer.Body, left: maxAnswer + 1}
	}
	return answer, err
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] looks for.
func (b bounded) CloseIdleConnections() {
	if t, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// fetch asks the issuer where its keys are, then for them, and puts them in force.
func (i *issuer) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.URL)
	if err != nil {
		return err
	}
	var settings struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&settings); err != nil {
		return err
	}
	from, err := url.Parse(i.URL)
	if err != nil {
		return err
	}
	at, err := url.Parse(settings.Keys)
	if err != nil || at.Host == "" {
		return fmt.Errorf("jwks_uri %q is no address", settings.Keys)
	}
	if err := secure(from, at); err != nil {
		return fmt.Errorf("jwks_uri: %w", err)
	}
	content, err := i.get(ctx, at)
	if err != nil {
		return err
	}
	var before []*key
	if all := i.keys.Load(); all != nil {
		before = *all
	}
	all, err := readKeys(content, i.Issuer, before)
	if err != nil {
		return fmt.Errorf("%s: %w", at.Redacted(), err)
	}
	i.use(all)
	return nil
}

func (i *issuer) get(ctx context.Context, at *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := i.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", at.Redacted(), answer.Status)
	}
	return io.ReadAll(answer.Body)
}
