package group

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// bench applies commands to one machine.
type bench struct {
	t     *testing.T
	m     *Machine
	index record.Index
}

func newBench(t *testing.T) *bench { return &bench{t: t, m: NewMachine()} }

func (b *bench) apply(kind any) Result {
	b.t.Helper()
	cmd := &grouppb.Command{}
	switch k := kind.(type) {
	case *grouppb.PutGeneration:
		cmd.Kind = &grouppb.Command_PutGeneration{PutGeneration: k}
	case *grouppb.Assign:
		cmd.Kind = &grouppb.Command_Assign{Assign: k}
	case *grouppb.ReplaceMember:
		cmd.Kind = &grouppb.Command_ReplaceMember{ReplaceMember: k}
	case *grouppb.CommitOffsets:
		cmd.Kind = &grouppb.Command_CommitOffsets{CommitOffsets: k}
	case *grouppb.Expire:
		cmd.Kind = &grouppb.Command_Expire{Expire: k}
	}
	data, err := proto.Marshal(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	b.index++
	return b.m.Apply(b.index, data)
}

func (b *bench) want(r Result, err error) {
	b.t.Helper()
	if !errors.Is(r.Err, err) || (err == nil) != (r.Err == nil) {
		b.t.Fatalf("got %v, want %v", r.Err, err)
	}
}

func put(base record.Index, generation int32, members ...*grouppb.Member) *grouppb.PutGeneration {
	return &grouppb.PutGeneration{Group: "g", Base: uint64(base), State: &grouppb.State{
		ProtocolType: ConsumerProtocol, Generation: generation, Members: members,
	}}
}

func oneOffset(generation int32, member, instance string) *grouppb.CommitOffsets {
	return &grouppb.CommitOffsets{Group: "g", Generation: generation, Member: member, Instance: instance, Topics: []*grouppb.TopicOffsets{
		{Topic: make([]byte, 16), Name: "t", Partitions: []*grouppb.PartitionOffset{{Offset: 1}}},
	}}
}

func TestAChangeBuiltOnSomethingElseIsRefused(t *testing.T) {
	b := newBench(t)
	a := &grouppb.Member{Id: "a", Instance: "i"}
	first := b.apply(put(0, 1, a))
	b.want(first, nil)
	base := first.State.Version
	b.want(b.apply(put(0, 2, a)), ErrConflict)      // as if the group were new
	b.want(b.apply(put(base+7, 2, a)), ErrConflict) // another version
	b.want(b.apply(put(base, 1, a)), ErrConflict)   // a generation twice
	b.want(b.apply(&grouppb.Assign{Group: "g", Base: uint64(base) + 7, Generation: 1}), ErrConflict)
	b.want(b.apply(&grouppb.Assign{Group: "g", Base: uint64(base), Generation: 2}), ErrConflict)
	b.want(b.apply(&grouppb.Assign{Group: "h", Generation: 1}), ErrConflict)
	b.want(b.apply(&grouppb.ReplaceMember{Group: "g", Base: uint64(base), OldMember: "b", Member: a}), ErrConflict)
	b.want(b.apply(&grouppb.ReplaceMember{Group: "g", Base: uint64(base), OldMember: "a", Member: &grouppb.Member{Id: "c"}}), ErrConflict)
	if s := b.m.State("g"); s != first.State {
		t.Fatalf("a refused change left %+v", s)
	}
	b.want(b.apply(&grouppb.Assign{Group: "g", Base: uint64(base), Generation: 1}), nil)
}

func TestOnlyThePresentGenerationCommits(t *testing.T) {
	b := newBench(t)
	b.want(b.apply(oneOffset(-1, "", "")), nil)
	base := b.m.State("g").Version
	base = b.apply(put(base, 1, &grouppb.Member{Id: "a", Instance: "i"})).State.Version
	b.want(b.apply(oneOffset(1, "a", "i")), nil)
	b.want(b.apply(oneOffset(1, "z", "i")), ErrFencedInstance)
	b.want(b.apply(oneOffset(1, "z", "")), ErrUnknownMember)
	b.want(b.apply(oneOffset(-1, "", "")), ErrUnknownMember)
	b.apply(put(base, 2, &grouppb.Member{Id: "a", Instance: "i"}))
	b.want(b.apply(oneOffset(1, "a", "i")), ErrIllegalGeneration)
	b.want(b.apply(oneOffset(2, "a", "i")), nil)
}

func TestRetentionBeginsWhenTheLastMemberLeaves(t *testing.T) {
	b := newBench(t)
	hour := func(retention int64) {
		b.apply(&grouppb.Expire{ElapsedMillis: time.Hour.Milliseconds(), RetentionMillis: retention * time.Hour.Milliseconds()})
	}
	base := b.apply(put(0, 1, &grouppb.Member{Id: "a"})).State.Version
	b.apply(oneOffset(1, "a", ""))
	hour(2)
	b.apply(put(base, 2))
	hour(2)
	if b.m.offsetCount("g") != 1 {
		t.Fatal("expired an hour after the group became empty, retention is two")
	}
	hour(2)
	if b.m.Len() != 0 {
		t.Fatal("still there after retention")
	}
}

func TestAJumpOfTheClockExpiresNothing(t *testing.T) {
	b := newBench(t)
	b.apply(oneOffset(-1, "", ""))
	year := 365 * 24 * time.Hour
	b.apply(&grouppb.Expire{ElapsedMillis: year.Milliseconds(), RetentionMillis: (24 * time.Hour).Milliseconds()})
	b.apply(&grouppb.Expire{ElapsedMillis: -year.Milliseconds(), RetentionMillis: (24 * time.Hour).Milliseconds()})
	if b.m.offsetCount("g") != 1 || b.m.clock != MaxClockStep {
		t.Fatalf("one entry moved the clock to %v, %d offsets left", b.m.clock, b.m.offsetCount("g"))
	}
}

func TestACommandThatIsNotUnderstoodIsSaidSo(t *testing.T) {
	b := newBench(t)
	short := oneOffset(-1, "", "")
	short.Topics[0].Topic = []byte{1}
	b.want(b.apply(short), ErrUnknownCommand)
	b.want(b.apply(nil), ErrUnknownCommand)
	b.want(b.m.Apply(9, []byte{0xff, 0xff, 0xff}), ErrUnknownCommand)
	b.want(b.m.Apply(10, []byte{0xf2, 0x06, 0x00}), ErrUnknownCommand) // a kind of the future
	if b.m.Len() != 0 {
		t.Fatal("left something")
	}
}

func TestADamagedSnapshotIsRefused(t *testing.T) {
	b := newBench(t)
	b.apply(oneOffset(-1, "", ""))
	digest, good := b.m.Digest(), b.m.Snapshot()
	newer, _ := proto.Marshal(&grouppb.Snapshot{Format: snapshotFormat + 1})
	for _, bad := range [][]byte{nil, {0xff}, good[:len(good)-3], newer} {
		if err := b.m.Restore(bad); !errors.Is(err, ErrSnapshot) {
			t.Errorf("restored %d bytes: %v", len(bad), err)
		}
	}
	if b.m.Digest() != digest {
		t.Error("a refused snapshot changed the state")
	}
}

func TestShardOfStaysWhatItWas(t *testing.T) {
	// Stored groups would be lost if these changed.
	for name, want := range map[string]int{"": 5, "a": 4, "orders": 4, "Bestellungen-ß": 2} {
		if got := ShardOf(name, 8); got != want {
			t.Errorf("shard of %q is %d, was %d", name, got, want)
		}
	}
}

func FuzzSubscribedTopics(f *testing.F) {
	f.Add(subscription("", "a", "b"))
	f.Add([]byte{0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0x7f, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		names, ok := subscribedTopics(b)
		size := 0
		for _, n := range names {
			size += 2 + len(n)
		}
		if ok && size > len(b) {
			t.Fatalf("%d bytes of names from %d", size, len(b))
		}
	})
}

func FuzzApply(f *testing.F) {
	for _, c := range []proto.Message{oneOffset(-1, "", ""), put(0, 1, &grouppb.Member{Id: "a"})} {
		cmd := &grouppb.Command{}
		switch k := c.(type) {
		case *grouppb.CommitOffsets:
			cmd.Kind = &grouppb.Command_CommitOffsets{CommitOffsets: k}
		case *grouppb.PutGeneration:
			cmd.Kind = &grouppb.Command_PutGeneration{PutGeneration: k}
		}
		data, _ := proto.Marshal(cmd)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := NewMachine()
		m.Apply(1, data)
		m.Apply(2, data)
		next := NewMachine()
		if err := next.Restore(m.Snapshot()); err != nil || next.Digest() != m.Digest() {
			t.Fatalf("snapshot: %v", err)
		}
	})
}
