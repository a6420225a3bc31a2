package config

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"

	"github.com/weirproject/weir/origin/internal/document"
)

// maxFile is more than a secret, or the certificates of all public authorities, take.
const maxFile = 1 << 20

// readFile is [os.ReadFile] of a file that has an end, near its beginning: a pipe would be waited for, a device or a huge
// file read until there is no memory left.
func readFile(path string) ([]byte, error) {
	file, err := document.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d bytes", maxFile)}
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}

// readPair is [tls.LoadX509KeyPair] by readFile.
func readPair(cert, key string) (tls.Certificate, error) {
	certPEM, err := readFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := readFile(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}
