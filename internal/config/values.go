package config

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// value reads and writes one field of a Config as text. set validates what can
// be judged from the one value.
type value interface {
	set(s string) error
	String() string
	kind() string // as the reference names it
}

type text struct{ p *string }

func (v text) set(s string) error { *v.p = s; return nil }
func (v text) String() string     { return *v.p }
func (v text) kind() string       { return "text" }

type choice struct {
	p    *string
	from []string
}

func (v choice) set(s string) error {
	if !slices.Contains(v.from, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(v.from, ", "))
	}
	*v.p = s
	return nil
}
func (v choice) String() string { return *v.p }
func (v choice) kind() string   { return strings.Join(v.from, ", ") }

type address struct {
	p         *string
	listening bool
}

func (v address) set(s string) error {
	if s == "" && !v.listening {
		*v.p = ""
		return nil
	}
	if err := checkHostPort(s, v.listening); err != nil {
		return err
	}
	*v.p = s
	return nil
}
func (v address) String() string { return *v.p }
func (v address) kind() string   { return "HOST:PORT" }

type boolean struct{ p *bool }

func (v boolean) set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*v.p = b
	return nil
}
func (v boolean) String() string { return strconv.FormatBool(*v.p) }
func (v boolean) kind() string   { return "true or false" }

type integer struct {
	p        *int
	min, max int
}

func (v integer) set(s string) error {
	n, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	if n < v.min || n > v.max {
		return fmt.Errorf("%d is not from %d to %d", n, v.min, v.max)
	}
	*v.p = n
	return nil
}
func (v integer) String() string { return strconv.Itoa(*v.p) }
func (v integer) kind() string   { return fmt.Sprintf("%d to %d", v.min, v.max) }

type nodeID struct{ p *record.NodeID }

func (v nodeID) set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a whole number from 1 to %d", s, math.MaxInt32)
	}
	*v.p = record.NodeID(n)
	return nil
}
func (v nodeID) String() string { return strconv.Itoa(int(*v.p)) }
func (v nodeID) kind() string   { return fmt.Sprintf("1 to %d", math.MaxInt32) }

type duration struct {
	p        *time.Duration
	min, max time.Duration
}

func (v duration) set(s string) error {
	d, err := ParseDuration(s)
	if err != nil {
		return err
	}
	if d < v.min || d > v.max {
		return fmt.Errorf("%s is not from %s to %s", s, FormatDuration(v.min), FormatDuration(v.max))
	}
	*v.p = d
	return nil
}
func (v duration) String() string { return FormatDuration(*v.p) }
func (v duration) kind() string {
	return "duration, " + FormatDuration(v.min) + " to " + FormatDuration(v.max)
}

type size struct {
	p        *int64
	min, max int64
}

func (v size) set(s string) error {
	n, err := ParseSize(s)
	if err != nil {
		return err
	}
	if n < v.min || n > v.max {
		return fmt.Errorf("%s is not from %s to %s", s, FormatSize(v.min), FormatSize(v.max))
	}
	*v.p = n
	return nil
}
func (v size) String() string { return FormatSize(*v.p) }
func (v size) kind() string   { return "size, " + FormatSize(v.min) + " to " + FormatSize(v.max) }

type level struct{ p *slog.Level }

func (v level) set(s string) error {
	i := slices.Index(levelNames, strings.ToLower(s))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", s, strings.Join(levelNames, ", "))
	}
	return v.p.UnmarshalText([]byte(s))
}
func (v level) String() string { return strings.ToLower(v.p.String()) }
func (v level) kind() string   { return strings.Join(levelNames, ", ") }

var levelNames = []string{"debug", "info", "warn", "error"}

type roles struct{ p *[]Role }

func (v roles) set(s string) error {
	var out []Role
	for name := range strings.SplitSeq(s, ",") {
		r := Role(strings.TrimSpace(name))
		if r != RoleMaster && r != RoleBroker {
			return fmt.Errorf("role %q is neither master nor broker", r)
		}
		if slices.Contains(out, r) {
			return fmt.Errorf("role %s is named twice", r)
		}
		out = append(out, r)
	}
	*v.p = out
	return nil
}
func (v roles) String() string { return joinComma(*v.p) }
func (v roles) kind() string   { return "list of master, broker" }

type masters struct{ p *[]Master }

func (v masters) set(s string) error {
	if s == "" {
		*v.p = nil
		return nil
	}
	var out []Master
	for item := range strings.SplitSeq(s, ",") {
		m, err := parseMaster(strings.TrimSpace(item))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(out, func(o Master) bool { return o.ID == m.ID || o.Addr == m.Addr }) {
			return fmt.Errorf("master %s: its id or its address is there twice", m)
		}
		out = append(out, m)
	}
	*v.p = out
	return nil
}
func (v masters) String() string { return joinComma(*v.p) }
func (v masters) kind() string   { return "list of ID@HOST:PORT" }

func parseMaster(s string) (Master, error) {
	id, addr, ok := strings.Cut(s, "@")
	if !ok {
		return Master{}, fmt.Errorf("%q is not ID@HOST:PORT", s)
	}
	var m Master
	if err := (nodeID{&m.ID}).set(id); err != nil {
		return Master{}, fmt.Errorf("master %q: id %w", s, err)
	}
	if err := checkHostPort(addr, false); err != nil {
		return Master{}, fmt.Errorf("master %q: %w", s, err)
	}
	m.Addr = addr
	return m, nil
}

func joinComma[T any](items []T) string {
	parts := make([]string, len(items))
	for i, it := range items {
		parts[i] = fmt.Sprint(it)
	}
	return strings.Join(parts, ",")
}
