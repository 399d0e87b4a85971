package rpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// queueTrio has a topic orders, one jobs, and a group billing of orders.
func queueTrio(t *testing.T) *trio {
	t.Helper()
	c := newTrio(t)
	c.topic(t, "orders", []record.NodeID{1}, []record.NodeID{2})
	c.topic(t, "jobs", []record.NodeID{1})
	if _, err := c.master.CreateQueueGroup(t.Context(), "billing", "orders", queue.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	return c
}

// curl posts JSON as curl does and returns status and answer.
func (c *trio) curl(t *testing.T, call, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.Post(c.url+"/tube.v1."+call, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	return r.StatusCode, out
}

// detail is what an error's JSON says to a program.
func detail(t *testing.T, answer map[string]any) *tubev1.QueueErrorDetail {
	t.Helper()
	ds, _ := answer["details"].([]any)
	if len(ds) != 1 {
		t.Fatalf("no detail in %v", answer)
	}
	d := ds[0].(map[string]any)
	b, err := base64.RawStdEncoding.DecodeString(d["value"].(string))
	var out tubev1.QueueErrorDetail
	if err := errors.Join(err, proto.Unmarshal(b, &out)); err != nil || d["type"] != "tube.v1.QueueErrorDetail" {
		t.Fatalf("%v: %v", d, err)
	}
	return &out
}

func TestTheCurlExampleOfTheIssueWorks(t *testing.T) {
	c := queueTrio(t)
	before := time.Now()
	code, out := c.curl(t, "QueueService/Send", `{"topic":"orders","messages":[{"value":"aGk=","delay":"60s"},{"value":"aHVnZQ==","key":"aw==","id":"again","headers":{"source":"web"}}]}`)
	want := `[map[duplicate:false id:2-0 offset:0 partition:2 topic:orders]` +
		` map[duplicate:true error:map[code:invalid_argument message:message too large: 2000000 bytes, topic orders allows 1048588 reason:MESSAGE_TOO_LARGE] id:again offset:1 partition:2 topic:orders]]`
	if code != 200 || fmt.Sprint(out["results"]) != want {
		t.Errorf("%d %v", code, out)
	}
	first, second := c.queues.sent[0], c.queues.sent[1]
	if string(first.Value) != "hi" || !first.KeyNull || first.DeliverAtMillis < before.Add(time.Minute).UnixMilli() || first.DeliverAtMillis > time.Now().Add(time.Minute).UnixMilli() {
		t.Errorf("%+v", first)
	}
	if string(second.Key) != "k" || second.KeyNull || second.DeliverAtMillis != 0 || string(second.Headers[0].Value) != "web" {
		t.Errorf("%+v", second)
	}
}

func TestReceiveAndSettleByJSON(t *testing.T) {
	c := queueTrio(t)
	c.queues.put(3)
	code, out := c.curl(t, "QueueService/Receive", `{"group":"billing","maxMessages":2,"wait":"5s","consumerId":"w1"}`)
	if code != 200 || len(out["messages"].([]any)) != 2 {
		t.Fatalf("%d %v", code, out)
	}
	m := out["messages"].([]any)[1].(map[string]any)
	if m["leaseId"] != "0-1-1-7" || m["value"] != "MQ==" || m["offset"] != "1" || m["attempt"] != 1.0 || m["leaseUntil"] != "1970-01-01T00:00:05Z" || m["topic"] != "orders" {
		t.Errorf("%v", m)
	}
	r := c.queues.receives[0]
	if r.Group != "billing" || r.Max != 2 || r.Wait != 5*time.Second || r.MaxBytes != 1<<20 || r.Member.ID != "w1" || r.Member.CanBeAsked || r.Member.Session == "" || r.Member.Address == "" {
		t.Errorf("%+v", r)
	}

	expired := queue.Lease{Offset: 1, Attempt: 1, Nonce: 7}
	c.queues.refuse[expired] = fmt.Errorf("%w: it was handed out again", queue.ErrLeaseExpired)
	code, out = c.curl(t, "QueueService/Acknowledge", `{"group":"billing","leaseIds":["0-0-1-7","nonsense","0-1-1-7"]}`)
	if code != 200 || fmt.Sprint(out) != `map[results:[map[leaseId:0-0-1-7] map[error:map[code:not_found message:lease unknown: "nonsense" is no lease id reason:LEASE_UNKNOWN] leaseId:nonsense] map[error:map[code:failed_precondition message:lease expired: it was handed out again reason:LEASE_EXPIRED] leaseId:0-1-1-7]]]` {
		t.Errorf("%d %v", code, out)
	}
	if len(c.queues.settled) != 2 || c.queues.settled[0].Verdict != queue.Acknowledge {
		t.Errorf("settled %+v", c.queues.settled)
	}

	c.queues.settled = nil
	long := strings.Repeat("é", 1000)
	c.curl(t, "QueueService/Nack", `{"group":"billing","entries":[{"leaseId":"0-0-1-7"},{"leaseId":"0-0-1-7","delay":"90s","reason":"`+long+`"},{"leaseId":"0-0-1-7","dead":true},{"leaseId":"0-0-1-7","delay":"0s"}]}`)
	c.curl(t, "QueueService/Release", `{"group":"billing","leaseIds":["0-0-1-7"]}`)
	c.curl(t, "QueueService/Extend", `{"group":"billing","leaseIds":["0-0-1-7"],"duration":"45s"}`)
	c.curl(t, "QueueService/Extend", `{"group":"billing","leaseIds":["0-0-1-7"]}`)
	want := []struct {
		verdict queue.Verdict
		delay   time.Duration
	}{{queue.Nack, -1}, {queue.Nack, 90 * time.Second}, {queue.Dead, -1}, {queue.Nack, 0}, {queue.Release, 0}, {queue.Extend, 45 * time.Second}, {queue.Extend, 0}}
	if len(c.queues.settled) != len(want) {
		t.Fatalf("%d settlements", len(c.queues.settled))
	}
	for i, w := range want {
		if s := c.queues.settled[i]; s.Verdict != w.verdict || s.Delay != w.delay {
			t.Errorf("%d: %+v, want %+v", i, s, w)
		}
	}
	if r := c.queues.settled[1].Reason; len(r) > queue.MaxReasonBytes || !strings.HasPrefix(long, r) || len(r) < 1000 {
		t.Errorf("the reason has %d bytes", len(r))
	}
}

// Complete with a lease that is none does nothing at all.
func TestCompleteIsAllOrNothing(t *testing.T) {
	c := queueTrio(t)
	send := `"send":[{"topic":"jobs","messages":[{"value":"aGk="}]}]`
	_, out := c.curl(t, "QueueService/Complete", `{"group":"billing","leaseIds":["0-0-1-7","?"],`+send+`}`)
	if rs := out["results"].([]any); len(c.queues.sent) != 0 || len(out["sent"].([]any)) > 0 || len(rs) != 2 || rs[1].(map[string]any)["error"] == nil {
		t.Errorf("%v, %d sent", out, len(c.queues.sent))
	}
	c.queues.refuse[queue.Lease{Attempt: 1, Nonce: 7}] = queue.ErrLeaseExpired
	_, out = c.curl(t, "QueueService/Complete", `{"group":"billing","leaseIds":["0-0-1-7"],`+send+`}`)
	if len(c.queues.sent) != 0 || len(out["sent"].([]any)) > 0 {
		t.Errorf("%v, %d sent", out, len(c.queues.sent))
	}
	clear(c.queues.refuse)
	_, out = c.curl(t, "QueueService/Complete", `{"group":"billing","leaseIds":["0-0-1-7"],`+send+`}`)
	if len(c.queues.sent) != 1 || fmt.Sprint(out["sent"]) != "[map[results:[map[duplicate:false id:2-0 offset:0 partition:2 topic:jobs]]]]" {
		t.Errorf("%v, %d sent", out, len(c.queues.sent))
	}
}

// The issue's list of bad input: each has a code and a detail, and nothing was changed.
func TestBadInputHasACodeAndADetail(t *testing.T) {
	c := queueTrio(t)
	message := func(fields string) string { return `{"topic":"orders","messages":[{` + fields + `}]}` }
	for _, x := range []struct {
		call, body string
		code       string
		reason     string
		field      string
	}{
		{"Send", `{"messages":[{}]}`, "invalid_argument", "INVALID_FIELD", "topic"},
		{"Send", `{"topic":"orders"}`, "invalid_argument", "TOO_MANY", "messages"},
		{"Send", `{"topic":"orders","messages":[` + strings.Repeat("{},", queue.MaxMessages) + `{}]}`, "invalid_argument", "TOO_MANY", "messages"},
		{"Send", message(`"delay":"-1s"`), "invalid_argument", "DELAY_OUT_OF_RANGE", "messages[0].delay"},
		{"Send", message(`"delay":"31536001s"`), "invalid_argument", "DELAY_OUT_OF_RANGE", "messages[0].delay"},
		{"Send", message(`"deliverAt":"2020-01-01T00:00:00Z"`), "invalid_argument", "DELAY_OUT_OF_RANGE", "messages[0].deliver_at"},
		{"Send", message(`"deliverAt":"9999-01-01T00:00:00Z"`), "invalid_argument", "DELAY_OUT_OF_RANGE", "messages[0].deliver_at"},
		{"Send", message(`"delay":"1s","deliverAt":"2999-01-01T00:00:00Z"`), "invalid_argument", "INVALID_FIELD", ""},
		{"Send", message(`"id":"` + strings.Repeat("x", 257) + `"`), "invalid_argument", "INVALID_FIELD", "messages[0].id"},
		{"Send", message(`"headers":{"tube-deliver-at":"1"}`), "invalid_argument", "INVALID_FIELD", "messages[0].headers"},
		{"Send", `{"topic":"orders","messages":[{"value":"aGk="},`, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", `{"topic":7}`, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", `{"topic":"orders","messages":[{"value":"not base64!"}]}`, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", `{"topik":"orders"}`, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", ``, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", `[]`, "invalid_argument", "INVALID_FIELD", ""},
		{"Send", `{"topic":"` + strings.Repeat("x", maxQueueBody) + `"}`, "resource_exhausted", "MESSAGE_TOO_LARGE", ""},
		{"Receive", `{}`, "invalid_argument", "INVALID_FIELD", "group"},
		{"Receive", `{"group":"billing","maxMessages":10001}`, "invalid_argument", "TOO_MANY", "max_messages"},
		{"Receive", `{"group":"billing","maxMessages":-1}`, "invalid_argument", "TOO_MANY", "max_messages"},
		{"Receive", `{"group":"billing","wait":"61s"}`, "invalid_argument", "INVALID_FIELD", "wait"},
		{"Receive", `{"group":"billing","wait":"-315576000000s"}`, "invalid_argument", "INVALID_FIELD", "wait"},
		{"Receive", `{"group":"billing","maxBytes":5000000}`, "invalid_argument", "TOO_MANY", "max_bytes"},
		{"Receive", `{"group":"billing","consumerId":"` + strings.Repeat("x", 257) + `"}`, "invalid_argument", "INVALID_FIELD", "consumer_id"},
		{"Acknowledge", `{"group":"billing"}`, "invalid_argument", "TOO_MANY", "lease_ids"},
		{"Acknowledge", `{"group":"gone","leaseIds":["0-0-1-7"]}`, "not_found", "UNKNOWN_GROUP", ""},
		{"Acknowledge", `{"leaseIds":["0-0-1-7"]}`, "invalid_argument", "INVALID_FIELD", "group"},
		{"Nack", `{"group":"billing","entries":[{"leaseId":"0-0-1-7","delay":"-1s"}]}`, "invalid_argument", "DELAY_OUT_OF_RANGE", "entries[0].delay"},
		{"Nack", `{"group":"billing","entries":[{"leaseId":"0-0-1-7","delay":"1s","dead":true}]}`, "invalid_argument", "INVALID_FIELD", "entries[0]"},
		{"Extend", `{"group":"billing","leaseIds":["0-0-1-7"],"duration":"0s"}`, "invalid_argument", "INVALID_FIELD", "duration"},
		{"Extend", `{"group":"billing","leaseIds":["0-0-1-7"],"duration":"90000s"}`, "invalid_argument", "INVALID_FIELD", "duration"},
		{"Release", `{"group":"billing","leaseIds":["0-0-1-7"],"delay":"-5s"}`, "invalid_argument", "DELAY_OUT_OF_RANGE", "delay"},
		{"Complete", `{"group":"billing","leaseIds":["0-0-1-7"],"send":[{"topic":"jobs","messages":[]}]}`, "invalid_argument", "TOO_MANY", "send[0].messages"},
		{"Complete", `{"group":"billing","leaseIds":["0-0-1-7"],"send":[{"topic":"jobs","messages":[{"delay":"-1s"}]}]}`, "invalid_argument", "DELAY_OUT_OF_RANGE", "send[0].messages[0].delay"},
	} {
		_, out := c.curl(t, "QueueService/"+x.call, x.body)
		if out["code"] != x.code {
			t.Errorf("%s %.60s: %v", x.call, x.body, out)
			continue
		}
		if d := detail(t, out); d.Reason.String() != x.reason || d.Field != x.field {
			t.Errorf("%s %.60s: %v", x.call, x.body, d)
		}
	}
	if c.queues.sent != nil || c.queues.settled != nil {
		t.Errorf("something was done: %v, %v", c.queues.sent, c.queues.settled)
	}
}

// Every error that package queue declares is told as what it is, to who asked for one
// thing and for one of several.
func TestEveryErrorOfQueuesHasACode(t *testing.T) {
	named := map[string]bool{}
	for _, pattern := range []string{"../queue/*.go", "queue_errors.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^\s*(?:var )?(Err\w+)\s+= errors\.New|\{queue\.(Err\w+), connect`).FindAllStringSubmatch(string(text), -1) {
				if m[1] != "" && !named[m[1]] {
					named[m[1]] = false
				}
				if m[2] != "" {
					named[m[2]] = true
				}
			}
		}
	}
	if len(named) < 20 {
		t.Fatalf("only %v", named)
	}
	for name, mapped := range named {
		if !mapped {
			t.Errorf("queue.%s has no code", name)
		}
	}
}

// What the backend refuses has its code; what it should never say is not told.
func TestErrorsOfTheBackendHaveTheirCodes(t *testing.T) {
	c := queueTrio(t)
	for _, x := range []struct {
		err    error
		code   string
		reason string
		text   string
	}{
		{fmt.Errorf("%w: partition 1 has no leader", queue.ErrUnavailable), "unavailable", "UNAVAILABLE", "partition 1"},
		{queue.ErrOverloaded, "resource_exhausted", "OVERLOADED", "overloaded"},
		{queue.ErrOutcomeUnknown, "unknown", "OUTCOME_UNKNOWN", "unknown"},
		{errors.New("secret: /var/lib"), "internal", "REASON_UNSPECIFIED", "log"},
	} {
		c.queues.failSend = x.err
		_, out := c.curl(t, "QueueService/Send", `{"topic":"orders","messages":[{}]}`)
		if d := detail(t, out); out["code"] != x.code || d.Reason.String() != x.reason || d.Topic != "orders" || !strings.Contains(out["message"].(string), x.text) {
			t.Errorf("%v: %v, %v", x.err, out, d)
		}
	}
	c.queues.starting = errors.New("the node is starting")
	if code, out := c.curl(t, "QueueService/Send", `{"topic":"orders","messages":[{}]}`); code != 503 || detail(t, out).Reason != tubev1.QueueErrorDetail_UNAVAILABLE {
		t.Errorf("%d %v", code, out)
	}
}

// A body that ends before its announced length, and one that is longer.
func TestABodyOfAnotherLengthThanAnnounced(t *testing.T) {
	c := queueTrio(t)
	raw := func(head, body string) string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /tube.v1.QueueService/Send HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", head, body)
		_ = conn.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	whole := `{"topic":"orders","messages":[{}]}`
	if out := raw("Content-Length: 500", whole); !strings.Contains(out, "400 Bad Request") || !strings.Contains(out, "ended before") || !strings.Contains(out, "QueueErrorDetail") {
		t.Errorf("too short: %s", out)
	}
	if out := raw("Content-Length: 10", whole); !strings.Contains(out, "400 Bad Request") || !strings.Contains(out, "does not decode") {
		t.Errorf("too long: %s", out)
	}
	if c.queues.sent != nil {
		t.Error("something was sent")
	}
}

// More than the node has memory for is refused, and there is room again afterwards.
func TestMemoryOfRequestsIsBounded(t *testing.T) {
	b := newBudget(10)
	body := func(s string) *queueBody {
		return &queueBody{ReadCloser: io.NopCloser(strings.NewReader(s)), budget: b, limit: 8}
	}
	first, second := body("12345678"), body("123")
	if got, err := io.ReadAll(first); err != nil || len(got) != 8 {
		t.Fatal(err)
	}
	_, err := io.ReadAll(second)
	var ce *connect.Error
	if !errors.As(err, &ce) || ce.Code() != connect.CodeResourceExhausted {
		t.Fatalf("%v", err)
	}
	second.spent()
	first.spent()
	if _, err := io.ReadAll(body("123")); err != nil || b.used != 3 {
		t.Fatalf("%v, %d used", err, b.used)
	}
	if _, err := io.ReadAll(body("123456789")); !errors.As(err, &ce) || !strings.Contains(err.Error(), "larger") {
		t.Fatalf("%v", err)
	}
	// Answers that are there already are counted, and whoever wants more waits.
	b.charge(20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.wait(ctx) == nil {
		t.Error("there is room")
	}
	done := make(chan error, 1)
	go func() { done <- b.wait(t.Context()) }()
	b.release(20)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// gRPC and the binary form are the same service.
func TestTheServiceSpeaksGRPC(t *testing.T) {
	c := queueTrio(t)
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "json": {connect.WithProtoJSON()}} {
		client := tubev1connect.NewQueueServiceClient(h2c(), c.url, options...)
		c.queues.put(1)
		r, err := client.Receive(t.Context(), connect.NewRequest(&tubev1.ReceiveRequest{Group: "billing", Wait: durationpb.New(time.Second)}))
		if err != nil || len(r.Msg.Messages) != 1 || r.Msg.Messages[0].Key != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		_, err = client.Acknowledge(t.Context(), connect.NewRequest(&tubev1.AcknowledgeRequest{Group: "gone", LeaseIds: []string{"0-0-1-7"}}))
		if got := reasonOf(err); got != tubev1.QueueErrorDetail_UNKNOWN_GROUP || connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v, %v", name, err, got)
		}
	}
}

// h2c is a client of HTTP/2 without TLS.
func h2c() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

func reasonOf(err error) reason {
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			if v, err := d.Value(); err == nil {
				if q, ok := v.(*tubev1.QueueErrorDetail); ok {
					return q.Reason
				}
			}
		}
	}
	return -1
}

// Headers that a map of text does not hold come whole beside it.
func TestHeadersAreToldWhole(t *testing.T) {
	c := queueTrio(t)
	client := tubev1connect.NewQueueServiceClient(http.DefaultClient, c.url)
	c.queues.do(func() {
		c.queues.there = append(c.queues.there, queue.Delivery{
			Lease: queue.Lease{Attempt: 1, Nonce: 1}, Topic: "orders", Key: nil, ID: "i",
			Headers: []queue.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte{0xff}}, {Key: "c", Value: []byte("x")}, {Key: "d\xff", Value: nil}, {Key: queue.HeaderMessageID, Value: []byte("i")}},
		})
	})
	r, err := client.Receive(t.Context(), connect.NewRequest(&tubev1.ReceiveRequest{Group: "billing", Wait: durationpb.New(time.Second)}))
	if err != nil {
		t.Fatal(err)
	}
	m := r.Msg.Messages[0]
	var raw []string
	for _, h := range m.RawHeaders {
		raw = append(raw, fmt.Sprintf("%s=%q", h.Name, h.Value))
	}
	if len(m.Headers) != 3 || m.Headers["a"] != "2" || m.Headers["c"] != "x" || strings.Join(raw, " ") != `a="1" a="2" b="\xff"` {
		t.Errorf("%v, %v", m.Headers, raw)
	}
	if m.Key == nil || m.LeaseId != "" || m.LeaseUntil != nil {
		t.Errorf("an empty key is no missing one, and without an end there is no lease: %v", m)
	}
	sent := &tubev1.OutgoingMessage{Headers: m.Headers, RawHeaders: m.RawHeaders, Key: []byte{}}
	if _, err := client.Send(t.Context(), connect.NewRequest(&tubev1.SendRequest{Topic: "orders", Messages: []*tubev1.OutgoingMessage{sent}})); err != nil {
		t.Fatal(err)
	}
	if o := c.queues.sent[0]; o.KeyNull || len(o.Headers) != 6 || !bytes.Equal(o.Headers[5].Value, []byte{0xff}) {
		t.Errorf("%+v", o)
	}
}

// A long poll ends when the node stops, and says so.
func TestAStoppingNodeEndsLongPolls(t *testing.T) {
	c := queueTrio(t)
	client := tubev1connect.NewQueueServiceClient(http.DefaultClient, c.url)
	done := make(chan error, 1)
	go func() {
		_, err := client.Receive(context.Background(), connect.NewRequest(&tubev1.ReceiveRequest{Group: "billing", Wait: durationpb.New(time.Minute)}))
		done <- err
	}()
	c.queues.await(t.Context(), func() bool { return len(c.queues.receives) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v", err)
	}
}

// A call of a backend that hangs is answered while it can be; one that waits has its
// wait besides.
func TestCallsHaveAnEnd(t *testing.T) {
	for want, req := range map[time.Duration]any{
		callTimeout:               &tubev1.SendRequest{},
		callTimeout + time.Second: &tubev1.ReceiveRequest{Wait: durationpb.New(time.Second)},
		callTimeout + maxWait:     &tubev1.ReceiveRequest{Wait: &durationpb.Duration{Seconds: 1 << 38}},
	} {
		if got := callTime(req); got != want {
			t.Errorf("%v for %v", got, req)
		}
	}
	if callTimeout >= writeTimeout {
		t.Error("the answer cannot be written any more")
	}
	_, err := queueRefusals(slog.New(slog.DiscardHandler)).WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
		if by, ok := ctx.Deadline(); !ok || time.Until(by) > callTimeout {
			t.Errorf("it ends at %v", by)
		}
		return nil, context.DeadlineExceeded
	})(t.Context(), connect.NewRequest(&tubev1.SendRequest{Topic: "orders"}))
	if reasonOf(err) != tubev1.QueueErrorDetail_OUTCOME_UNKNOWN || connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("%v", err)
	}
}
