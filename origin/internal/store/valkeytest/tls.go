package valkeytest

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
)

// TLS is a server behind TLS. Valkey's own TLS is a build option that the fetched binary lacks, so a listener in front of
// it, in the test's process, ends the encryption.
type TLS struct {
	*Server
	TLSAddr string // host:port; the certificate is for 127.0.0.1 and localhost
	// CAFile is the certificate, as PEM, of the authority that was made for this test; CertFile and KeyFile are a
	// client's, from the same one.
	CAFile, CertFile, KeyFile string
}

// StartTLS starts a Valkey that is to be reached by TLS; mutual makes it refuse clients without a certificate. args are
// more options of the server.
func StartTLS(t testing.TB, mutual bool, args ...string) *TLS {
	t.Helper()
	ca := certificatetest.New(t)
	dir := t.TempDir()
	s := &TLS{Server: Start(t, args...),
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "client.pem"), KeyFile: filepath.Join(dir, "client.key")}
	client := ca.Issue(t)
	writeFile(t, s.CAFile, ca.PEM)
	writeFile(t, s.CertFile, client.Cert)
	writeFile(t, s.KeyFile, client.Key)

	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "localhost").TLS(t)}, ClientCAs: ca.Pool}
	if mutual {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	s.TLSAddr = l.Addr().String()
	s.serve(t, l)
	return s
}

// serve hands connections on to the server in plain until the test ends.
func (s *TLS) serve(t testing.TB, l net.Listener) {
	var done sync.WaitGroup
	var mu sync.Mutex
	open, ended := map[net.Conn]bool{}, false
	carry := func(from, to net.Conn) {
		io.Copy(to, from)
		from.Close()
		to.Close()
		mu.Lock()
		delete(open, from)
		mu.Unlock()
	}
	done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Addr)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open[client], open[server] = true, true
			if ended {
				client.Close()
				server.Close()
			}
			mu.Unlock()
			done.Go(func() { carry(client, server) })
			done.Go(func() { carry(server, client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		ended = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		done.Wait()
	})
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
