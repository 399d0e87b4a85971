package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table collects rows and writes them in columns. A cell never spoils the
// terminal: control characters are written as escapes.
type table struct {
	header []string
	rows   [][]string
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) row(cells ...any) {
	out := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case int64:
			out[i] = strconv.FormatInt(c, 10)
		default:
			out[i] = printable(fmt.Sprint(c))
		}
		// A column without a name holds a remark, mostly none.
		if out[i] == "" && t.header[i] != "" {
			out[i] = "-"
		}
	}
	t.rows = append(t.rows, out)
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.header, "\t"))
	for _, r := range t.rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// printable escapes what would move the cursor or break a line.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// result writes v as JSON with --json, else what human writes.
func (a *app) result(v any, human func(w io.Writer) error) error {
	if a.json {
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	return human(a.out)
}

// done reports something that was done: a sentence for people, v for programs.
func (a *app) done(v any, format string, args ...any) error {
	return a.result(v, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	})
}

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural writes "1 message", "2 messages".
func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return count(n) + " " + noun
}

// stamp writes a time for people, in their zone.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }
