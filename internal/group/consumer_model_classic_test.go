package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Members of the classic protocol in the same histories: cooperative ones, that
// read on while they join, and give up what they are not assigned before they
// join the next time. The group becomes of one kind and of the other as they
// come and go.

// stage is where a classic member stands.
type stage int

const (
	mustJoin stage = iota
	mustSync
	reading
)

func TestNobodyReadsWhatAnotherReadsWhileProtocolsChange(t *testing.T) {
	kinds := map[bool]int{}
	for seed := range int64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newReign(t, seed)
			r.mixed = true
			for range 500 {
				r.step()
				r.check()
				r.pass(time.Duration(r.rng.Intn(1500)) * time.Millisecond)
				if s := r.m.State("g"); s != nil {
					kinds[s.ByCoordinator]++
				}
			}
			r.converge()
		})
	}
	if kinds[true] < 4000 || kinds[false] < 4000 {
		t.Errorf("the histories had %d steps as one kind, %d as the other: not much of a test", kinds[true], kinds[false])
	}
}

// beatClassic is the classic member's next call.
func (r *reign) beatClassic(c *consumer) {
	if c.stage == mustJoin {
		if len(c.gives) > 0 {
			c.giveUp()
		}
		b := []byte{0, 1}
		b = append(b, subscription("", c.topics...)[2:]...)
		b = append(b, 0xff, 0xff, 0xff, 0xff)
		b = append(b, encodeAssignment(r.c.named(c.reads))[2:]...)
		r.call(c, func(t Token) Effects {
			return r.c.Join(r.now, t, &JoinRequest{
				Group: "g", MemberID: c.member, Instance: c.instance, FreshID: fmt.Sprintf("%s-%d", c.id, r.token), Session: 30 * time.Second, Rebalance: 40 * time.Second,
				ProtocolType: ConsumerProtocol, Protocols: []Protocol{{"cooperative", b}},
			})
		})
		return
	}
	if c.stage == mustSync {
		r.call(c, func(t Token) Effects {
			return r.c.Sync(r.now, t, &SyncRequest{Group: "g", Generation: c.epoch, MemberID: c.member, Instance: c.instance, Assignments: c.assigns})
		})
		return
	}
	if err := r.c.Heartbeat(r.now, &HeartbeatRequest{"g", c.epoch, c.member, c.instance}); err != nil {
		r.classicError(c, err)
	}
}

func (r *reign) call(c *consumer, f func(Token) Effects) {
	r.token++
	c.waits, c.drop = true, r.rng.Intn(12) == 0
	r.calls[r.token] = c
	r.carry(f(r.token))
}

// answerClassic is what a classic member makes of an answer.
func (r *reign) answerClassic(c *consumer, response any) {
	c.waits = false
	if c.gone || c.drop {
		return // it asks again
	}
	switch resp := response.(type) {
	case *JoinResponse:
		if resp.Err != nil {
			r.classicError(c, resp.Err)
			return
		}
		c.member, c.epoch, c.stage, c.assigns = resp.MemberID, resp.Generation, mustSync, nil
		if resp.Leader == resp.MemberID {
			c.assigns = r.dealOut(resp.Members)
		}
	case *SyncResponse:
		if resp.Err != nil {
			r.classicError(c, resp.Err)
			return
		}
		c.stage = reading
		assigned := r.c.byName(parseAssignment(resp.Assignment))
		c.gives = c.reads.minus(assigned)
		c.reads = c.reads.plus(assigned)
	}
}

func (r *reign) classicError(c *consumer, err error) {
	c.stage = mustJoin
	switch {
	case errors.Is(err, ErrRebalancing), errors.Is(err, ErrLoading), errors.Is(err, ErrNotCoordinator):
	case errors.Is(err, ErrUnknownMember), errors.Is(err, ErrFencedInstance), errors.Is(err, ErrUnreleasedInstance), errors.Is(err, ErrGroupFull):
		c.member, c.epoch = "", -1
		c.reads, c.gives = nil, nil
	case errors.Is(err, ErrIllegalGeneration):
		c.reads, c.gives = nil, nil
	default:
		r.t.Fatalf("%s: %v", c.id, err)
	}
}

// dealOut is a leader's cooperative assignment: what a member has, another only
// gets in the next generation.
func (r *reign) dealOut(members []JoinMember) map[string][]byte {
	subs, owner := map[string]subscribed{}, map[record.TopicPartition]string{}
	for _, m := range members {
		subs[m.ID], _ = parseSubscription(m.Metadata)
		for _, tp := range r.c.byName(subs[m.ID].owned) {
			owner[tp] = m.ID
		}
	}
	var readers []reader
	for _, m := range members {
		x := reader{id: m.ID, topics: r.c.topicsOf(&ConsumerMember{Topics: subs[m.ID].topics})}
		for _, tp := range r.c.byName(subs[m.ID].owned) {
			if owner[tp] == m.ID {
				x.has = append(x.has, tp)
			}
		}
		readers = append(readers, x)
	}
	out := map[string][]byte{}
	for i, target := range assignTargets(Uniform, readers) {
		var free Partitions
		for _, tp := range target {
			if o := owner[tp]; o == "" || o == readers[i].id {
				free = append(free, tp)
			}
		}
		out[readers[i].id] = encodeAssignment(r.c.named(free))
	}
	return out
}
