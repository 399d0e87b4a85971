package tube

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// How much goes into one frame: it may have 10,000 leases and 1 MiB.
const (
	leasesPerFrame = 5000
	nacksPerFrame  = 500 // with a reason of 1 KiB each
)

// frames are what there is to say now, and when to look again if nothing happens.
func (s *session) frames(now time.Time) (out []*tubev1.ConsumeRequest, again time.Time) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	again = now.Add(time.Minute)
	out = append(out, s.verdicts(now, &again)...)
	for _, a := range r.answers {
		out = append(out, &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_InquiryAnswer{InquiryAnswer: &tubev1.ConsumeAnswer{Inquiry: a.inquiry, Done: a.done, Working: a.working}}})
	}
	r.answers = nil
	if !now.Before(s.extends) {
		r.forget(now)
		out = append(out, s.extensions(now)...)
		s.extends = now.Add(r.lease / 3)
	}
	if s.extends.Before(again) {
		again = s.extends
	}
	if n := r.grant(false); n > 0 {
		out = append(out, &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: int32(n)}}})
	}
	return out, again
}

// grant is how much credit to give, and counts it as given. Little is not worth a
// frame, unless there is hardly any left.
func (r *run) grant(first bool) int {
	if r.stopping || r.told > maxUnsettled {
		return 0
	}
	window := r.window()
	n := window - (len(r.held) - r.told) - r.credit
	if n <= 0 || !first && n < window/4 && r.credit > 0 {
		return 0
	}
	r.credit += n
	return n
}

// verdicts tells what becomes of messages: one frame or more for each kind.
func (s *session) verdicts(now time.Time, again *time.Time) (out []*tubev1.ConsumeRequest) {
	r := s.r
	var later []*job
	by := map[kind][]*job{}
	for _, j := range r.settle {
		switch {
		case j.state != told || j.sent:
			continue
		case j.notYet.After(now):
			later = append(later, j)
			if j.notYet.Before(*again) {
				*again = j.notYet
			}
			continue
		case j.verdict.kind == released && j.verdict.delay > 0: // the stream has no word for it
			r.releaseLater(j)
		default:
			k := j.verdict.kind
			if k == dead {
				k = failed
			}
			by[k] = append(by[k], j)
		}
		j.sent = true
	}
	r.settle = later
	out = append(out, s.requests(by[acked], leasesPerFrame, now, func(jobs []*job, leases []string) *tubev1.ConsumeRequest {
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Acknowledge{Acknowledge: &tubev1.ConsumeLeases{LeaseIds: leases}}}
	})...)
	out = append(out, s.requests(by[released], leasesPerFrame, now, func(jobs []*job, leases []string) *tubev1.ConsumeRequest {
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Release{Release: &tubev1.ConsumeLeases{LeaseIds: leases}}}
	})...)
	return append(out, s.requests(by[failed], nacksPerFrame, now, func(jobs []*job, leases []string) *tubev1.ConsumeRequest {
		n := &tubev1.ConsumeNack{}
		for i, j := range jobs {
			n.Entries = append(n.Entries, nackEntry(leases[i], j.verdict, now))
		}
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Nack{Nack: n}}
	})...)
}

// requests makes frames of up to most jobs each, and notes that they are sent.
func (s *session) requests(jobs []*job, most int, now time.Time, frame func([]*job, []string) *tubev1.ConsumeRequest) (out []*tubev1.ConsumeRequest) {
	for len(jobs) > 0 {
		n := min(most, len(jobs))
		req := request{jobs: jobs[:n:n], at: now}
		for _, j := range req.jobs {
			req.leases = append(req.leases, j.lease)
		}
		m := frame(req.jobs, req.leases)
		_, req.extend = m.Up.(*tubev1.ConsumeRequest_Extend)
		s.seq++
		m.Seq = s.seq
		s.pending[s.seq] = req
		out = append(out, m)
		jobs = jobs[n:]
	}
	return out
}

// extensions keeps what is waiting or being handled. Each lease is extended every third
// of its length, so that two attempts may be lost.
func (s *session) extensions(now time.Time) []*tubev1.ConsumeRequest {
	var jobs []*job
	for _, j := range s.r.held {
		if j.state != told && !j.byHand && j.lease != "" && j.until.Sub(now) < s.r.lease*3/4 {
			jobs = append(jobs, j)
		}
	}
	return s.requests(jobs, leasesPerFrame, now, func(_ []*job, leases []string) *tubev1.ConsumeRequest {
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Extend{Extend: &tubev1.ConsumeExtend{LeaseIds: leases, Duration: durationpb.New(s.r.lease)}}}
	})
}

// releaseLater gives a message back for a while, by a call of its own. The caller holds
// mu.
func (r *run) releaseLater(j *job) {
	lease, v := j.lease, j.verdict
	r.calls.Go(func() {
		err := r.q.tell(r.streams, "release "+j.m.String(), func(ctx context.Context, s *server) ([]*tubev1.LeaseResult, error) {
			return r.q.settleCall(ctx, s, lease, v)
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.settled(j, lease, err)
		signal(r.wake)
	})
}

// giveBackLate releases what came when the stream was closing, by a call of its own, and
// forgets it: if that fails it comes again once the server sees that the stream is gone.
func (r *run) giveBackLate(srv *server) {
	r.mu.Lock()
	var leases []string
	for _, j := range r.held {
		if r.stopping && j.state == told && j.verdict.kind == released && !j.sent {
			leases = append(leases, j.lease)
			r.drop(j)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.streams, 2*time.Second)
	defer cancel()
	for len(leases) > 0 {
		n := min(leasesPerFrame, len(leases))
		if _, err := srv.queue.Release(ctx, connect.NewRequest(&tubev1.ReleaseRequest{Group: r.q.group, LeaseIds: leases[:n]})); err != nil {
			r.log.Warn("messages that were not begun could not be given back; they come again all the same", "messages", len(leases), "err", err)
			return
		}
		leases = leases[n:]
	}
}
