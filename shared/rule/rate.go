package rule

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// rateForm is what a rate looks like, for messages.
const rateForm = "want <calls>/<time> with time in ms, s, m, h or d, as 100/1m"

// units of a rate's window.
var units = []word[limit.Micros]{
	{"ms", limit.Millisecond}, {"s", limit.Second}, {"m", limit.Minute}, {"h", limit.Hour}, {"d", limit.Day},
}

// ParseRate reads <int>/<int>(ms|s|m|h|d), as 100/1m. The reason it returns says what is allowed; it is empty when
// the text is a rate within the bounds of package limit.
func ParseRate(text string) (l limit.Limit, reason string) {
	countText, windowText, ok := strings.Cut(text, "/")
	if !ok {
		return limit.Limit{}, rateForm
	}
	count, tooLarge, ok := parseCount(countText)
	if !ok {
		return limit.Limit{}, rateForm
	}
	if tooLarge {
		return limit.Limit{}, limit.ErrCount.Error()
	}
	digits := strings.TrimRight(windowText, "abcdefghijklmnopqrstuvwxyz")
	unit, known := lookup(units, windowText[len(digits):])
	number, tooLarge, ok := parseCount(digits)
	if !known || !ok {
		return limit.Limit{}, rateForm
	}
	if tooLarge || number > int64(limit.MaxWindow/unit) {
		return limit.Limit{}, limit.ErrWindow.Error()
	}
	l = limit.Limit{Count: count, Window: limit.Micros(number) * unit}
	if err := l.Check(); err != nil {
		return limit.Limit{}, err.Error()
	}
	return l, ""
}

// parseCount reads a plain decimal count: digits alone, no sign, no leading zero. A number past [limit.MaxCount]
// is well formed but tooLarge.
func parseCount(text string) (n int64, tooLarge, ok bool) {
	if text == "" || len(text) > 1 && text[0] == '0' {
		return 0, false, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > limit.MaxCount {
		return 0, true, true
	}
	return n, false, true
}

// FormatRate is the shortest text that [ParseRate] reads as count per window.
func FormatRate(l limit.Limit) string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; l.Window >= u.value && l.Window%u.value == 0 {
			return strconv.FormatInt(l.Count, 10) + "/" + strconv.FormatInt(int64(l.Window/u.value), 10) + u.text
		}
	}
	return strconv.FormatInt(l.Count, 10) + "/" + strconv.FormatInt(int64(l.Window), 10) + "us"
}

// unlimited is the word for no limit, which no number stands for.
const unlimited = "unlimited"

// parseDuration reads <int>(ms|s|m|h|d).
func parseDuration(text string) (d limit.Micros, ok bool) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	unit, known := lookup(units, text[len(digits):])
	number, tooLarge, ok := parseCount(digits)
	if !known || !ok || tooLarge || number > int64(limit.MaxWindow/unit) {
		return 0, false
	}
	return limit.Micros(number) * unit, true
}
