package kafka

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// preferredElection is the kind of election that there is.
const preferredElection = 0

// electLeaders gives partitions back to their preferred leaders. An unclean
// election is refused: a replica that lacks acknowledged records never leads.
func (d *Door) electLeaders(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ElectLeadersRequest)
	items := 0
	for i := range req.Topics {
		items += 1 + len(req.Topics[i].Partitions)
	}
	if d.absurd(c, "ElectLeaders", items) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	all := req.Topics == nil
	e := election{d: d, unclean: req.ElectionType != preferredElection}
	e.up = nodesOf(allEndpoints(d.image()))
	for _, t := range electedTopics(d.image(), req) {
		for _, p := range t.Partitions {
			e.add(t.Topic, p)
		}
	}
	e.hold(ctx)
	byTopic := map[string]int{}
	for _, o := range e.outcomes {
		// Of all partitions only those are told that something was done about.
		if all && o.code == kerr.ElectionNotNeeded.Code {
			continue
		}
		at, ok := byTopic[o.topic]
		if !ok {
			at = len(resp.Topics)
			byTopic[o.topic] = at
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = o.topic
			resp.Topics = append(resp.Topics, rt)
		}
		rp := kmsg.NewElectLeadersResponseTopicPartition()
		rp.Partition, rp.ErrorCode, rp.ErrorMessage = o.partition, o.code, o.text
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, rp)
	}
	return resp
}

// electedTopics are those asked for; all if none are.
func electedTopics(im *meta.Image, req *kmsg.ElectLeadersRequest) []kmsg.ElectLeadersRequestTopic {
	if req.Topics != nil {
		return req.Topics
	}
	var out []kmsg.ElectLeadersRequestTopic
	for _, t := range im.Topics {
		rt := kmsg.ElectLeadersRequestTopic{Topic: t.Name}
		for i := range t.Partitions {
			rt.Partitions = append(rt.Partitions, int32(i))
		}
		out = append(out, rt)
	}
	slices.SortFunc(out, func(a, b kmsg.ElectLeadersRequestTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

// election gathers what leaders are to be asked for, and what came of it.
type election struct {
	d         *Door
	unclean   bool
	up        map[int32]bool
	outcomes  []elected
	transfers []master.TransferLeader
	of        []int // outcomes, by transfer
}

type elected struct {
	topic     string
	partition int32
	code      int16
	text      *string
}

func (e *election) add(topic string, n int32) {
	out := elected{topic: topic, partition: n}
	transfer, err := e.find(topic, n)
	if out.code, out.text = e.d.adminError(err, "ElectLeaders", topic); err == nil {
		e.transfers = append(e.transfers, transfer)
		e.of = append(e.of, len(e.outcomes))
	}
	e.outcomes = append(e.outcomes, out)
}

func (e *election) find(topic string, n int32) (master.TransferLeader, error) {
	t := e.d.image().Topic(topic)
	if t == nil || n < 0 || int(n) >= len(t.Partitions) {
		return master.TransferLeader{}, refuse(kerr.UnknownTopicOrPartition, "there is no such partition")
	}
	leader, _ := e.d.partitions.Leader(t.ID, record.Partition(n))
	preferred := t.Partitions[n].Replicas[0]
	switch {
	case leader == preferred.Node && !preferred.Lost, e.unclean && leader >= 0:
		return master.TransferLeader{}, refuse(kerr.ElectionNotNeeded, "node %d leads it", leader)
	case e.unclean:
		return master.TransferLeader{}, refuse(kerr.PolicyViolation, "a replica that lacks acknowledged records never leads; if the majority of the replicas is lost for good, see tube cluster unsafe-recover")
	case !e.up[int32(preferred.Node)] || preferred.Lost:
		return master.TransferLeader{}, refuse(kerr.PreferredLeaderNotAvailable, "node %d, the preferred leader, is not up", preferred.Node)
	case leader < 0:
		return master.TransferLeader{}, refuse(kerr.PreferredLeaderNotAvailable, "nobody leads it who could hand over; its replicas elect a leader as soon as a majority of them is there")
	}
	return master.TransferLeader{TopicPartition: record.TopicPartition{Topic: t.ID, Partition: record.Partition(n)}, From: leader, To: preferred.Node}, nil
}

// hold asks the leaders.
func (e *election) hold(ctx context.Context) {
	if len(e.transfers) == 0 {
		return
	}
	for i, err := range e.d.leaders.TransferLeaders(ctx, e.transfers) {
		if err == nil {
			continue
		}
		text := err.Error()
		out := &e.outcomes[e.of[i]]
		out.code, out.text = kerr.PreferredLeaderNotAvailable.Code, &text
	}
}
