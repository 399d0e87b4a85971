package bench

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// codeFencedEpoch has a member of a consumer group join again.
const codeFencedEpoch = 110

// beat is the whole of membership in a group whose partitions the coordinator
// assigns (KIP-848): it joins with epoch 0, then says that it is there as often as the
// coordinator wants, and what it owns when that has changed.
func (c *member) beat() error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch = c.group, c.id, c.generation
	req.RebalanceTimeoutMillis = -1
	if c.generation == 0 || c.unsure {
		req.RebalanceTimeoutMillis = 60_000
		req.SubscribedTopicNames = []string{c.topic}
		req.Topics = append([]kmsg.ConsumerGroupHeartbeatRequestTopic{}, c.given...)
	} else if c.owned != nil {
		req.Topics = c.owned
	}
	// After an error it says all there is, as clients do, and is told all there is.
	c.unsure = true
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	if err := c.call(req, resp); err != nil {
		return err
	}
	if resp.ErrorCode == codeUnknownMember || resp.ErrorCode == codeFencedEpoch {
		c.generation, c.owned, c.given = 0, nil, nil
		c.deal(0)
		return fmt.Errorf("heartbeat: error code %d: %w", resp.ErrorCode, errRejoin)
	}
	if err := c.check("heartbeat", resp.ErrorCode); err != nil {
		return err
	}
	c.generation, c.owned, c.unsure = resp.MemberEpoch, nil, false
	c.interval = time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond
	if resp.Assignment != nil {
		c.owned = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		n := 0
		for _, t := range resp.Assignment.Topics {
			o := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			o.TopicID, o.Partitions = t.TopicID, t.Partitions
			c.owned = append(c.owned, o)
			n += len(t.Partitions)
		}
		c.given = c.owned
		c.deal(int64(n))
	}
	return nil
}

// newMemberID is what members of a consumer group name themselves by.
func newMemberID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}
