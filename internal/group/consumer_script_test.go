package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tube-mq/tube/internal/record"
)

// Commands for groups whose partitions the coordinator assigns:
//
//	topics are=(a:3,b:2@x@y)  the view of the topics from now on; @: zones, a partition each, in turn
//	beat call=N id=M epoch=E [full] [topics=(a,b)] [pattern=P] [assignor=A] [instance=I] [zone=Z] [rebalance=60s] [owned=(a/0,…)] [owns-nothing]
//	consumers [group=G]    who is in and who has what
//	entries                how many were committed since last asked
func (w *world) runConsumers(cmd, group, id, instance string) bool {
	switch cmd {
	case "topics":
		w.setTopics()
	case "beat":
		w.beat(group, id, instance)
	case "consumers":
		w.describeConsumers(group)
	case "entries":
		w.printf("%d\n", w.index-w.counted)
		w.counted = w.index
	default:
		return false
	}
	return true
}

func (w *world) setTopics() {
	w.topicsIndex++
	var list []*Topic
	for _, spec := range w.list("are") {
		parts := strings.Split(spec, "@")
		name, n, _ := strings.Cut(parts[0], ":")
		t := &Topic{ID: topicID(name), Name: name}
		t.Partitions, _ = strconv.Atoi(n)
		if zones := parts[1:]; len(zones) > 0 {
			for p := range t.Partitions {
				t.Zones = append(t.Zones, []string{zones[p%len(zones)]})
			}
		}
		list = append(list, t)
	}
	w.view = NewTopics(w.topicsIndex, list)
	w.effects(w.c.SetTopics(w.now, w.view))
}

func (w *world) beat(group, id, instance string) {
	epoch := int32(w.num("epoch", 0))
	req := &ConsumerHeartbeatRequest{Group: group, MemberID: id, Epoch: epoch, Instance: instance, Zone: w.arg("zone", ""), ClientID: "client", ClientHost: "10.0.0.1"}
	if w.has("rebalance") || w.has("full") || epoch == 0 {
		req.Rebalance = w.dur("rebalance", "60s")
	}
	if w.has("topics") {
		req.Topics = append([]string{}, w.list("topics")...)
	}
	for key, field := range map[string]**string{"pattern": &req.Pattern, "assignor": &req.Assignor} {
		if w.has(key) {
			s := w.arg(key, "")
			*field = &s
		}
	}
	req.OwnedSaid = w.has("owned") || w.has("owns-nothing") || epoch == 0
	var owned []record.TopicPartition
	for _, o := range w.list("owned") {
		topic, p, _ := parsePosition(o)
		owned = append(owned, record.TopicPartition{Topic: topicID(topic), Partition: p})
	}
	req.Owned = NewPartitions(owned)
	if r := w.c.Beat(w.now, req); r != nil {
		w.printf("at once: %s\n", describeReply(r))
		return
	}
	w.effects(w.c.ConsumerHeartbeat(w.now, w.token(), req))
}

func describeBeat(r *ConsumerHeartbeatResponse) string {
	if r.Err != nil {
		return "refused: " + r.Err.Error()
	}
	s := fmt.Sprintf("%s at epoch %d", r.MemberID, r.Epoch)
	if r.HasAssignment {
		s += ", reads " + describePartitions(r.Assignment)
	}
	if r.Interval != 0 && r.Interval != DefaultConfig().ConsumerInterval {
		s += fmt.Sprintf(", again in %v", r.Interval)
	}
	return s
}

// describePartitions is a/0,1 b/2.
func describePartitions(ps Partitions) string {
	if len(ps) == 0 {
		return "nothing"
	}
	var out []string
	ps.byTopic(func(topic record.TopicID, partitions []record.Partition) {
		s := strings.TrimRight(string(topic[:]), "\x00") + "/"
		for i, p := range partitions {
			if i > 0 {
				s += ","
			}
			s += fmt.Sprint(p)
		}
		out = append(out, s)
	})
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) describeConsumers(group string) {
	d := w.c.DescribeConsumers(group)
	if d.Err != nil {
		w.printf("%s: %v\n", d.Phase, d.Err)
		return
	}
	w.printf("%s, epoch %d, target %d, %s\n", d.Phase, d.Epoch, d.TargetEpoch, d.Assignor)
	for _, m := range d.Members {
		w.printf("  %s", m.ID)
		if m.Instance != "" {
			w.printf(" instance=%s", m.Instance)
		}
		if m.Classic != nil {
			w.printf(" classic")
		}
		w.printf(" at %d reads %s", m.Epoch, describePartitions(m.Assigned))
		if len(m.Revoking) > 0 {
			w.printf(", gives up %s", describePartitions(m.Revoking))
		}
		if m.Waiting {
			w.printf(", waits")
		}
		if !m.Target.equal(m.Assigned) {
			w.printf(", is to have %s", describePartitions(m.Target))
		}
		w.printf("\n")
	}
}

// assignNames is sync's assign-names: assignments in the form of consumers.
func (w *world) assignNames(req *SyncRequest) {
	of := map[string][]string{}
	for _, a := range w.list("assign-names") {
		m, place, _ := strings.Cut(a, ":")
		of[m] = append(of[m], place)
	}
	for m, places := range of {
		req.Assignments[m] = encodeAssignment(w.names(places))
	}
}

// names reads topic/partition, each.
func (w *world) names(places []string) (out []namedPartitions) {
	for _, place := range places {
		topic, p, _ := parsePosition(place)
		if n := len(out); n > 0 && out[n-1].topic == topic {
			out[n-1].partitions = append(out[n-1].partitions, p)
		} else {
			out = append(out, namedPartitions{topic, []record.Partition{p}})
		}
	}
	return out
}

func describeNames(topics []namedPartitions) string {
	var out []string
	for _, t := range topics {
		s := t.topic + "/"
		for i, p := range t.partitions {
			if i > 0 {
				s += ","
			}
			s += fmt.Sprint(p)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}
