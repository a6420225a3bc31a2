package livefile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/weirproject/weir/origin/internal/document"
)

// maxStreamed bytes of a file are looked at, above what any reader takes: a file that somebody lets grow without end
// costs no more than that at each poll.
const maxStreamed = 512 << 20

// OpenStream is as [Open] for a file that is too large to be held: read takes its content as it comes, and bounds it.
func OpenStream[T any](path string, read func(name string, content io.Reader) (T, error)) (*File[T], error) {
	// stream reads the file through use, giving the hash of all that it holds, whether use came to its end or not.
	stream := func(use func(io.Reader) error) (string, error) {
		file, err := document.Open(path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		sum := sha256.New()
		content := io.TeeReader(io.LimitReader(file, maxStreamed), sum)
		if err := use(content); err != nil {
			return "", err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return "", err
		}
		return hex.EncodeToString(sum.Sum(nil))[:contentDigits], nil
	}
	return open(&File[T]{
		paths: []string{path},
		load: func() (value T, seen string, err error) {
			seen, err = stream(func(content io.Reader) (err error) {
				value, err = read(path, content)
				return err
			})
			return value, seen, err
		},
		hash: func() (string, error) { return stream(func(io.Reader) error { return nil }) },
	})
}
