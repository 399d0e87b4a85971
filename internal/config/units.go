package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseDuration reads "500ms", "30s", "1h30m" or whole days as "7d".
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err == nil && n >= 0 && n <= int64(math.MaxInt64/day) {
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("%q is not a duration like 500ms, 30s, 10m, 12h or 7d", s)
}

// FormatDuration writes what ParseDuration reads, as short as it can be.
func FormatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Largest first; the decimal ones are read but not written.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes like "1048576", "512KiB", "1GiB" or "1GB".
func ParseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size like 1048576, 512KiB, 64MiB or 1GiB", s)
}

// FormatSize writes a number of bytes in the largest binary unit that is exact.
func FormatSize(n int64) string {
	for _, u := range sizeUnits[:4] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
