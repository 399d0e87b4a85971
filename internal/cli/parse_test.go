package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPositions(t *testing.T) {
	now := time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]position{
		"start": {kind: atStart}, "end": {kind: atEnd}, "0": {kind: atOffset}, "42": {kind: atOffset, n: 42},
		"-10": {kind: beforeEnd, n: 10}, "-0": {kind: beforeEnd},
		"-15m":                      {kind: atTime, t: now.Add(-15 * time.Minute)},
		"-7d":                       {kind: atTime, t: now.AddDate(0, 0, -7)},
		"2026-01-31":                {kind: atTime, t: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)},
		"2026-01-31 15:04":          {kind: atTime, t: time.Date(2026, 1, 31, 15, 4, 0, 0, time.UTC)},
		"2026-01-31T15:04:05+02:00": {kind: atTime, t: time.Date(2026, 1, 31, 13, 4, 5, 0, time.UTC)},
	} {
		got, err := parsePosition(s, now)
		if err != nil || got.kind != want.kind || got.n != want.n || !got.t.Equal(want.t) {
			t.Errorf("%s: %+v %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "now", "1h", "--1h", "2026-13-01", "9223372036854775808", "1.5"} {
		if p, err := parsePosition(s, now); err == nil {
			t.Errorf("%q is read as %+v", s, p)
		}
	}
}

func TestFormats(t *testing.T) {
	r := &kgo.Record{Topic: "t", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(1500), Key: []byte("k"), Value: []byte("a\xffb"),
		Headers: []kgo.RecordHeader{{Key: "x", Value: []byte("1")}, {Key: "y"}}}
	for format, want := range map[string]string{
		`%v\n`:             "a\xffb\n",
		`%t/%p/%o %k`:      "t/3/42 k",
		`%T %d`:            "1500 1970-01-01T00:00:01.500Z",
		`%S %K [%h] 100%%`: "3 1 [x=1,y=] 100%",
		`\x41\t\0\\é`:      "A\t\x00\\é",
		`json`:             `{"topic":"t","partition":3,"offset":42,"time":"1970-01-01T00:00:01.500Z","time_millis":1500,"key":"k","value":null,"value_base64":"Yf9i","headers":[{"name":"x","value":"1"},{"name":"y","value":null}]}` + "\n",
	} {
		write, err := parseFormat(format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		if err := errors.Join(write(w, r), w.Flush()); err != nil || b.String() != want {
			t.Errorf("%s: %q %v, want %q", format, b.String(), err, want)
		}
	}
	for _, format := range []string{`%`, `%x`, `\`, `\q`, `\x4`, `\xzz`} {
		if _, err := parseFormat(format); explain(err).code != exitUsage {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestErrorsAreExplained(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		want string
	}{
		{notFound("look there", "no %s", "x"), exitNotFound, "tube: no x\n      look there\n"},
		{fmt.Errorf("line 3: %w", usage("h", "bad")), exitUsage, "tube: line 3: bad\n      h\n"},
		{fmt.Errorf("topic t: %w", kerr.UnknownTopicOrPartition), exitNotFound, "tube: topic t: This server does not host this topic-partition (UNKNOWN_TOPIC_OR_PARTITION)"},
		{kerr.NotLeaderForPartition, exitUnavailable, "try again"},
		{kerr.UnknownMemberID, exitConflict, "has members"},
		{serverSays(kerr.InvalidConfig, "retention.ms: want a number"), exitUsage, "tube: retention.ms: want a number (INVALID_CONFIG)"},
		{context.Canceled, exitFailed, "interrupted"},
		{context.DeadlineExceeded, exitUnavailable, "--timeout"},
		{errors.New("odd"), exitFailed, "tube: odd\n"},
	} {
		f := explain(tc.err)
		if f.code != tc.code || !strings.Contains(f.message(), tc.want) {
			t.Errorf("%v: code %d, %q", tc.err, f.code, f.message())
		}
	}
}

func TestLinesKeepTheirBytes(t *testing.T) {
	var got []string
	err := readLines(strings.NewReader("a\n\nb\r\nlast"), 16, func(b []byte) bool { got = append(got, string(b)); return true })
	if want := []string{"a", "", "b", "last"}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q %v", got, err)
	}
	err = readLines(strings.NewReader(strings.Repeat("x", 17)), 16, func([]byte) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a line without end: %v", err)
	}
}

// What a client sent must not move the operator's cursor.
func TestTablesEscapeControlCharacters(t *testing.T) {
	var b bytes.Buffer
	tb := newTable("GROUP", "")
	tb.row("a\x1b[2J\nb", "")
	if err := tb.write(&b); err != nil {
		t.Fatal(err)
	}
	if want := `a\x1b[2J\nb`; !strings.Contains(b.String(), want) || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q", b.String())
	}
}

func TestCounts(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestReplicaListsAreRead(t *testing.T) {
	got, err := replicaLists("0:1,2,3; 1:2,3,1;")
	if err != nil || len(got) != 2 || got[1].Partition != 1 || !slices.Equal(got[1].Nodes, []int32{2, 3, 1}) {
		t.Errorf("%v %v", got, err)
	}
	for _, s := range []string{"", ";", "1,2", "0:", "0:a", "0:0", "-1:1", "0:1;0:2"} {
		if got, err := replicaLists(s); explain(err).code != exitUsage {
			t.Errorf("%q is read as %v, %v", s, got, err)
		}
	}
}

func TestThrottlesAreRead(t *testing.T) {
	for s, want := range map[string]int64{"": 0, "50MB/s": 50e6, "1MiB": 1 << 20, "7": 7} {
		if got, err := (&moveFlags{throttle: s}).bytesPerSecond(); err != nil || got != want {
			t.Errorf("%q: %d %v", s, got, err)
		}
	}
	for _, s := range []string{"0", "fast", "-1"} {
		if _, err := (&moveFlags{throttle: s}).bytesPerSecond(); explain(err).code != exitUsage {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestPartitionsAreNamedAsPeopleDo(t *testing.T) {
	if topic, n, err := partitionArg("a.b-c/12"); topic != "a.b-c" || n != 12 || err != nil {
		t.Error(topic, n, err)
	}
	for _, s := range []string{"a", "/1", "a/", "a/b", "a/-1", "a/1/2"} {
		if _, _, err := partitionArg(s); explain(err).code != exitUsage {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestWordsAreQuotedForTheShell(t *testing.T) {
	for s, want := range map[string]string{
		"plain": "plain", "two words": "'two words'", "it's": `'it'\''s'`, "$(hostname -f):9092": `"$(hostname -f):9092"`, "$(rm x)": "'$(rm x)'",
	} {
		if got := quoted(s); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestLinesOfANodeStayWhole(t *testing.T) {
	var b bytes.Buffer
	var mu sync.Mutex
	one, two := &prefixed{mu: &mu, w: &b, prefix: "1 | "}, &prefixed{mu: &mu, w: &b, prefix: "2 | "}
	for _, w := range []struct {
		p *prefixed
		s string
	}{{one, "a"}, {two, "x\ny\nz"}, {one, "b\n"}, {two, "\n"}} {
		if n, err := w.p.Write([]byte(w.s)); n != len(w.s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "2 | x\n2 | y\n1 | ab\n2 | z\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
