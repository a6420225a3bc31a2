package tracegen

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// AccessLog is a made-up access log in the combined format, as a busy site has one: IPv4 and IPv6 clients, of which new ones
// come without end, user agents with escaped quotes, and broken lines.
type AccessLog struct {
	Lines int64
	Seed  uint64
	// BrokenEvery makes every such line one that cannot be read; 0 for none.
	BrokenEvery int64
	PerSecond   int64 // lines
}

// broken are lines that servers, disks and log rotation have left behind.
var broken = []string{
	`203.0.113.9 - - [10/Oct/2026:13:55:36 +0000] "\x16\x03\x01\x02" 400 157 "-" "-"`,
	`203.0.113.9 - - [10/Oct/2026:13:55`,
	`not.an.address - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 12 "-" "-"`,
	`203.0.113.9 - - [10/Okt/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 12 "-" "-"`,
	`203.0.113.9 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 12 "-" "unclosed \"`,
	"\x00\x00\x00\x00\x00\x00\x00\x00",
	`203.0.113.9 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" two 12 "-" "-"`,
}

var (
	targets = []string{"/", "/search?q=a%20b", "//search", "/x/../search", "/static/app.js", "/api/v1/items/7", "http://www.example.com/login", "/%73earch"}
	agents  = []string{"curl/8.5", `Mozilla/5.0 (say \"hi\")`, `a \\ b`, "-", `caf\xc3\xa9`}
	methods = []string{"GET", "GET", "GET", "POST", "HEAD", "OPTIONS"}
)

// Write writes the log.
func (a AccessLog) Write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	random := rand.New(rand.NewPCG(a.Seed, 0))
	begin := time.Date(2026, 10, 10, 0, 0, 0, 0, time.UTC)
	for i := range a.Lines {
		if a.BrokenEvery > 0 && i%a.BrokenEvery == a.BrokenEvery-1 {
			fmt.Fprintln(out, broken[i/a.BrokenEvery%int64(len(broken))])
			continue
		}
		at := begin.Add(time.Duration(i/a.PerSecond) * time.Second)
		user := "-"
		if random.IntN(5) == 0 {
			user = fmt.Sprintf("user%d", random.IntN(1000))
		}
		_, err := fmt.Fprintf(out, "%s - %s [%s] \"%s %s HTTP/1.1\" %d %d \"https://example.com/\" \"%s\"\n", client(random), user,
			at.Format("02/Jan/2006:15:04:05 -0700"), pick(random, methods), pick(random, targets), 200+100*random.IntN(4), random.IntN(100_000), pick(random, agents))
		if err != nil {
			return err
		}
	}
	return out.Flush()
}

// client is one of a hundred that come all the time, or one that nobody has seen.
func client(random *rand.Rand) string {
	switch n := random.IntN(10); {
	case n < 4:
		return fmt.Sprintf("192.0.2.%d", random.IntN(100))
	case n < 7:
		return fmt.Sprintf("%d.%d.%d.%d", 1+random.IntN(200), random.IntN(256), random.IntN(256), random.IntN(256))
	}
	return fmt.Sprintf("2001:db8:%x:%x::%x", random.IntN(1<<16), random.IntN(1<<16), random.IntN(1<<16))
}

func pick(random *rand.Rand, list []string) string { return list[random.IntN(len(list))] }
