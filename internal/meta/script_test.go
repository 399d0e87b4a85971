package meta

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tube-mq/tube/internal/record"
)

// TestScripts runs the files of testdata: each is the story of one cluster.
// Rewrite their outputs with -rewrite. After each command stand what it was
// refused with, the events it made, and the placements it changed: node:replica,
// where a replica id is counted from FirstReplica, ! for a lost one.
//
//	bootstrap founders=(N:id,…)
//	register node=N inc=I [roles=(master,broker)] [zone=Z] [replace]
//	state node=N is=up|down|draining
//	sick node=N why=TEXT, well node=N
//	drain node=N, undrain node=N, remove node=N [force]
//	create topic=T partitions=(1.2.3,2.3.1)
//	reassign T/P=(nodes) … [cause=C] [throttle=N]
//	cancel T/P …
//	done T/P=(replica ids) …           T/P=target: what the placement says
//	recover T/P survivor=N [nodes=(…)]
//	recover-masters id=ID survivor=N lost=(N:inc,…)
//	nodes                              lists nodes
//	delete topic=T
//	queue-create queue=Q topic=T [dead=T2] [order=key] [attempts=N] [filter-bytes=N]
//	queue-update queue=Q [version=V] (the same)      queue-pause, queue-resume, queue-delete queue=Q
//	queues                             lists queue groups
//	after D                            time passes
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &scripted{rig: &rig{t: t, m: New()}, now: now}
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

type scripted struct {
	*rig
	d      *datadriven.TestData
	out    strings.Builder
	now    time.Time
	shown  map[string]string
	topics byte
}

func (w *scripted) run(cmd string) {
	switch cmd {
	case "nodes":
		w.nodes()
	case "queues":
		w.queues()
	case "after":
		d, err := time.ParseDuration(w.d.CmdArgs[0].Key)
		if err != nil {
			w.d.Fatalf(w.t, "%v", err)
		}
		w.now = w.now.Add(d)
	default:
		last := w.m.LastEvent()
		res := w.apply(w.command(cmd))
		if res.Err != nil {
			fmt.Fprintln(&w.out, "refused:", res.Err)
		}
		for _, err := range res.Items {
			if err != nil {
				fmt.Fprintln(&w.out, "refused:", err)
			}
		}
		if w.m.LastEvent() > last {
			for _, e := range w.m.Events(0, int(w.m.LastEvent()-last)) {
				fmt.Fprintf(&w.out, "%s (%s): %s\n", e.Kind, e.Subject, e.Text)
			}
		}
		w.placements()
	}
}

func (w *scripted) command(cmd string) []byte {
	node := record.NodeID(w.number("node", -1))
	switch cmd {
	case "bootstrap":
		var fs []Founder
		for _, f := range w.list("founders") {
			n, id, _ := strings.Cut(f, ":")
			fs = append(fs, Founder{Node: record.NodeID(atoi(n)), Replica: record.ReplicaID(atoi(id))})
		}
		return Bootstrap(w.now, "c", fs...)
	case "register":
		n := Node{ID: node, Incarnation: w.word("inc", ""), Roles: w.list("roles"), Zone: w.word("zone", ""), Kafka: fmt.Sprintf("n%d:9092", node)}
		if n.Roles == nil {
			n.Roles = []string{RoleBroker}
		}
		if w.d.HasArg("replace") {
			return ReplaceNode(w.now, n)
		}
		return RegisterNode(w.now, n)
	case "state":
		return SetNodeState(w.now, node, NodeState(w.word("is", "")))
	case "sick", "well":
		return SetNodeSick(w.now, node, w.word("why", ""))
	case "recover-masters":
		var lost []LostMaster
		for _, l := range w.list("lost") {
			n, inc, _ := strings.Cut(l, ":")
			lost = append(lost, LostMaster{record.NodeID(atoi(n)), inc})
		}
		return RecoverMasters(w.now, w.word("id", ""), record.NodeID(w.number("survivor", -1)), lost)
	case "drain", "undrain":
		return DrainNode(w.now, node, cmd == "drain")
	case "remove":
		return RemoveNode(w.now, node, w.d.HasArg("force"))
	case "create":
		w.topics++
		var placement [][]record.NodeID
		for _, p := range w.list("partitions") {
			placement = append(placement, nodeIDs(strings.Split(p, ".")))
		}
		return CreateTopic(w.now, record.TopicID{w.topics}, w.word("topic", ""), placement, nil)
	case "delete":
		return DeleteTopic(w.now, w.partition(w.word("topic", "")+"/0").Topic)
	}
	if strings.HasPrefix(cmd, "queue-") {
		return w.queue(cmd)
	}
	return w.move(cmd)
}

func (w *scripted) move(cmd string) []byte {
	var moves []Move
	var refs []record.TopicPartition
	var members []Members
	for _, a := range w.d.CmdArgs {
		if !strings.Contains(a.Key, "/") {
			continue
		}
		tp := w.partition(a.Key)
		refs = append(refs, tp)
		moves = append(moves, Move{tp, nodeIDs(a.Vals), w.word("cause", CauseRequest)})
		var ids []record.ReplicaID
		for _, v := range a.Vals {
			if v == "" {
				break
			}
			if v == "target" {
				for _, r := range present(w.m.Image().Partition(tp).Target) {
					ids = append(ids, r.ID)
				}
				slices.Reverse(ids)
				break
			}
			ids = append(ids, FirstReplica+record.ReplicaID(atoi(v)))
		}
		members = append(members, Members{tp, ids})
	}
	switch cmd {
	case "reassign":
		return Reassign(w.now, moves, int64(w.number("throttle", 0)))
	case "cancel":
		return CancelReassign(w.now, refs)
	case "done":
		return PlacementDone(w.now, members)
	case "recover":
		return UnsafeRecover(w.now, refs[0], record.NodeID(w.number("survivor", -1)), nodeIDs(w.list("nodes")))
	}
	w.d.Fatalf(w.t, "what is %q?", cmd)
	return nil
}

// partition finds T/P. Topics that are not there have an id of their own.
func (w *scripted) partition(name string) record.TopicPartition {
	topic, p, _ := strings.Cut(name, "/")
	tp := record.TopicPartition{Topic: record.TopicID{0xff}, Partition: record.Partition(atoi(p))}
	if t := w.m.Image().Topic(topic); t != nil {
		tp.Topic = t.ID
	}
	return tp
}

func (w *scripted) nodes() {
	im := w.m.Image()
	for _, id := range slices.Sorted(maps.Keys(im.Nodes)) {
		n := im.Nodes[id]
		drain := ""
		if n.Drain {
			drain = ", shall drain"
		}
		if n.Sick != "" {
			drain += ", sick (" + n.Sick + ")"
		}
		fmt.Fprintf(&w.out, "node %d: %s%s since %s, incarnation %s, meta replica %s\n", id, n.State, drain, n.Since.Sub(now), n.Incarnation, replicaName(n.MetaReplica))
		if im.MetaNode(n.MetaReplica) != n {
			w.t.Errorf("replica %d of the masters' groups is not found", n.MetaReplica)
		}
	}
}

func replicaName(id record.ReplicaID) string {
	if id < FirstReplica {
		return fmt.Sprint("founder ", id)
	}
	return fmt.Sprint(id - FirstReplica)
}

func (w *scripted) placements() {
	next := map[string]string{}
	for _, t := range w.m.Image().Topics {
		for i, p := range t.Partitions {
			text := "on " + replicaNames(p.Replicas)
			if p.Group != FirstPartitionGroup+record.Group(i) {
				text += fmt.Sprintf(", group %d", p.Group)
			}
			if p.Target != nil {
				text += fmt.Sprintf(", to %s (%s)", replicaNames(p.Target), p.Cause)
			}
			if p.Leaving != nil {
				text += ", leaving " + replicaNames(p.Leaving)
			}
			if p.Throttle != 0 {
				text += fmt.Sprintf(", at %d B/s", p.Throttle)
			}
			if p.Recovery != 0 {
				text += fmt.Sprintf(", recovery %d", p.Recovery)
			}
			next[fmt.Sprintf("%s/%d", t.Name, i)] = text
			w.invariant(t.Name, i, &p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if next[name] != w.shown[name] {
			fmt.Fprintf(&w.out, "%s: %s\n", name, next[name])
		}
	}
	w.shown = next
}

// invariant: a node has at most one replica of a partition that is not lost.
func (w *scripted) invariant(topic string, i int, p *Placement) {
	on := map[record.NodeID]record.ReplicaID{}
	for _, r := range slices.Concat(p.Replicas, p.Target, p.Leaving) {
		if id, ok := on[r.Node]; ok && id != r.ID && !r.Lost {
			w.t.Errorf("%s/%d has replicas %d and %d on node %d", topic, i, id, r.ID, r.Node)
		}
		if !r.Lost {
			on[r.Node] = r.ID
		}
	}
}

func replicaNames(rs []Replica) string {
	var out []string
	for _, r := range rs {
		s := fmt.Sprintf("%d:%d", r.Node, r.ID-FirstReplica)
		if r.Lost {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (w *scripted) list(key string) []string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (w *scripted) word(key, def string) string {
	if l := w.list(key); len(l) > 0 {
		return l[0]
	}
	return def
}

func (w *scripted) number(key string, def int) int {
	if s := w.word(key, ""); s != "" {
		return atoi(s)
	}
	return def
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func nodeIDs(words []string) []record.NodeID {
	var out []record.NodeID
	for _, s := range words {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, record.NodeID(n))
		}
	}
	return out
}
