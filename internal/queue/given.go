package queue

import "github.com/tube-mq/tube/internal/record"

// Given is what the desks of one cursor gave in one term, as the next desk of the term has
// to know it. A lease of the term that no desk gave is so told from one that ended.
//
// Which messages were handed out is not kept for each: what is in hand is among the
// desk's leases, and of what failed or was lost the State knows. What is left is little:
// messages that were handed back, that were in hand when a desk ended, and whose failures
// an operator had forgotten.
//
// Leases of earlier terms are believed, as nobody knows any more who gave what.
type Given struct {
	// Nonce is that of the latest lease; its upper half is the term.
	Nonce uint64
	ended offsets
}

// FirstOf is what no desk of a term has gone on from.
func FirstOf(term uint64) Given { return Given{Nonce: term << 32} }

// Of says whether it is a term's.
func (g *Given) Of(term uint64) bool { return g.Nonce>>32 == term }

// Given is what the next desk of this cursor goes on from. This one must be closed.
func (d *Desk) Given() Given { return d.given }

// invented says that a lease bears a nonce of this term, and that its message, which is not
// in hand and not done, was handed out to nobody in it.
func (d *Desk) invented(l Lease, k Candidate) bool {
	return d.given.Of(l.Nonce>>32) && k.Attempts == 0 && !k.Suspect && !d.given.ended.has(k.Offset)
}

// end takes note of a message whose lease is about to be forgotten.
func (g *Given) end(o record.Offset) { g.ended.add(o) }

// forget: the message is done or gone.
func (g *Given) forget(o record.Offset) {
	if !g.ended.empty() {
		g.ended.remove(o)
	}
}
