package cli

import (
	"bufio"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const formatHelp = `--format is json (one object a line) or text with these fields:
  %v value   %k key   %h headers (a=1,b=2)   %t topic   %p partition   %o offset
  %T time in milliseconds since 1970   %d time as 2026-01-31T15:04:05.000Z
  %S size of the value in bytes, %K of the key (-1: none)   %% a percent sign
  \n \t \r \0 \\ and \xHH are single bytes.`

type fieldWriter func(w *bufio.Writer, r *kgo.Record)

// parseFormat compiles a format once, so that a mistake is told before anything
// is read.
func parseFormat(format string) (func(*bufio.Writer, *kgo.Record) error, error) {
	if format == "json" {
		return writeJSON, nil
	}
	var parts []fieldWriter
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			text := string(literal)
			parts = append(parts, func(w *bufio.Writer, _ *kgo.Record) { _, _ = w.WriteString(text) })
			literal = nil
		}
	}
	for rest := format; rest != ""; {
		switch rest[0] {
		case '\\':
			b, n, err := unescape(rest)
			if err != nil {
				return nil, err
			}
			literal = append(literal, b)
			rest = rest[n:]
		case '%':
			if len(rest) < 2 {
				return nil, usage(formatHelp, "the format ends in a %%")
			}
			if rest[1] == '%' {
				literal = append(literal, '%')
			} else if field, ok := formatFields[rest[1]]; ok {
				flush()
				parts = append(parts, field)
			} else {
				return nil, usage(formatHelp, "the format has no field %q", rest[:2])
			}
			rest = rest[2:]
		default:
			literal = append(literal, rest[0])
			rest = rest[1:]
		}
	}
	flush()
	return func(w *bufio.Writer, r *kgo.Record) error {
		for _, p := range parts {
			p(w, r)
		}
		_, err := w.Write(nil) // a bufio.Writer keeps its first error
		return err
	}, nil
}

// unescape reads one escape at the start of s and how many bytes it takes.
func unescape(s string) (byte, int, error) {
	if len(s) >= 2 {
		if i := strings.IndexByte(`ntr0\`, s[1]); i >= 0 {
			return "\n\t\r\x00\\"[i], 2, nil
		}
		if s[1] == 'x' && len(s) >= 4 {
			if n, err := strconv.ParseUint(s[2:4], 16, 8); err == nil {
				return byte(n), 4, nil
			}
		}
	}
	return 0, 0, usage(formatHelp, "the format has an unknown escape at %q", s)
}

var formatFields = map[byte]fieldWriter{
	'v': func(w *bufio.Writer, r *kgo.Record) { _, _ = w.Write(r.Value) },
	's': func(w *bufio.Writer, r *kgo.Record) { _, _ = w.Write(r.Value) }, // kcat's name
	'k': func(w *bufio.Writer, r *kgo.Record) { _, _ = w.Write(r.Key) },
	't': func(w *bufio.Writer, r *kgo.Record) { _, _ = w.WriteString(r.Topic) },
	'p': func(w *bufio.Writer, r *kgo.Record) { number(w, int64(r.Partition)) },
	'o': func(w *bufio.Writer, r *kgo.Record) { number(w, r.Offset) },
	'T': func(w *bufio.Writer, r *kgo.Record) { number(w, r.Timestamp.UnixMilli()) },
	'd': func(w *bufio.Writer, r *kgo.Record) { _, _ = w.WriteString(isoMillis(r.Timestamp)) },
	'S': func(w *bufio.Writer, r *kgo.Record) { number(w, sizeOf(r.Value)) },
	'K': func(w *bufio.Writer, r *kgo.Record) { number(w, sizeOf(r.Key)) },
	'h': func(w *bufio.Writer, r *kgo.Record) {
		for i, h := range r.Headers {
			if i > 0 {
				_ = w.WriteByte(',')
			}
			_, _ = w.WriteString(h.Key)
			_ = w.WriteByte('=')
			_, _ = w.Write(h.Value)
		}
	},
}

func number(w *bufio.Writer, n int64) {
	_, _ = w.Write(strconv.AppendInt(w.AvailableBuffer(), n, 10))
}

func sizeOf(b []byte) int64 {
	if b == nil {
		return -1
	}
	return int64(len(b))
}

func isoMillis(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// message is a record as JSON. Bytes that are not UTF-8 are told in base64 in
// the field beside; null says that there is none.
type message struct {
	Topic       string          `json:"topic"`
	Partition   int32           `json:"partition"`
	Offset      int64           `json:"offset"`
	Time        string          `json:"time"`
	TimeMillis  int64           `json:"time_millis"`
	Key         *string         `json:"key"`
	KeyBase64   []byte          `json:"key_base64,omitempty"`
	Value       *string         `json:"value"`
	ValueBase64 []byte          `json:"value_base64,omitempty"`
	Headers     []messageHeader `json:"headers,omitempty"`
}

type messageHeader struct {
	Name        string  `json:"name"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

func writeJSON(w *bufio.Writer, r *kgo.Record) error {
	m := message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: isoMillis(r.Timestamp), TimeMillis: r.Timestamp.UnixMilli()}
	m.Key, m.KeyBase64 = textOrBytes(r.Key)
	m.Value, m.ValueBase64 = textOrBytes(r.Value)
	for _, h := range r.Headers {
		mh := messageHeader{Name: h.Key}
		mh.Value, mh.ValueBase64 = textOrBytes(h.Value)
		m.Headers = append(m.Headers, mh)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(m)
}

func textOrBytes(b []byte) (*string, []byte) {
	switch {
	case b == nil:
		return nil, nil
	case utf8.Valid(b):
		s := string(b)
		return &s, nil
	}
	return nil, b
}
