package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// post sends JSON, or what is meant to be some, and returns status, code and reason.
func (n *node) post(call, body string) (status int, code, reason, text string) {
	n.t.Helper()
	r, err := http.Post("http://"+n.http+"/tube.v1."+call, "application/json", strings.NewReader(body))
	if err != nil {
		n.t.Fatalf("%s: %v", call, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Fatalf("%s: %v", call, err)
	}
	var e struct {
		Code    string
		Details []struct{ Debug struct{ Reason string } }
	}
	_ = json.Unmarshal(b, &e) // an answer of another kind has no code
	if len(e.Details) > 0 {
		reason = e.Details[0].Debug.Reason
	}
	return r.StatusCode, e.Code, reason, string(b)
}

// The curl examples of the documentation are what they say, one after the other.
func TestTheCurlExamplesOfTheQueuePage(t *testing.T) {
	page, err := os.ReadFile("../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?s)curl localhost:9080/tube\.v1\.(\S+) -H 'content-type: application/json' \\\n\s+-d '(.*?)'\n`).FindAllStringSubmatch(string(page), -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples found", len(examples))
	}
	n := newNode(t)
	n.createTopic("orders", 4)
	lease := ""
	for _, e := range examples {
		call, body := e[1], e[2]
		body = strings.NewReplacer(`"delay":"60s"`, `"delay":"1s"`).Replace(body) // nobody waits that long
		if call == "QueueService/Acknowledge" {
			body = regexp.MustCompile(`"leaseIds":\[".*?"\]`).ReplaceAllString(body, `"leaseIds":["`+lease+`"]`)
		}
		status, code, _, text := n.post(call, body)
		if status != http.StatusOK || strings.Contains(text, `"reason"`) {
			t.Fatalf("%s %s is answered with %d %s: %s", call, body, status, code, text)
		}
		if call == "QueueService/Receive" {
			var got struct {
				Messages []struct{ LeaseID, Value, Key string }
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Messages) != 1 || got.Messages[0].Value != "aGk=" || got.Messages[0].Key != "Yw==" {
				t.Fatalf("received %s, %v", text, err)
			}
			lease = got.Messages[0].LeaseID
		}
	}
	if lease == "" {
		t.Error("the page has no example that receives")
	}
}

// What is wrong is refused with a code and a reason, and the node goes on.
func TestBadQueueRequests(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	q.group("g", "t", nil)
	many := strings.Repeat(`"x",`, 10_000) + `"x"`
	for _, x := range []struct{ call, body, code, reason string }{
		{"QueueService/Send", `{"topic":"t","messages":[{"value":"aGk="`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", `[]`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", ``, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", strings.Repeat(`{"messages":[`, 100_000), "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", `{"topic":"t","messages":[{"value":"%%%"}]}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", `{"topic":"t","messages":[{"delay":"1s","deliverAt":"2030-01-01T00:00:00Z"}]}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", `{"topic":"t","messages":[{"delay":"-1s"}]}`, "invalid_argument", "DELAY_OUT_OF_RANGE"},
		{"QueueService/Send", `{"topic":"t","messages":[{"deliverAt":"9999-01-01T00:00:00Z"}]}`, "invalid_argument", "DELAY_OUT_OF_RANGE"},
		{"QueueService/Send", `{"topic":"t","messages":[{"id":"` + strings.Repeat("i", 257) + `"}]}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Send", `{"topic":"none","messages":[{}]}`, "not_found", "UNKNOWN_TOPIC"},
		{"QueueService/Send", `{"topic":"t","messages":[{"value":"` + strings.Repeat("A", 20<<20) + `"}]}`, "resource_exhausted", "MESSAGE_TOO_LARGE"},
		{"QueueService/Receive", `{"group":"g","maxMessages":2147483647}`, "invalid_argument", "TOO_MANY"},
		{"QueueService/Receive", `{"group":"g","maxMessages":99999999999}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Receive", `{"group":"g","maxBytes":2147483647}`, "invalid_argument", "TOO_MANY"},
		{"QueueService/Receive", `{"group":"g","wait":"315576000000s"}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueService/Receive", `{"group":"none"}`, "not_found", "UNKNOWN_GROUP"},
		{"QueueService/Acknowledge", `{"group":"g","leaseIds":[` + many + `]}`, "invalid_argument", "TOO_MANY"},
		{"QueueAdminService/CreateGroup", `{"group":"../g","topic":"t"}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueAdminService/CreateGroup", `{"group":"h","topic":"t","settings":{"filter":"` + strings.Repeat("(", 5000) + `"}}`, "invalid_argument", "FILTER_INVALID"},
		{"QueueAdminService/CreateGroup", `{"group":"h","topic":"t","settings":{"lease":"1ms"}}`, "invalid_argument", "INVALID_FIELD"},
		{"QueueAdminService/SeekGroup", `{"group":"g","to":{"offset":{"partition":7,"offset":"0"}}}`, "invalid_argument", "INVALID_FIELD"},
	} {
		if status, code, reason, text := n.post(x.call, x.body); code != x.code || reason != x.reason || status < 400 {
			t.Errorf("%s %.100s is answered with %d %s %s, want %s %s: %.300s", x.call, x.body, status, code, reason, x.code, x.reason, text)
		}
	}
	n.alive()
	if end := must(t, q.admin.GetGroup, &tubev1.GetGroupRequest{Group: "g"}).Total.Backlog; end != 0 {
		t.Errorf("%d messages were stored", end)
	}
}

// What is said of leases and messages that cannot be is refused for each by itself, with
// a reason, and changes nothing.
func TestBadLeases(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	for _, g := range []string{"g", "other", "back"} {
		q.group(g, "t", &tubev1.QueueSettings{Lease: durationpb.New(time.Second), Backoff: []*durationpb.Duration{durationpb.New(0)}})
	}
	q.group("all", "t", &tubev1.QueueSettings{Mode: proto.String("broadcast")})
	for range 2 {
		q.send("t", out("m"))
	}
	lease := func(group, who string) string { return q.takeAll(group, who, 1)[0].LeaseId }
	first := lease("g", "a")
	back := lease("back", "a")
	must(t, q.admin.SeekGroup, &tubev1.SeekGroupRequest{Group: "back", To: &tubev1.Position{At: &tubev1.Position_Start{Start: true}}})
	everybody := must(t, q.Receive, &tubev1.ReceiveRequest{Group: "all", ConsumerId: "c", Wait: durationpb.New(10 * time.Second)}).Messages[0].LeaseId
	never := "0-99" + strings.TrimPrefix(first, "0-0") // there is no such message
	for _, x := range []struct{ call, body, want string }{
		{"QueueService/Acknowledge", `{"group":"other","leaseIds":["` + first + `"]}`, "LEASE_UNKNOWN"},
		{"QueueService/Acknowledge", `{"group":"g","leaseIds":["what"]}`, "LEASE_UNKNOWN"},
		{"QueueService/Nack", `{"group":"g","entries":[{"leaseId":"` + never + `"}]}`, "LEASE_UNKNOWN"},
		{"QueueService/Acknowledge", `{"group":"back","leaseIds":["` + back + `"]}`, "LEASE_EXPIRED"},
		{"QueueService/Extend", `{"group":"back","leaseIds":["` + back + `"]}`, "LEASE_EXPIRED"},
		{"QueueService/Complete", `{"group":"back","leaseIds":["` + back + `"],"send":[{"topic":"t","messages":[{}]}]}`, "LEASE_EXPIRED"},
		{"QueueService/Complete", `{"group":"all","leaseIds":["` + everybody + `"],"send":[{"topic":"t","messages":[{}]}]}`, "GROUP_MODE"},
		{"QueueService/Receive", `{"group":"all"}`, "INVALID_FIELD"},
		{"QueueAdminService/CancelDelayed", `{"topic":"t","messages":[{"at":{"partition":0,"offset":"0"}}]}`, "UNKNOWN_MESSAGE"},
		{"QueueAdminService/CancelDelayed", `{"topic":"t","messages":[{"at":{"partition":0,"offset":"99"}}]}`, "UNKNOWN_MESSAGE"},
		{"QueueAdminService/RescheduleDelayed", `{"topic":"t","messages":[{"at":{"partition":0,"offset":"0"}}],"delay":"1s"}`, "UNKNOWN_MESSAGE"},
		{"QueueAdminService/TraceMessage", `{"topic":"t","message":{"at":{"partition":0,"offset":"99"}}}`, "UNKNOWN_MESSAGE"},
		{"QueueAdminService/SeekGroup", `{"group":"none","to":{"start":true}}`, "UNKNOWN_GROUP"},
	} {
		if _, _, _, text := n.post(x.call, x.body); !strings.Contains(text, `"`+x.want+`"`) {
			t.Errorf("%s %s is answered with %s, want %s", x.call, x.body, text, x.want)
		}
	}
	for _, g := range []string{"g", "other", "back"} {
		if backlog := must(t, q.admin.GetGroup, &tubev1.GetGroupRequest{Group: g}).Total.Backlog; backlog != 2 {
			t.Errorf("group %s is to do %d of 2 messages", g, backlog)
		}
	}
}

// A stream that asks for too much is ended with a reason; one that never reads holds
// up nobody, and what it holds goes to others when it is gone.
func TestBadQueueStreams(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	q.group("g", "t", &tubev1.QueueSettings{Lease: durationpb.New(3 * time.Second)})
	start := func(credit int32) *tubev1.ConsumeRequest {
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: &tubev1.ConsumeStart{Group: "g", ConsumerId: "s", Credit: credit}}}
	}
	credit := &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: 1 << 30}}}
	for name, x := range map[string]struct {
		frames []*tubev1.ConsumeRequest
		want   tubev1.QueueErrorDetail_Reason
	}{
		"absurd credit":       {[]*tubev1.ConsumeRequest{start(1 << 30)}, tubev1.QueueErrorDetail_TOO_MANY},
		"absurd credit later": {[]*tubev1.ConsumeRequest{start(1), credit}, tubev1.QueueErrorDetail_TOO_MANY},
		"no start":            {[]*tubev1.ConsumeRequest{credit}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"two starts":          {[]*tubev1.ConsumeRequest{start(1), start(1)}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"nothing in it":       {[]*tubev1.ConsumeRequest{start(1), {}}, tubev1.QueueErrorDetail_INVALID_FIELD},
	} {
		s := q.Consume(timeout(t, 20*time.Second))
		for _, f := range x.frames {
			_ = s.Send(f) // the stream may have ended already
		}
		var err error
		for err == nil {
			_, err = s.Receive()
		}
		if reasonOf(err) != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	const messages = 200
	for i := range messages {
		q.send("t", out(fmt.Sprint(i, strings.Repeat(".", 50_000))))
	}
	ctx, vanish := context.WithCancel(context.Background())
	deaf := n.queues().Consume(ctx)
	_ = deaf.Send(start(100_000))
	got := q.takeAll("g", "other", 10) // it did not get all of them
	q.ack("g", got...)
	vanish()
	seen := map[int64]bool{}
	for _, m := range got {
		seen[m.Offset] = true
	}
	for deadline := time.Now().Add(25 * time.Second); len(seen) < messages && time.Now().Before(deadline); {
		more := q.take("g", "other", 100, time.Second)
		for _, m := range more {
			seen[m.Offset] = true
		}
		if len(more) > 0 {
			q.ack("g", more...)
		}
	}
	if len(seen) < messages {
		t.Errorf("%d of %d messages came to others within 25 s", len(seen), messages)
	}
	n.alive()
}
