package queue

// Answer is what a consumer says when it is asked what became of a lease that ran out.
type Answer uint8

// The answers. No answer in time counts as AnswerUnknown.
const (
	AnswerUnknown Answer = iota // the message goes to somebody else
	AnswerDone                  // counts as acknowledged
	AnswerWorking               // the lease is extended
)
