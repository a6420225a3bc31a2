// Package certificate makes what a port needs to speak TLS out of PEM files.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/weirproject/weir/origin/internal/livefile"
)

// Open reads a certificate with its key, and with the authorities of peers' certificates if a third path is given. The
// error names the files.
func Open(paths []string) (*livefile.File[*tls.Config], error) {
	return livefile.OpenAll(paths, func(contents [][]byte) (*tls.Config, error) {
		c, err := parse(paths, contents, time.Now())
		if err != nil {
			return nil, err
		}
		return c, nil
	})
}

// Serving is the configuration of a port whose files are followed: each new connection is met by the last good content.
func Serving(f *livefile.File[*tls.Config]) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.Get(), nil },
	}
}

var protocols = []string{"h2", "http/1.1"}

// parse refuses what no client would accept, so that it never takes the place of what clients do.
func parse(paths []string, contents [][]byte, now time.Time) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w: want a PEM certificate and its PEM key", paths[0], paths[1], err)
	}
	if pair.Leaf.NotAfter.Before(now) {
		return nil, fmt.Errorf("%s: expired at %s: want a certificate that is valid", paths[0], pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{pair}}
	if len(contents) < 3 {
		return c, nil
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
		return nil, fmt.Errorf("%s: %w: want the PEM certificates of the authorities", paths[2], errNone)
	}
	// Those without one are clients as any other.
	c.ClientAuth = tls.VerifyClientCertIfGiven
	// A session that is taken up again would bring its certificate along past authorities that changed meanwhile.
	c.SessionTicketsDisabled = true
	return c, nil
}

var errNone = errors.New("no certificate is in it")
