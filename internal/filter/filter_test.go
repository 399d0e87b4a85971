package filter

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func message() *Message {
	return &Message{
		Key: []byte("customer-7"), Headers: func() map[string]string { return map[string]string{"country": "de", "n": "12"} },
		TimestampMillis: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli(), Size: 100, Topic: "orders", Partition: 3, Offset: 42,
	}
}

func TestAFilterSeesTheMessage(t *testing.T) {
	for text, want := range map[string]bool{
		`true`:                true,
		`key == "customer-7"`: true,
		`key.startsWith("customer-") && size < 100`:           false,
		`headers["country"] in ["de", "at"]`:                  true,
		`headers.country == "fr"`:                             false,
		`"missing" in headers`:                                false,
		`has(headers.country) && int(headers.n) > 11`:         true,
		`timestamp < timestamp("2026-03-01T12:00:01Z")`:       true,
		`timestamp.getHours() == 13`:                          false,
		`topic == "orders" && partition == 3 && offset == 42`: true,
		`key.matches("^customer-[0-9]+$")`:                    true,
		`headers.exists(k, k.startsWith("coun"))`:             true,
	} {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.Match(message()); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestAMistakeIsToldWithItsPlace(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int
		word         string
	}{
		{"", 1, 1, "Syntax error"},
		{"key ==", 1, 7, "Syntax error"},
		{"size > 1 &&\n  colour == 'red'", 2, 3, "colour"},
		{"size == 'big'", 1, 6, "overload"},
		{"key", 1, 1, "bool"},
		{`key.matches("(")`, 1, 1, "missing closing"},
		{strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), 1, 1, "recursion"},
		{"true || " + strings.Repeat("x", MaxBytes), 1, MaxBytes + 1, "bytes long"},
		{`[1].map(x, [1].map(y, size))`, 1, 1, "bool"},
	} {
		_, err := Compile(c.text)
		var at *SyntaxError
		if !errors.As(err, &at) || at.Line != c.line || at.Column != c.column || !strings.Contains(at.Text, c.word) {
			t.Errorf("%.40q: %v", c.text, err)
		}
	}
}

// What a message lacks is an error of that message, and no panic.
func TestAMatchThatFailsIsAnError(t *testing.T) {
	for text, word := range map[string]string{
		`headers["nothing"] == ""`: "no such key",
		`int(key) > 1`:             "int",
		`1 / (size - 100) > 0`:     "division by zero",
	} {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Match(message()); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", text, err)
		}
	}
	f, _ := Compile(`headers["x"] == ""`)
	if _, err := f.Match(&Message{}); err == nil {
		t.Error("no headers at all")
	}
}

// An expression that would take long ends early, whatever the message.
func TestCostIsLimited(t *testing.T) {
	many := map[string]string{}
	for i := range 300 {
		many[strings.Repeat("k", i)] = "v"
	}
	m := message()
	m.Headers = func() map[string]string { return many }
	f, err := Compile(`headers.all(a, headers.all(b, headers.all(c, a + b != c + "x")))`)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := f.Match(m); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Fatalf("27 million steps: %v", err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, text := range map[string]string{
		"key":     `key.startsWith("customer-")`,
		"headers": `headers["country"] in ["de", "at"] && size < 1000`,
		"time":    `timestamp > timestamp("2026-01-01T00:00:00Z")`,
		"regexp":  `key.matches("^customer-[0-9]+$")`,
	} {
		f, err := Compile(text)
		if err != nil {
			b.Fatal(err)
		}
		m := message()
		h := m.Headers()
		m.Headers = func() map[string]string { return h }
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Match(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
