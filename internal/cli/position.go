package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/internal/config"
)

// position is where to begin in a topic: start, end, an offset or a time.
type position struct {
	kind positionKind
	n    int64     // atOffset: the offset; beforeEnd: how many before the end
	t    time.Time // atTime
}

type positionKind int

const (
	atStart positionKind = iota
	atEnd
	atOffset
	beforeEnd
	atTime
)

const positionHelp = "start, end, an offset (42), so many before the end of each partition (-10), or a time (2026-01-31, 2026-01-31T15:04:05Z, -15m, -7d)"

// timeForms are read in the user's zone unless they say theirs.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly}

func parsePosition(s string, now time.Time) (position, error) {
	switch s {
	case "start":
		return position{kind: atStart}, nil
	case "end":
		return position{kind: atEnd}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 || s[0] == '-' {
			return position{kind: beforeEnd, n: -n}, nil
		}
		return position{kind: atOffset, n: n}, nil
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := config.ParseDuration(ago); err == nil && d >= 0 {
			return position{kind: atTime, t: now.Add(-d)}, nil
		}
	}
	for _, form := range timeForms {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return position{kind: atTime, t: t}, nil
		}
	}
	return position{}, usage("want "+positionHelp, "%q is no position", s)
}

// kgo is the position for a consumer that asks the node where it is.
func (p position) kgo() kgo.Offset {
	switch p.kind {
	case atEnd:
		return kgo.NewOffset().AtEnd()
	case atOffset:
		return kgo.NewOffset().At(p.n)
	case beforeEnd:
		return kgo.NewOffset().AtEnd().Relative(-p.n)
	case atTime:
		return kgo.NewOffset().AfterMilli(p.t.UnixMilli())
	}
	return kgo.NewOffset().AtStart()
}

// span is what a partition holds and where a position lies in it.
type span struct{ start, end, at int64 }

// resolve says for every partition of the topics where the position is now:
// between its start and its end.
func (p position) resolve(ctx context.Context, adm *kadm.Client, topics ...string) (map[string]map[int32]span, error) {
	starts, err := listed(adm.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	ends, err := listed(adm.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	var times kadm.ListedOffsets
	if p.kind == atTime {
		if times, err = listed(adm.ListOffsetsAfterMilli(ctx, p.t.UnixMilli(), topics...)); err != nil {
			return nil, err
		}
	}
	out := map[string]map[int32]span{}
	starts.Each(func(o kadm.ListedOffset) {
		s := span{start: o.Offset, end: o.Offset}
		if e, ok := ends.Lookup(o.Topic, o.Partition); ok {
			s.end = max(e.Offset, s.start)
		}
		s.at = s.end
		switch p.kind {
		case atStart:
			s.at = s.start
		case atOffset:
			s.at = p.n
		case beforeEnd:
			s.at = s.end - p.n
		case atTime:
			if t, ok := times.Lookup(o.Topic, o.Partition); ok && t.Offset >= 0 {
				s.at = t.Offset
			}
		}
		s.at = min(max(s.at, s.start), s.end)
		if out[o.Topic] == nil {
			out[o.Topic] = map[int32]span{}
		}
		out[o.Topic][o.Partition] = s
	})
	return out, nil
}

// listed makes one partition's error the error of all.
func listed(l kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err == nil {
		err = l.Error()
	}
	return l, err
}
