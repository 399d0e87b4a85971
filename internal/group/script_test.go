package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tube-mq/tube/internal/record"
)

// TestScripts runs the files of testdata: each is a story about one shard.
// Rewrite their outputs with -rewrite.
//
//	join call=N group=G [id=M] [instance=I] [session=30s] [rebalance=60s] [topics=(a,b)] [protocols=(range,…)] [known] [skip]
//	sync call=N group=G gen=N id=M [instance=I] [assign=(M:text,…)]
//	heartbeat, leave, commit, fetch, delete-offsets, delete-group, describe, list
//	advance D      time passes; what is due is done on time
//	hold           from now on proposals stay under way
//	apply          the proposals under way are committed; hold ends
//	lose           the proposers are told that the outcome is unknown
//	land           what was lost is committed after all
//	failover       another node takes over with what is committed
//	(consumer_script_test.go has more)
//	restart        the state goes through a snapshot; its digest must stay
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t, w.d = t, d
			w.out.Reset()
			w.run(d.Cmd)
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
}

// world is one shard with a scripted clock and log.
type world struct {
	t    *testing.T
	d    *datadriven.TestData
	out  strings.Builder
	now  time.Time
	cfg  Config
	m    *Machine
	c    *Coordinator
	held bool
	// underWay are proposals without an outcome, lost those whose proposer gave up.
	underWay, lost []Proposal
	index, counted record.Index
	view           *Topics
	topicsIndex    record.Index
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1_800_000_000, 0), m: NewMachine(), cfg: DefaultConfig()}
	w.cfg.InitialDelay, w.cfg.LeastConsumerInterval = 0, w.cfg.ConsumerInterval
	w.start()
	return w
}

func (w *world) start() {
	w.c = NewCoordinator(w.cfg, w.m)
	w.c.lastID = ProposalID(w.index) * 1000
	if w.view != nil {
		w.effects(w.c.SetTopics(w.now, w.view))
	}
	w.effects(w.c.Lead(w.now))
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format, args...) }

func (w *world) has(key string) bool { return w.d.HasArg(key) }

func (w *world) arg(key, def string) string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ",")
		}
	}
	return def
}

func (w *world) list(key string) []string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (w *world) num(key string, def int) int {
	n, err := strconv.Atoi(w.arg(key, strconv.Itoa(def)))
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	return n
}

func (w *world) dur(key, def string) time.Duration {
	d, err := time.ParseDuration(w.arg(key, def))
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	return d
}

func (w *world) token() Token { return Token(w.num("call", 99)) }

func (w *world) run(cmd string) {
	group, id, instance, gen := w.arg("group", "g"), w.arg("id", ""), w.arg("instance", ""), int32(w.num("gen", -1))
	switch cmd {
	case "config":
		w.config()
	case "join":
		w.effects(w.c.Join(w.now, w.token(), w.joinRequest(group, id, instance)))
	case "sync":
		req := &SyncRequest{Group: group, Generation: gen, MemberID: id, Instance: instance, Protocol: w.arg("protocol", ""), Assignments: map[string][]byte{}}
		for _, a := range w.list("assign") {
			m, text, _ := strings.Cut(a, ":")
			req.Assignments[m] = []byte(text)
		}
		w.assignNames(req)
		w.effects(w.c.Sync(w.now, w.token(), req))
	case "heartbeat":
		if err := w.c.Heartbeat(w.now, &HeartbeatRequest{group, gen, id, instance}); err != nil {
			w.printf("%v\n", err)
		}
	case "leave":
		req := &LeaveRequest{Group: group}
		for _, m := range w.list("ids") {
			req.Members = append(req.Members, LeaveMember{ID: m})
		}
		for _, m := range w.list("instances") {
			req.Members = append(req.Members, LeaveMember{Instance: m})
		}
		w.effects(w.c.Leave(w.now, w.token(), req))
	case "cancel":
		w.c.Cancel(w.now, group, w.token())
	case "commit":
		w.effects(w.c.CommitOffsets(w.now, w.token(), w.commitRequest(group, id, instance, gen)))
	case "fetch":
		w.fetch(group)
	case "delete-offsets":
		req := &DeleteOffsetsRequest{Group: group}
		for _, a := range w.list("offsets") {
			topic, p, _ := parsePosition(a)
			req.Topics = append(req.Topics, DeleteTopic{topicID(topic), topic, []record.Partition{p}})
		}
		w.effects(w.c.DeleteOffsets(w.now, w.token(), req))
	case "delete-group":
		w.effects(w.c.DeleteGroup(w.now, w.token(), group))
	case "forget-topic":
		w.effects(w.c.ForgetTopics(w.now, w.token(), []record.TopicID{topicID(w.arg("topic", ""))}))
	case "describe":
		w.describe(group)
	case "list":
		for _, l := range w.c.List() {
			w.printf("%s %s %s", l.Group, l.Phase, l.ProtocolType)
			if l.ByCoordinator {
				w.printf(", by the coordinator")
			}
			w.printf("\n")
		}
	case "advance":
		w.advance()
	default:
		if !w.runConsumers(cmd, group, id, instance) {
			w.runLog(cmd)
		}
	}
}

// runLog plays the replicated log and the node.
func (w *world) runLog(cmd string) {
	switch cmd {
	case "hold":
		w.held = true
	case "apply":
		w.held = false
		w.commitAll()
	case "lose":
		lost := w.underWay
		w.underWay = nil
		w.lost = append(w.lost, lost...)
		for _, p := range lost {
			w.effects(w.c.Applied(w.now, p.ID, Result{Err: errors.New("outcome unknown")}))
		}
		w.held = false
		w.commitAll()
	case "land":
		lost := w.lost
		w.lost = nil
		for _, p := range lost {
			r := w.apply(p)
			w.printf("landed: %s: %v\n", r.Group, r.Err)
			w.effects(w.c.Observe(w.now, r))
		}
	case "failover":
		w.effects(w.c.Resign())
		w.lost = append(w.lost, w.underWay...)
		w.underWay, w.held = nil, false
		w.start()
	case "restart":
		digest := w.m.Digest()
		next := NewMachine()
		if err := next.Restore(w.m.Snapshot()); err != nil {
			w.t.Fatal(err)
		}
		if next.Digest() != digest {
			w.t.Fatalf("digest changed by a snapshot")
		}
		w.effects(w.c.Resign())
		w.m = next
		w.start()
	default:
		w.t.Fatalf("no such command: %s", cmd)
	}
}

func (w *world) config() {
	w.cfg.InitialDelay = w.dur("initial-delay", w.cfg.InitialDelay.String())
	w.cfg.Migration = Migration(w.arg("migration", string(w.cfg.Migration)))
	w.cfg.MaxMembers = w.num("max-members", w.cfg.MaxMembers)
	w.cfg.MaxGroups = w.num("max-groups", w.cfg.MaxGroups)
	w.cfg.MaxOffsets = w.num("max-offsets", w.cfg.MaxOffsets)
	w.cfg.MaxMemberBytes = w.num("max-member-bytes", w.cfg.MaxMemberBytes)
	w.cfg.MaxGroupBytes = w.num("max-group-bytes", w.cfg.MaxGroupBytes)
	w.cfg.MaxShardBytes = w.num("max-shard-bytes", w.cfg.MaxShardBytes)
	if err := w.cfg.Validate(); err != nil {
		w.t.Fatal(err)
	}
	w.effects(w.c.Resign())
	w.start()
}

func (w *world) joinRequest(group, id, instance string) *JoinRequest {
	req := &JoinRequest{
		Group: group, MemberID: id, Instance: instance, FreshID: w.arg("fresh", "new"), ClientID: "client", ClientHost: "10.0.0.1",
		NeedsKnownID: w.has("known"), CanSkipAssignment: w.has("skip"),
		Session: w.dur("session", "30s"), Rebalance: w.dur("rebalance", "60s"), ProtocolType: w.arg("type", ConsumerProtocol),
	}
	protocols := w.list("protocols")
	if !w.has("protocols") {
		protocols = []string{"range"}
	}
	if w.has("no-protocols") {
		protocols = nil
	}
	for _, p := range protocols {
		owned := w.arg("owned", "")
		if w.has("owned-names") {
			owned = "\xff\xff\xff\xff" + string(encodeAssignment(w.names(w.list("owned-names"))))[2:]
		}
		req.Protocols = append(req.Protocols, Protocol{p, subscription(owned, w.list("topics")...)})
	}
	return req
}

func (w *world) commitRequest(group, id, instance string, gen int32) *CommitRequest {
	req := &CommitRequest{Group: group, Generation: gen, MemberID: id, Instance: instance, NoEpochs: w.has("no-epochs"), Retention: w.dur("retention", "0s")}
	for _, a := range w.list("offsets") {
		topic, p, o := parsePosition(a)
		req.Topics = append(req.Topics, CommitTopic{topicID(topic), topic, []CommitPartition{
			{Partition: p, Offset: o, LeaderEpoch: 3, Metadata: strings.Repeat("x", w.num("metadata-bytes", 0))},
		}})
	}
	return req
}

func (w *world) fetch(group string) {
	r := w.c.FetchOffsets(&FetchOffsetsRequest{Group: group, Member: w.arg("id", ""), Epoch: int32(w.num("epoch", -1))})
	if r.Err != nil {
		w.printf("%v\n", r.Err)
		return
	}
	if len(r.Topics) == 0 {
		w.printf("nothing\n")
	}
	slices.SortFunc(r.Topics, func(a, b FetchedTopic) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			w.printf("%s/%d = %d, leader epoch %d\n", t.Name, p.Partition, p.Offset.Offset, p.LeaderEpoch)
		}
	}
}

func (w *world) describe(group string) {
	d := w.c.Describe(group)
	if d.Err != nil {
		w.printf("%s: %v\n", d.Phase, d.Err)
		return
	}
	w.printf("%s, generation %d, type %q, protocol %q\n", d.Phase, d.Generation, d.ProtocolType, d.Protocol)
	for _, m := range d.Members {
		if ps := parseAssignment(m.Assignment); len(ps) > 0 {
			w.printf("  %s instance=%q assignment=%s\n", m.ID, m.Instance, describeNames(ps))
			continue
		}
		w.printf("  %s instance=%q assignment=%q\n", m.ID, m.Instance, m.Assignment)
	}
}

func (w *world) advance() {
	d, err := time.ParseDuration(w.d.CmdArgs[0].Key)
	if err != nil {
		w.t.Fatal(err)
	}
	end := w.now.Add(d)
	for {
		at, ok := w.c.Deadline()
		if !ok || at.After(end) {
			break
		}
		w.now = at
		w.effects(w.c.Tick(w.now))
	}
	w.now = end
}

// effects prints replies and puts proposals under way.
func (w *world) effects(e Effects) {
	for _, r := range e.Replies {
		w.printf("call %d: %s\n", r.Token, describeReply(r.Response))
	}
	w.underWay = append(w.underWay, e.Proposals...)
	if !w.held {
		w.commitAll()
	}
}

func (w *world) commitAll() {
	for len(w.underWay) > 0 && !w.held {
		p := w.underWay[0]
		w.underWay = w.underWay[1:]
		r := w.apply(p)
		w.effects(w.c.Observe(w.now, r))
		w.effects(w.c.Applied(w.now, p.ID, r))
	}
}

func (w *world) apply(p Proposal) Result {
	w.index++
	return w.m.Apply(w.index, p.Data)
}

func describeReply(response any) string {
	switch r := response.(type) {
	case *JoinResponse:
		if r.Err != nil {
			return fmt.Sprintf("join refused: %v (member %q)", r.Err, r.MemberID)
		}
		s := fmt.Sprintf("joined as %s, generation %d, protocol %s, leader %s", r.MemberID, r.Generation, r.Protocol, r.Leader)
		if r.SkipAssignment {
			s += ", assignment stands"
		}
		var ids []string
		for _, m := range r.Members {
			ids = append(ids, m.ID)
		}
		if ids != nil {
			s += ", members " + strings.Join(ids, " ")
		}
		return s
	case *ConsumerHeartbeatResponse:
		return describeBeat(r)
	case *SyncResponse:
		if r.Err != nil {
			return "sync refused: " + r.Err.Error()
		}
		if ps := parseAssignment(r.Assignment); len(ps) > 0 {
			return "assigned " + describeNames(ps)
		}
		return fmt.Sprintf("assigned %q", r.Assignment)
	case *LeaveResponse:
		return fmt.Sprintf("left: %v %v", r.Err, r.Errs)
	case *CommitResponse:
		s := fmt.Sprintf("commit: %v", r.Err)
		for _, err := range r.Refused {
			s += fmt.Sprintf(", refused: %v", err)
		}
		return s
	case *DeleteOffsetsResponse:
		return fmt.Sprintf("offsets deleted: %v, subscribed: %d", r.Err, len(r.Subscribed))
	default:
		return fmt.Sprintf("%v", r)
	}
}

// topicID makes a topic's id of its name.
func topicID(name string) (id record.TopicID) {
	copy(id[:], name)
	return id
}

// parsePosition reads topic/partition or topic/partition:offset.
func parsePosition(s string) (topic string, p record.Partition, o record.Offset) {
	tp, off, _ := strings.Cut(s, ":")
	topic, part, _ := strings.Cut(tp, "/")
	pn, _ := strconv.Atoi(part)
	on, _ := strconv.Atoi(off)
	return topic, record.Partition(pn), record.Offset(on)
}

// subscription encodes a consumer's metadata, with owned as what follows the topics.
func subscription(owned string, topics ...string) []byte {
	b := []byte{0, 1}
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return append(b, owned...)
}
