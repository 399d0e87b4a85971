package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is one hand-made group member: a goroutine and a connection. Versions of the
// classic protocol are the last ones before flexible encoding.
type member struct {
	m         *meter
	holding   *atomic.Bool  // everything unusual is an error while true
	ready     *atomic.Int64 // members that are in their group
	dials     chan struct{} // limits connecting and joining at a time
	group     string
	topic     string
	partition int32
	interval  time.Duration
	quiet     bool   // it does not fetch
	consumer  bool   // of a consumer group (KIP-848), not of a classic one
	addr      string // of its coordinator; empty: the load's first broker

	conn       net.Conn
	id         string
	generation int32
	inGroup    bool
	admitted   bool                                      // it is its turn to join
	owned      []kmsg.ConsumerGroupHeartbeatRequestTopic // not told yet
	given      []kmsg.ConsumerGroupHeartbeatRequestTopic // what it was last told to have
	unsure     bool                                      // the last answer may not have been heard
	has        atomic.Int64                              // partitions, of a consumer group
	dealt      *atomic.Int64                             // all that members have; nil: nobody asks
	request    []byte
	response   []byte
}

// Error codes that a member deals with.
const (
	codeLoading          = 14
	codeNotAvailable     = 15
	codeNotCoordinator   = 16
	codeIllegalGen       = 22
	codeUnknownMember    = 25
	codeRebalancing      = 27
	codeMemberIDRequired = 79
)

var (
	errRejoin = errors.New("has to join again")
	errMoved  = errors.New("the coordinator is not there")
)

// live joins and stays until the context ends, joining again when told to.
func (c *member) live(ctx context.Context) {
	defer c.hangUp()
	for ctx.Err() == nil {
		err := c.session(ctx)
		c.leaveReady()
		if ctx.Err() != nil {
			return
		}
		if c.holding.Load() {
			c.m.fail(err)
		}
		if errors.Is(err, errMoved) && c.conn != nil {
			_ = c.find() // asked again after a while
		}
		if !errors.Is(err, errRejoin) {
			c.hangUp()
			sleep(ctx, 100*time.Millisecond)
		}
	}
}

func (c *member) leaveReady() {
	if c.inGroup {
		c.inGroup = false
		c.ready.Add(-1)
	}
}

func (c *member) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// session is one membership: from joining to the first error.
func (c *member) session(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	conn := c.conn
	unhook := context.AfterFunc(ctx, func() { conn.Close() })
	defer unhook()
	c.inGroup = true
	c.ready.Add(1)
	for ctx.Err() == nil {
		switch {
		case c.owned != nil: // it has at once what it was told to have, and says so, as clients do
		case c.quiet:
			sleep(ctx, untilBeat(time.Now(), c.interval))
		default:
			if err := c.fetch(); err != nil {
				return err
			}
		}
		err := c.heartbeat()
		if errors.Is(err, errMoved) {
			err = c.follow(ctx)
		}
		if err != nil {
			return err
		}
		c.m.count.Add(1)
	}
	return ctx.Err()
}

// beatGrid is what heartbeats of quiet members are rounded to: a process that wakes up
// for each of thousands of members on its own costs more than what they do.
const beatGrid = 100 * time.Millisecond

// untilBeat is how long to wait for the last moment of the grid within an interval.
func untilBeat(now time.Time, interval time.Duration) time.Duration {
	if interval < 10*beatGrid {
		return interval
	}
	return now.Add(interval).Truncate(beatGrid).Sub(now)
}

// enter connects and joins. Members do that in order, few at a time, so that a group
// is soon complete: each that comes later has all the others join again, who do not
// wait for their turn.
func (c *member) enter(ctx context.Context) error {
	if c.id == "" {
		if !c.admitted && !c.admit(ctx) {
			return ctx.Err()
		}
		c.admitted = false
		defer func() { <-c.dials }()
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	conn := c.conn
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if c.consumer {
		if c.id == "" {
			c.id = newMemberID()
		}
		return c.beat()
	}
	leader, others, err := c.join()
	if err != nil {
		return err
	}
	if err := c.sync(leader, others); err != nil {
		return err
	}
	return c.heartbeat()
}

// admit waits for this member's turn to connect and join.
func (c *member) admit(ctx context.Context) bool {
	select {
	case c.dials <- struct{}{}:
		c.admitted = true
	case <-ctx.Done():
	}
	return c.admitted
}

// follow finds the coordinator anew, as clients do: the membership goes on there.
func (c *member) follow(ctx context.Context) error {
	deadline := time.Now().Add(memberSessionMillis * time.Millisecond / 2)
	for backoff := followBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxFollowBackoff) {
		sleep(ctx, backoff/2+time.Duration(rand.Int64N(int64(backoff))))
		err := c.find()
		if err == nil {
			c.hangUp()
			if err = c.connect(ctx); err == nil {
				err = c.heartbeat()
			}
		}
		if err == nil || !errors.Is(err, errMoved) || time.Now().After(deadline) {
			return err
		}
	}
	return ctx.Err()
}

// Pauses between tries to find a coordinator, half to one and a half times as long
// (KIP-580, whose default for the most is 1 s): all members of a coordinator that is
// gone look for it at once.
const (
	followBackoff    = 100 * time.Millisecond
	maxFollowBackoff = 3 * time.Second
)

// find asks the node it is connected to for the group's coordinator.
func (c *member) find() error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey = 2, c.group
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if err := c.call(req, resp); err != nil {
		return err
	}
	if err := c.check("find the coordinator", resp.ErrorCode); err != nil {
		return err
	}
	c.addr = net.JoinHostPort(resp.Host, fmt.Sprint(resp.Port))
	return nil
}

func (c *member) connect(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	addr := c.addr
	if addr == "" {
		addr = c.m.load.Brokers[0]
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		c.addr = "" // begin at the first broker again
		return err
	}
	c.conn = conn
	return nil
}

func (c *member) join() (leader bool, others []string, err error) {
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version = 5
		req.Group, req.MemberID, req.ProtocolType = c.group, c.id, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = memberSessionMillis, 60_000
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Topics = []string{c.topic}
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", meta.AppendTo(nil)
		req.Protocols = append(req.Protocols, p)
		resp := kmsg.NewPtrJoinGroupResponse()
		if err := c.call(req, resp); err != nil {
			return false, nil, err
		}
		if resp.ErrorCode == codeMemberIDRequired && c.id == "" {
			c.id = resp.MemberID
			continue
		}
		if err := c.check("join", resp.ErrorCode); err != nil {
			return false, nil, err
		}
		c.id, c.generation = resp.MemberID, resp.Generation
		for _, m := range resp.Members {
			others = append(others, m.MemberID)
		}
		return resp.LeaderID == c.id, others, nil
	}
}

func (c *member) sync(leader bool, members []string) error {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = 3
	req.Group, req.MemberID, req.Generation = c.group, c.id, c.generation
	if leader {
		for _, id := range members {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID = id
			plan := kmsg.NewConsumerMemberAssignment()
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = c.topic, []int32{c.partition}
			plan.Topics = append(plan.Topics, t)
			a.MemberAssignment = plan.AppendTo(nil)
			req.GroupAssignment = append(req.GroupAssignment, a)
		}
	}
	resp := kmsg.NewPtrSyncGroupResponse()
	if err := c.call(req, resp); err != nil {
		return err
	}
	return c.check("sync", resp.ErrorCode)
}

func (c *member) heartbeat() error {
	if c.consumer {
		return c.beat()
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = 3
	req.Group, req.MemberID, req.Generation = c.group, c.id, c.generation
	resp := kmsg.NewPtrHeartbeatResponse()
	if err := c.call(req, resp); err != nil {
		return err
	}
	return c.check("heartbeat", resp.ErrorCode)
}

// fetch waits at the end of its partition, which stays empty.
func (c *member) fetch() error {
	req := kmsg.NewPtrFetchRequest()
	req.Version = nullFetchVersion
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(c.interval.Milliseconds()), 1, 1<<20
	req.ReplicaID, req.SessionID, req.SessionEpoch = -1, 0, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = c.topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = c.partition, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrFetchResponse()
	if err := c.call(req, resp); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("fetch: error code %d", p.ErrorCode)
			}
		}
	}
	return c.check("fetch", resp.ErrorCode)
}

// check turns an error code into what the member does about it.
func (c *member) check(what string, code int16) error {
	switch code {
	case 0:
		return nil
	case codeUnknownMember:
		c.id = ""
		return fmt.Errorf("%s: unknown member: %w", what, errRejoin)
	case codeIllegalGen, codeRebalancing:
		return fmt.Errorf("%s: error code %d: %w", what, code, errRejoin)
	case codeLoading, codeNotAvailable, codeNotCoordinator:
		return fmt.Errorf("%s: %w (error code %d)", what, errMoved, code)
	}
	return fmt.Errorf("%s: error code %d", what, code)
}

// call writes one request and reads its response.
func (c *member) call(req kmsg.Request, resp kmsg.Response) error {
	if err := c.conn.SetDeadline(time.Now().Add(memberRequestTimeout)); err != nil {
		return err
	}
	be := binary.BigEndian
	b := append(c.request[:0], 0, 0, 0, 0)
	b = be.AppendUint16(b, uint16(req.Key()))
	b = be.AppendUint16(b, uint16(req.GetVersion()))
	b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation 1, no client id
	if req.IsFlexible() {
		b = append(b, 0) // no tags
	}
	b = req.AppendTo(b)
	be.PutUint32(b, uint32(len(b)-4))
	c.request = b
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return err
	}
	size := int(int32(be.Uint32(head[:]))) - 4
	if size < 0 || size > 8<<20 {
		return fmt.Errorf("response of %d bytes", size)
	}
	if cap(c.response) < size {
		c.response = make([]byte, size)
	}
	body := c.response[:size]
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return err
	}
	if req.IsFlexible() {
		if size == 0 || body[0] != 0 {
			return errors.New("response with tags in its header, or without a body")
		}
		body = body[1:]
	}
	resp.SetVersion(req.GetVersion())
	return resp.ReadFrom(body)
}
