package keyfilter

import (
	"errors"
	"hash/crc32"
	"io"
	"strings"
)

// Shape of an issued key: prefix, then secretLen base62 characters (131 random bits), then checksumLen base62
// characters of the CRC-32 (IEEE) of all before them. The checksum lets scanners and the edge tell a typing error or
// a guess from a key without asking anybody; it is no secret.
const (
	DefaultPrefix = "wk_"
	secretLen     = 22
	checksumLen   = 6
	maxPrefix     = 16
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// isBase62 tells for each byte whether it is of base62. The edge checks every key, and a search of base62 for each
// character is most of what that takes.
var isBase62 = func() (is [256]bool) {
	for i := range len(base62) {
		is[base62[i]] = true
	}
	return is
}()

// Format is the shape of the keys that one installation issues. The zero value has [DefaultPrefix].
type Format struct {
	Prefix string // 1 to 16 of a-z, A-Z, 0-9, _; empty for DefaultPrefix
}

// ErrPrefix says what a key can begin with.
var ErrPrefix = errors.New("key prefix: want 1 to 16 of a-z, A-Z, 0-9, _")

// CheckPrefix tells whether prefix can begin a key; if not, it is [ErrPrefix].
func CheckPrefix(prefix string) error {
	valid := prefix != "" && len(prefix) <= maxPrefix
	for i := range len(prefix) {
		valid = valid && (prefix[i] == '_' || strings.IndexByte(base62, prefix[i]) >= 0)
	}
	if !valid {
		return ErrPrefix
	}
	return nil
}

func (f Format) prefix() string {
	if f.Prefix == "" {
		return DefaultPrefix
	}
	return f.Prefix
}

// Len is the length of every key of this format, in bytes.
func (f Format) Len() int { return len(f.prefix()) + secretLen + checksumLen }

// New makes a key from a source of secure random bytes (crypto/rand.Reader outside tests),
// whose error it passes on.
func (f Format) New(random io.Reader) (string, error) {
	key := make([]byte, 0, f.Len())
	key = append(key, f.prefix()...)
	// Bytes from 248 on are drawn again, so that all 62 characters are equally likely.
	const fair = 256 - 256%len(base62)
	var draw [1]byte
	for n := 0; n < secretLen; {
		if _, err := io.ReadFull(random, draw[:]); err != nil {
			return "", err
		}
		if int(draw[0]) < fair {
			key = append(key, base62[int(draw[0])%len(base62)])
			n++
		}
	}
	return string(appendChecksum(key, key)), nil
}

// Check tells whether key has this format, checksum included. It does not tell whether the key was issued. It does not
// allocate.
func (f Format) Check(key []byte) bool {
	prefix := f.prefix()
	if len(key) != f.Len() || string(key[:len(prefix)]) != prefix {
		return false
	}
	for _, c := range key[len(prefix):] {
		if !isBase62[c] {
			return false
		}
	}
	body := key[:len(key)-checksumLen]
	var sum [checksumLen]byte
	return string(appendChecksum(sum[:0], body)) == string(key[len(body):])
}

// appendChecksum appends the checksum of body in base62, most significant first.
func appendChecksum(dst, body []byte) []byte {
	sum := crc32.ChecksumIEEE(body)
	var digits [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(dst, digits[:]...)
}
