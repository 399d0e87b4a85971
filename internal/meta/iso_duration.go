package meta

import (
	"math"
	"regexp"
	"strconv"
	"time"
)

// isoPattern is a duration as ISO 8601 writes it, with what a calendar does not change:
// days of 24 hours, hours, minutes and seconds.
var isoPattern = regexp.MustCompile(`^(?i)P(?:(\d{1,9})D)?(T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?$`)

// isoDuration reads a duration such as P7D or PT1H30M; false: it is none, is nothing
// (P, PT), or is longer than a time.Duration.
func isoDuration(s string) (time.Duration, bool) {
	m := isoPattern.FindStringSubmatch(s)
	if m == nil || m[2] != "" && len(m[2]) == 1 || m[1] == "" && m[2] == "" {
		return 0, false
	}
	total := 0.0
	for _, part := range []struct {
		text string
		unit time.Duration
	}{{m[1], 24 * time.Hour}, {m[3], time.Hour}, {m[4], time.Minute}, {m[5], time.Second}} {
		if part.text == "" {
			continue
		}
		n, err := strconv.ParseFloat(part.text, 64)
		if err != nil {
			return 0, false
		}
		total += n * float64(part.unit)
	}
	if total >= math.MaxInt64 {
		return 0, false
	}
	return time.Duration(total), true
}
