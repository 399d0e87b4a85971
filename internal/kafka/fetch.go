package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
)

// fetch returns whole batches from where the client stands. It waits until there
// is min_bytes or something that the client must know, but no longer than
// max_wait. Nothing is copied, and a partition without news costs nothing.
func (d *Door) fetch(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.FetchRequest)
	f := &fetching{
		door: d, client: c, req: req, byID: req.Version >= 13, began: time.Now(), near: d.nearby(req.Rack),
		maxBytes: min(int(max(req.MaxBytes, 1)), d.cfg.MaxFetchBytes),
	}
	f.resp.Version = req.Version
	switch {
	case req.Version < 7 || req.SessionEpoch == epochNone || req.SessionEpoch == epochBegin:
		c.sessions.end(c.sessions.find(req.SessionID))
		f.set = newInterestSet()
		f.all = interests(f.set, req)
		if req.Version >= 7 && req.SessionEpoch == epochBegin {
			f.session = c.sessions.begin(f.set, f.all, f.byID)
		}
		f.set.push(d.rotated(f.all)...)
	default:
		s, code := c.sessions.resume(req)
		if code != nil {
			f.resp.ErrorCode = code.Code
			d.cfg.Calls.Error("Fetch", code.Message)
			return &f.resp
		}
		f.session, f.set = s, s.set
	}
	if f.session != nil {
		f.resp.SessionID = f.session.id
	}
	f.run(ctx)
	f.uncatch()
	return f.finish()
}

// rotated begins somewhere else every time, so that a response's limit does not
// always leave out the same ones.
func (d *Door) rotated(all []*interest) []*interest {
	if len(all) < 2 {
		return all
	}
	n := int(d.rotation.Add(1)) % len(all)
	return append(append(make([]*interest, 0, len(all)), all[n:]...), all[:n]...)
}

// fetching is one fetch under way.
type fetching struct {
	door    *Door
	client  *client
	req     *kmsg.FetchRequest
	byID    bool
	began   time.Time
	session *session // nil: none
	set     *interestSet
	// all are the interests of a full request, each of which is answered; nil for
	// an incremental one.
	all []*interest

	maxBytes int
	bytes    int // of records so far
	granted  int // bytes of the fetch budget
	// must: there is something that does not wait, as an error.
	must bool
	// unserved were left out by a limit, served are to be looked at again by the
	// next fetch, whose request says from where.
	unserved, served []*interest
	news             []*interest // those with a part in the response

	near nearby
	// catching are served by followers here, in the order in which these were asked
	// to catch up. waiting of them have not; those before first have.
	catching       []*interest
	waiting, first int

	resp fetchResponse
}

// run looks at what is ready and waits for more.
func (f *fetching) run(ctx context.Context) {
	wait := min(time.Duration(f.req.MaxWaitMillis)*time.Millisecond, f.door.cfg.MaxFetchWait)
	f.pass()
	if f.waiting == 0 && (f.enough() || wait <= 0) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for f.waiting > 0 || !f.enough() {
		// A follower that has yet to catch up is waited for, whatever the client's wait:
		// every partition that it asked for must be answered.
		until := f.began.Add(wait)
		if f.waiting > 0 {
			until = f.nextExpiry()
		}
		timer.Reset(time.Until(until))
		f.watchRead()
		select {
		case <-f.set.called:
			f.pass()
		case <-timer.C:
			if f.waiting == 0 {
				return
			}
			f.expire(time.Now())
		case <-ctx.Done():
			f.expire(time.Now().Add(followTimeout))
			return
		}
	}
}

// watchRead makes those call that gave something, but not enough.
func (f *fetching) watchRead() {
	for _, i := range f.news {
		if i.watch() {
			f.set.push(i)
		}
	}
}

// enough tells whether the answer may leave.
func (f *fetching) enough() bool {
	return f.must || f.bytes >= int(f.req.MinBytes) || f.bytes >= f.maxBytes || len(f.unserved) > 0 && f.bytes > 0 || f.nothingAsked()
}

func (f *fetching) nothingAsked() bool {
	if f.session != nil {
		return len(f.session.parts) == 0
	}
	return len(f.all) == 0
}

// pass looks once at those that are ready.
func (f *fetching) pass() {
	ready := f.set.take()
	if len(ready) == 0 {
		return
	}
	// The grant is taken for the pass only: while it waits, a fetch holds no more
	// than what it has read.
	grant := f.door.budgets.fetchShare(f.maxBytes - f.bytes)
	limit := f.bytes + grant
	for _, i := range ready {
		f.look(i, limit)
	}
	f.door.budgets.returnFetchShare(grant + f.granted - f.bytes)
	f.granted = f.bytes
}

// look reads one partition. limit is of all records of the response.
func (f *fetching) look(i *interest, limit int) {
	if i.got != nil {
		// It called again before the answer left: read it from the start.
		f.bytes -= i.got.sizeBytes
		i.got.drop()
	}
	p, unread := f.read(i, limit)
	if p != nil && p.code == 0 && p.preferred < 0 && p.sizeBytes == 0 && !unread && i.watch() {
		// What came between the read and the watch did not call.
		p, unread = f.read(i, limit)
	}
	if p != nil {
		f.settle(i, p, unread)
	}
}

// settle makes p the partition's part of the response, if there is something to tell.
func (f *fetching) settle(i *interest, p *fetchedPartition, unread bool) {
	f.bytes += p.sizeBytes
	switch {
	case p.code != 0:
		f.must = true
		i.forget()
		f.served = append(f.served, i)
	case p.preferred >= 0 || p.divergingEpoch != -1 || p.divergingEnd != -1:
		f.must = true
		f.served = append(f.served, i)
	case unread:
		f.unserved = append(f.unserved, i)
	case p.sizeBytes > 0:
		f.served = append(f.served, i)
	case i.got == nil && f.all == nil && i.told.once && i.told.bounds == p.bounds:
		return // nothing new, and a session need not say so
	}
	if i.got == nil {
		f.news = append(f.news, i)
	}
	i.got = p
}

// part is a partition's part of the response, empty.
func (f *fetching) part(i *interest) *fetchedPartition {
	return &fetchedPartition{
		number: i.number, committed: f.req.IsolationLevel == 1,
		divergingEpoch: -1, divergingEnd: -1, leader: -1, leaderEpoch: -1, preferred: -1,
	}
}

// read asks a partition for what fits. unread: there is more, but no room for it.
// nil: it is a follower that has yet to catch up, and calls then.
func (f *fetching) read(i *interest, limit int) (p *fetchedPartition, unread bool) {
	p = f.part(i)
	if err := i.find(f.door, f.byID); err != nil {
		f.failed(i, p, err)
		return p, false
	}
	if f.sendAway(i, p) {
		return p, false
	}
	if diverged, err := f.diverged(i, p); diverged || err != nil {
		if err != nil {
			f.failed(i, p, err)
		}
		return p, false
	}
	caughtUp := f.caughtUp(i)
	r, err := i.partition.Read(broker.ReadRequest{
		Offset: i.offset, MaxBytes: max(0, min(i.maxBytes, limit-f.bytes)), MinOne: f.bytes == 0,
		LeaderEpoch: i.epoch, Committed: p.committed, CaughtUp: caughtUp,
	})
	if errors.Is(err, broker.ErrNotLeader) && f.near.follows && !caughtUp {
		waiting, cannot := f.follow(i)
		if waiting {
			return nil, false
		}
		if cannot == nil {
			return f.read(i, limit) // it had nothing to catch up with
		}
		err = cannot
	}
	if err != nil {
		f.failed(i, p, err)
		return p, false
	}
	p.followed = r.Followed
	p.bounds, p.aborted, p.parts, p.sizeBytes, p.release, p.ahead = r.Bounds, r.Aborted, r.Parts, r.SizeBytes, r.Release, r.Ahead
	end := r.Bounds.HighWatermark
	if p.committed {
		end = r.Bounds.LastStable
	}
	return p, r.SizeBytes == 0 && i.offset < end
}

// diverged finds out whether the client's log parted from ours (KIP-595).
func (f *fetching) diverged(i *interest, p *fetchedPartition) (bool, error) {
	if i.lastFetched < 0 {
		return false, nil
	}
	epoch, end, err := i.partition.Lookup().EndOfEpoch(i.lastFetched)
	if err != nil {
		return false, err
	}
	if epoch == i.lastFetched && end >= i.offset || epoch < 0 {
		return false, nil
	}
	if p.bounds, err = i.partition.Bounds(); err != nil {
		return false, err
	}
	p.divergingEpoch, p.divergingEnd = epoch, end
	return true, nil
}

func (f *fetching) failed(i *interest, p *fetchedPartition, err error) {
	p.bounds = broker.Bounds{LogStart: -1, HighWatermark: -1, LastStable: -1, LeaderEpoch: -1}
	if p.code = errorCode(err); !known(err) {
		f.door.cfg.Logger.Error("a partition could not be read", "topic", i.name, "id", i.topic, "partition", i.number, "err", err)
	}
	f.door.cfg.Calls.Error("Fetch", errorName(p.code))
	f.leaderHint(i, p)
}

// finish makes the response of what was found.
func (f *fetching) finish() *fetchResponse {
	inOrder := f.news
	if f.all != nil {
		inOrder = f.all
	}
	at := map[interestKey]int{}
	leaders := map[int32]bool{}
	followed := 0
	for _, i := range inOrder {
		p := i.got
		i.got = nil
		i.told = told{once: p.code == 0, bounds: p.bounds}
		if f.session == nil {
			i.forget()
		}
		if p.followed {
			followed++
		}
		if p.leader >= 0 && f.req.Version >= 16 {
			leaders[int32(p.leader)] = true
		}
		key := interestKey{name: i.name, topic: i.topic}
		n, ok := at[key]
		if !ok {
			n = len(f.resp.topics)
			at[key] = n
			f.resp.topics = append(f.resp.topics, fetchedTopic{name: i.name, id: i.topic})
		}
		f.resp.topics[n].partitions = append(f.resp.topics[n].partitions, p)
	}
	for _, e := range f.door.endpoints(leaders) {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = e.node, e.host, e.port, e.rack
		f.resp.Brokers = append(f.resp.Brokers, b)
	}
	if f.session != nil {
		f.set.putBack(f.unserved, f.served)
	}
	// Those that are left out come first the next time.
	f.resp.goesOn = len(f.unserved) == 0
	bytes, d := f.granted, f.door
	d.cfg.Calls.Fetched(bytes)
	if followed > 0 {
		d.cfg.Calls.Followed(followed)
	}
	f.resp.given = func() { d.budgets.returnFetchShare(bytes) }
	return &f.resp
}
