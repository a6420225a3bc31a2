package limittest_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

const head = "case a\nalgorithm token-bucket\nlimit 1/1s burst 3\n"

func TestVectorsSayWhatTheyMean(t *testing.T) {
	cases, err := limittest.Read(strings.NewReader("# comment\n\n" + head + "5ms cost 2 -> refuse remaining 1 retry 7us reset 1s\nlimit 9/1s\n2m cost 3 -> never remaining 0 retry never reset never\n"))
	if err != nil || len(cases) != 1 || len(cases[0].Steps) != 2 {
		t.Fatalf("%+v, %v", cases, err)
	}
	want := limittest.Step{Line: 6, Limit: limit.Limit{Count: 1, Window: limit.Second, Burst: 3}, Now: 5000, Cost: 2,
		Want: limit.Decision{Limit: 3, Remaining: 1, RetryAfter: 7, ResetAfter: limit.Second}}
	if cases[0].Steps[0] != want {
		t.Errorf("got  %+v\nwant %+v", cases[0].Steps[0], want)
	}
	if s := cases[0].Steps[1]; s.Limit.Count != 9 || s.Want.RetryAfter != limit.Never || s.Want.Limit != 9 {
		t.Errorf("second step %+v", s)
	}
}

func TestVectorsWithMistakesAreRefusedWithTheirLine(t *testing.T) {
	for text, line := range map[string]string{
		"1s cost 1 -> allow remaining 0 retry 0s reset 0s":                     "line 1",
		"case a\n1s cost 1 -> allow remaining 0 retry 0s reset 0s":             "line 2",
		"case a\nlimit 1/1s\n1s cost 1 -> allow remaining 0 retry 0s reset 0s": "line 3",
		"case a\nalgorithm":                                              "line 2",
		"case a\nlimit 1/1w":                                             "line 2",
		"case a\nlimit 1/1s burst":                                       "line 2",
		"case a\nlimit 1/1s burst x":                                     "line 2",
		head + "1s cost 1 -> allow":                                      "line 4",
		head + "1 cost 1 -> allow remaining 0 retry 0s reset 0s":         "line 4",
		head + "1s cost x -> allow remaining 0 retry 0s reset 0s":        "line 4",
		head + "1s cost 1 -> perhaps remaining 0 retry 0s reset 0s":      "line 4",
		head + "1s cost 1 -> allow remaining 0 retry 1s reset 0s":        "line 4",
		head + "1s cost 1 -> refuse remaining 0 retry 0s reset 0s":       "line 4",
		head + "1s cost 1 -> never remaining 0 retry 1s reset 0s":        "line 4",
		head + "\n\n1s cost 1 -> allow remaining many retry 0s reset 0s": "line 6",
	} {
		if _, err := limittest.Read(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), line+":") {
			t.Errorf("%q: %v, want an error at %s", text, err, line)
		}
	}
}
