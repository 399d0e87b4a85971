package rpc

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

const (
	// maxHeaders of one message.
	maxHeaders = 1000
	// lateGrace is how long ago a deliver_at may be and still count as now: clocks
	// differ, and the request was on its way.
	lateGrace = 10 * time.Second
)

// outgoing checks a message to be sent. field is its name in the request.
func outgoing(m *tubev1.OutgoingMessage, field string, now time.Time) (queue.Outgoing, error) {
	if m == nil {
		return queue.Outgoing{}, badField(field, "it is null")
	}
	if len(m.Id) > queue.MaxIDBytes {
		return queue.Outgoing{}, badField(field+".id", "%d bytes long, %d are allowed", len(m.Id), queue.MaxIDBytes)
	}
	if n := len(m.Headers) + len(m.RawHeaders); n > maxHeaders {
		return queue.Outgoing{}, badField(field+".headers", "%d, %d are allowed", n, maxHeaders)
	}
	out := queue.Outgoing{Key: m.Key, KeyNull: m.Key == nil, Value: m.Value, ID: m.Id}
	if len(m.Headers) > 0 { // most have none
		for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
			out.Headers = append(out.Headers, queue.Header{Key: k, Value: []byte(m.Headers[k])})
		}
	}
	for _, h := range m.RawHeaders {
		out.Headers = append(out.Headers, queue.Header{Key: h.GetName(), Value: h.GetValue()})
	}
	for _, h := range out.Headers {
		if h.Key == queue.HeaderMessageID || h.Key == queue.HeaderDeliverAt {
			return queue.Outgoing{}, badField(field+".headers", "%s is the server's; there are the fields id, delay and deliver_at", h.Key)
		}
	}
	var err error
	out.DeliverAtMillis, err = dueMillis(m.GetDelay(), m.GetDeliverAt(), field, now)
	return out, err
}

// dueMillis is the wall clock at which something is due, of a delay or a time; 0: at
// once.
func dueMillis(delay *durationpb.Duration, at *timestamppb.Timestamp, field string, now time.Time) (int64, error) {
	switch {
	case delay != nil:
		d, err := delayOf(delay, field+".delay")
		if err != nil || d == 0 {
			return 0, err
		}
		return now.Add(d).UnixMilli(), nil
	case at != nil:
		field += ".deliver_at"
		if err := at.CheckValid(); err != nil {
			return 0, badField(field, "%v", err)
		}
		switch d := at.AsTime().Sub(now); {
		case d < -lateGrace:
			return 0, refusedFor(tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE, field, "%s has passed", at.AsTime().Format(time.RFC3339))
		case d > queue.MaxDelay:
			return 0, refusedFor(tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE, field, "%s is more than a year ahead", at.AsTime().Format(time.RFC3339))
		case d <= 0:
			return 0, nil
		}
		return at.AsTime().UnixMilli(), nil
	}
	return 0, nil
}

// delayOf is a time to wait: 0 to a year.
func delayOf(d *durationpb.Duration, field string) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, badField(field, "%v", err)
	}
	// In seconds: what is beyond 292 years is no time.Duration.
	if s := d.GetSeconds(); s < 0 || d.GetNanos() < 0 || s > int64(queue.MaxDelay/time.Second) {
		return 0, refusedFor(tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE, field, "%ds; 0s to a year (31536000s) can be", s)
	}
	return d.AsDuration(), nil
}

// durationOf is a time within bounds; none is def.
func durationOf(d *durationpb.Duration, field string, least, most, def time.Duration) (time.Duration, error) {
	if d == nil {
		return def, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, badField(field, "%v", err)
	}
	// The bounds are far from what a time.Duration cannot hold.
	if s := d.GetSeconds(); s < int64(least/time.Second)-1 || s > int64(most/time.Second)+1 || d.AsDuration() < least || d.AsDuration() > most {
		return 0, badField(field, "%v; %v to %v can be", spoken(d), least, most)
	}
	return d.AsDuration(), nil
}

// spoken is a duration for people, also of one that no time.Duration can hold.
func spoken(d *durationpb.Duration) string {
	if s := d.GetSeconds(); s > math.MaxInt32 || s < math.MinInt32 {
		return strconv.FormatInt(s, 10) + "s"
	}
	return d.AsDuration().String()
}

// counted checks a number of things; 0 is def.
func counted(n int32, field string, most, def int) (int, error) {
	switch {
	case n == 0:
		return def, nil
	case n < 0 || int(n) > most:
		return 0, refusedFor(tubev1.QueueErrorDetail_TOO_MANY, field, "%d; 1 to %d can be", n, most)
	}
	return int(n), nil
}

// several checks how many there are of something that there must be of.
func several(n int, field string) error {
	if n < 1 || n > queue.MaxMessages {
		return refusedFor(tubev1.QueueErrorDetail_TOO_MANY, field, "there are %d; 1 to %d can be", n, queue.MaxMessages)
	}
	return nil
}

// named checks that a name is given. Whether there is such a thing is the backend's
// to say.
func named(name, field string) error {
	if name == "" {
		return badField(field, "it is empty; give a name")
	}
	return nil
}

// toMessages makes all of an answer's messages at once. Times that are the same are
// one object, as they are only read.
func toMessages(ds []queue.Delivery) []*tubev1.QueueMessage {
	out, all := make([]*tubev1.QueueMessage, len(ds)), make([]tubev1.QueueMessage, len(ds))
	var sent, until stamps
	for i := range ds {
		out[i] = &all[i]
		toMessage(&all[i], &ds[i], &sent, &until)
	}
	return out
}

// stamps makes timestamps, of equal times in a row one.
type stamps struct {
	millis int64
	last   *timestamppb.Timestamp
}

func (s *stamps) of(millis int64) *timestamppb.Timestamp {
	if s.last == nil || s.millis != millis {
		s.millis, s.last = millis, timestamppb.New(time.UnixMilli(millis))
	}
	return s.last
}

func toMessage(m *tubev1.QueueMessage, d *queue.Delivery, sent, until *stamps) {
	m.Id = validText(idOf(d.ID, queue.Place{Partition: d.Lease.Partition, Offset: d.Lease.Offset}))
	m.Value, m.Key, m.Topic = d.Value, d.Key, d.Topic
	m.Partition, m.Offset, m.Attempt = int32(d.Lease.Partition), int64(d.Lease.Offset), int32(d.Lease.Attempt)
	m.Time = sent.of(d.TimestampMillis)
	if d.KeyNull {
		m.Key = nil
	} else if m.Key == nil {
		m.Key = []byte{}
	}
	if d.UntilMillis != 0 {
		m.LeaseId, m.LeaseUntil = d.Lease.String(), until.of(d.UntilMillis)
	}
	m.Headers, m.RawHeaders = toHeaders(d.Headers)
}

// toHeaders tells headers as a map, and those that a map of text does not tell wholly
// as a list. The server's own are fields of the message and are left out.
func toHeaders(hs []queue.Header) (map[string]string, []*tubev1.RawHeader) {
	var plain map[string]string
	var raw []*tubev1.RawHeader
	for i, h := range hs {
		if h.Key == queue.HeaderMessageID || h.Key == queue.HeaderDeliverAt {
			continue
		}
		name, text := validText(h.Key), utf8.Valid(h.Value)
		if text {
			if plain == nil {
				plain = make(map[string]string, len(hs))
			}
			plain[name] = string(h.Value)
		}
		again := slices.ContainsFunc(hs[:min(i, maxHeaders)], func(o queue.Header) bool { return o.Key == h.Key }) ||
			slices.ContainsFunc(hs[i+1:min(i+1+maxHeaders, len(hs))], func(o queue.Header) bool { return o.Key == h.Key })
		if !text || again {
			raw = append(raw, &tubev1.RawHeader{Name: name, Value: h.Value})
		}
	}
	return plain, raw
}

// validText is s as far as it is UTF-8, which protobuf demands of a string.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// sizeOf is about what a message takes in memory once it is encoded.
func sizeOf(ds []queue.Delivery) int64 {
	n := 0
	for i := range ds {
		n += 128 + len(ds[i].Key) + len(ds[i].Value)
		for _, h := range ds[i].Headers {
			n += 32 + len(h.Key) + len(h.Value)
		}
	}
	return int64(n)
}

// leases reads lease ids. errs has an error for each that is none; all is false then.
func leases(ids []string) (out []queue.Lease, errs []error, all bool) {
	out, errs, all = make([]queue.Lease, len(ids)), make([]error, len(ids)), true
	for i, id := range ids {
		if out[i], errs[i] = queue.ParseLease(id); errs[i] != nil {
			all = false
		}
	}
	return out, errs, all
}

// nackOf checks an entry of a nack.
func nackOf(e *tubev1.NackEntry, field string, now time.Time) (queue.Settlement, error) {
	if e == nil {
		return queue.Settlement{}, badField(field, "it is null")
	}
	s := queue.Settlement{Verdict: queue.Nack, Delay: -1, Reason: cut(e.Reason, queue.MaxReasonBytes)}
	if e.Dead {
		if e.When != nil {
			return s, badField(field, "dead with a time; a dead message is not delivered again")
		}
		s.Verdict = queue.Dead
		return s, nil
	}
	if e.When != nil {
		at, err := dueMillis(e.GetDelay(), e.GetDeliverAt(), field, now)
		if err != nil {
			return s, err
		}
		s.Delay = time.Duration(max(0, cmp.Or(at, now.UnixMilli())-now.UnixMilli())) * time.Millisecond
	}
	return s, nil
}

// cut shortens a text to n bytes, at a letter's end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func fieldAt(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// idOf is a message's id; of one that was given none its place, which is as unique
// and costs nothing.
func idOf(id string, at queue.Place) string {
	if id != "" || at.Offset < 0 {
		return id
	}
	return at.String()
}
