package replica

import "go.etcd.io/raft/v3/raftpb"

// Raft is given thin entries: eight bytes that name a payload which waits here
// until raft has given the entry an index. All that wait came in the present
// turn, so their names follow one another and a slice holds them.

// addToken keeps a payload and returns its name.
func (c *core) addToken(p pending) uint64 {
	c.tokens = append(c.tokens, p)
	return c.firstToken + uint64(len(c.tokens)-1)
}

// takeToken takes a payload away; false if there is none of that name.
func (c *core) takeToken(t uint64) (pending, bool) {
	if t < c.firstToken || t-c.firstToken >= uint64(len(c.tokens)) || c.tokens[t-c.firstToken].taken {
		return pending{}, false
	}
	p := c.tokens[t-c.firstToken]
	c.tokens[t-c.firstToken] = pending{taken: true}
	return p, true
}

// dropTokens forgets payloads of entries that raft did not want: what it wants
// it hands out for writing in the same turn.
func (c *core) dropTokens() { c.dropTokensWith(ErrUnknownOutcome) }

// keptTokens is how much room for names a quiet group keeps.
const keptTokens = 64

func (c *core) dropTokensWith(err error) {
	for i := range c.tokens {
		p := c.tokens[i]
		if p.taken {
			continue
		}
		c.tokens[i] = pending{taken: true}
		p.payload.release()
		if p.done != nil {
			p.done(nil, err)
		}
	}
	c.firstToken += uint64(len(c.tokens))
	if c.tokens = c.tokens[:0]; cap(c.tokens) > keptTokens {
		c.tokens = nil
	}
}

// proposalScratch is the message that proposals are handed to raft with, used
// again each time: raft copies the entries of a proposal, and keeps nothing of the
// message (a test says so of the version in use).
type proposalScratch struct {
	raft    raftpb.Message
	entries []*raftpb.Entry
}

// message returns a proposal of n entries, each with room for a name.
func (p *proposalScratch) message(from uint64, n int) *raftpb.Message {
	if p.raft.Type == nil {
		p.raft.Type, p.raft.From = raftpb.MsgProp.Enum(), new(from)
	}
	if cap(p.entries) > keptTokens && n <= keptTokens {
		p.entries = nil
	}
	for len(p.entries) < n {
		p.entries = append(p.entries, &raftpb.Entry{Data: make([]byte, thinBytes)})
	}
	p.raft.Entries = p.entries[:n]
	return &p.raft
}
