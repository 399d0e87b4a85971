package config

import (
	"slices"
	"strings"
)

// Nearest returns the name that s was probably meant to be, "" if none is near.
func Nearest(s string, names []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	if len(s) > 64 {
		return ""
	}
	best, distance := "", len(s)/3+2
	for _, n := range names {
		if d := editDistance(plain(s), plain(n)); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions and replacements between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			above := row[j+1]
			row[j+1] = slices.Min([]int{above + 1, row[j] + 1, diagonal + cost})
			diagonal = above
		}
	}
	return row[len(b)]
}
