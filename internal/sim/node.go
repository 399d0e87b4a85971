package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// node is a machine: a disk, and while it is up a host that events drive.
type node struct {
	c    *cluster
	id   record.NodeID
	disk *vfs.Mem
	// faulty is the disk as the host sees it.
	faulty *vfs.Faulty
	up     bool
	host   *replica.Single
	broker *broker.Broker
	here   map[record.Group]*hosted
	// life counts starts and ends: events of an earlier life are void.
	life        int
	pausedUntil time.Duration
	// boot counts the runs of the machine; a process that is killed leaves it running.
	boot int
	tick time.Duration // of raft's clock here
	skew time.Duration // of the wall clock here
	// writes and syncs take between these.
	disk1, disk2 time.Duration
	arrived      map[record.NodeID]uint64

	// fuse: after so many changes of the disk, counted before and after each,
	// the node is dead; 0: none. image is what its disk holds then.
	fuse  int
	dying bool
	image *vfs.Mem

	busy          bool // the WAL's next write or sync is an event already
	checkpointing bool
	checkpointed  uint64 // WAL bytes at the last checkpoint
	// stamp counts the disk's starts: an older image is known by it.
	stamp int
	// delaysRead is how many blocks of delayed messages this life has read back, as last seen.
	delaysRead int64
	// sick: see sick.go. flights counts writes and syncs, quick those since the last
	// one that was slow.
	sick           bool
	sickSince      time.Duration
	flights, quick int
	// suspect: the disk lost something that was synced; see faults.mayLose.
	suspect bool
	// rotten: bits of a segment are not what was written, and nobody has found out.
	rotten bool
	full   bool // nothing may be added to the disk
	// broken is how often a start failed in a row.
	broken int
	// crashUnsynced: to be ended after the next write, before its sync.
	crashUnsynced bool
	held          *vfs.Mem // an old image, kept to be put back
	heldAt        int      // its stamp
}

// hosted is one replica on a node, in one life of it.
type hosted struct {
	t       *team
	id      record.ReplicaID
	group   *replica.Group
	machine machine
	// last is the last index that its machine was fed; 0: not known.
	last record.Index
	// from is what its state held already; served the term it was last seen to serve in.
	from   record.Index
	served uint64
	peers  int // version of the team's that it knows
	// overruled: its leader has less, as a majority has forgotten it; it is replaced
	// as soon as it hears of that.
	overruled bool
}

func newNode(c *cluster, id record.NodeID) *node {
	n := &node{
		c: c, id: id, disk: vfs.NewMem(), tick: 100 * time.Millisecond, here: map[record.Group]*hosted{}, arrived: map[record.NodeID]uint64{},
		disk1: 50 * time.Microsecond, disk2: 2 * time.Millisecond,
	}
	return n
}

func (c *cluster) node(id record.NodeID) *node { return c.nodes[id-1] }

// after has f called later, unless the node has crashed by then.
func (n *node) after(d time.Duration, f func()) {
	n.c.push(&event{at: n.c.now + d, node: n, life: n.life, do: f})
}

// every has f called again and again, at about the interval.
func (n *node) every(interval func() time.Duration, f func()) {
	n.after(interval(), func() {
		n.run(f)
		n.every(interval, f)
	})
}

// start brings the node up with what its disk holds.
func (n *node) start() {
	c := n.c
	if c.absent == n {
		return
	}
	n.life++
	n.up, n.dying, n.image, n.fuse = true, false, nil, 0
	n.busy, n.checkpointing, n.pausedUntil, n.checkpointed = false, false, 0, 0
	n.here = map[record.Group]*hosted{}
	n.stamp++
	n.delaysRead = 0
	n.crashUnsynced, n.sick, n.quick = false, false, 0
	if c.queues != nil {
		c.queues.starts(n)
	}
	if n.held == nil && c.oneIn(3) {
		n.held, n.heldAt = n.disk.CrashCopy(c.rng.Uint64(), vfs.CrashKeep), n.stamp
	}
	n.faulty = vfs.NewFaulty(n.disk)
	n.disk.SetHook(n.changed)
	if c.faults.chance(12) {
		n.fuse = 1 + c.rng.IntN(40)
		c.faults.count("crash while starting")
	}
	c.log("n%d starts, life %d", n.id, n.life)
	host, err := replica.OpenSingle(replica.Config{
		FS: n.faulty, Dir: "d", Logger: slog.New(slog.DiscardHandler), Transport: wire{n}, Boot: fmt.Sprint("boot ", n.boot),
		WAL:    wal.Config{FileBytes: 256 << 10, FirstFileBytes: 64 << 10, MaxSpares: 2, QueueBytes: 32 << 10},
		Sick:   c.isSick,
		OnFail: func(err error) { n.stop("storage failed: "+err.Error(), vfs.CrashRandom) },
	})
	if n.dying {
		n.die()
		return
	}
	if err != nil {
		n.cannotStart(err)
		return
	}
	n.host = host
	host.Applied = n.applied
	n.broker, err = n.startBroker()
	if n.dying {
		n.die()
		return
	}
	if err != nil {
		n.cannotStart(err)
		return
	}
	n.broken = 0
	n.run(func() {
		if n.reconcile(); !n.dying {
			host.MembersKnown()
		}
	})
	if !n.up {
		return
	}
	n.every(func() time.Duration { return n.tick }, func() { n.host.Tick() })
	n.every(func() time.Duration { return c.between(100*time.Millisecond, 400*time.Millisecond) }, func() {
		n.reconcile()
		if n.dying {
			return
		}
		c.check.inspect(n)
		n.drive()
		n.host.WAL.Mark()
	})
	n.every(func() time.Duration { return c.between(700*time.Millisecond, time.Second) }, n.lookAfterSick)
	n.every(func() time.Duration { return c.between(50*time.Millisecond, 500*time.Millisecond) }, func() {
		n.broker.LookAtDisk()
		n.broker.Flush()
	})
	n.every(func() time.Duration { return c.between(50*time.Millisecond, time.Second) }, n.lookAtDelays)
	if c.queues != nil {
		n.every(func() time.Duration { return c.between(time.Second, 3*time.Second) }, n.broker.LookAtIntents)
	}
	n.every(func() time.Duration { return c.between(200*time.Millisecond, time.Second) }, func() {
		if n.host.Written()-n.checkpointed > 200<<10 || n.host.CheckpointWanted() || c.oneIn(6) {
			n.checkpoint()
		}
	})
}

// cannotStart: the disk is damaged beyond what a node can sort out by itself, or
// it is full. Whoever runs it tries again, and then empties it.
func (n *node) cannotStart(err error) {
	c := n.c
	c.log("n%d cannot start: %v", n.id, err)
	n.broken++
	n.up = false
	n.life++
	n.disk.SetHook(nil)
	if vfs.IsFull(err) || errors.Is(err, wal.ErrFull) || n.broken < 3 && !n.suspect {
		c.faults.count("start failed")
		n.after(c.between(100*time.Millisecond, 2*time.Second), n.start)
		return
	}
	if !n.suspect {
		c.check.fail("node %d cannot start, and nothing was done to its disk: %v", n.id, err)
	}
	c.faults.count("disk emptied as the node could not start")
	n.empty()
	n.after(c.between(time.Second, 3*time.Second), n.start)
}

// changed is the disk's hook.
func (n *node) changed(op vfs.Op, _ bool) {
	if n.fuse == 0 {
		return
	}
	if n.fuse--; n.fuse == 0 {
		n.c.log("n%d crashes at %v %s", n.id, op.Kind, op.Path)
		n.stop("fuse", vfs.CrashRandom)
	}
}

// stop takes what the disk holds at this moment; the node ends as soon as what
// it is doing returns, and is not heard any more.
func (n *node) stop(why string, policy vfs.CrashPolicy) {
	if n.dying || !n.up {
		return
	}
	n.c.log("n%d stops: %s", n.id, why)
	if n.c.queues != nil {
		n.c.queues.ends(n)
	}
	n.dying, n.fuse = true, 0
	if policy != vfs.CrashKeep {
		n.boot++
	}
	n.image = n.disk.CrashCopy(n.c.rng.Uint64(), policy)
}

// die ends the node with the image that stop took, and has it come back later.
func (n *node) die() {
	n.up, n.dying = false, false
	n.life++
	n.disk.SetHook(nil)
	n.disk, n.image = n.image, nil
	n.host = nil
	if n.c.absent != n {
		n.after(n.c.between(50*time.Millisecond, 5*time.Second), n.start)
	}
}

// crash ends the node now.
func (n *node) crash(policy vfs.CrashPolicy) {
	if !n.up {
		return
	}
	n.stop("crash", policy)
	n.die()
}

// run lets the node do something, and then whatever follows from it.
func (n *node) run(f func()) {
	if !n.up || n.dying {
		return
	}
	f()
	for more := true; more && !n.dying; {
		n.host.Step()
		more = !n.dying && n.broker.RunQueues()
	}
	if !n.dying {
		n.c.check.looked(n)
	}
	if n.dying {
		n.die()
		return
	}
	n.pump()
}

// pump makes events of what the host waits for.
func (n *node) pump() {
	n.pumpWAL()
	for _, f := range n.host.Fetches() {
		n.copy(f)
	}
}

func (n *node) diskTime() time.Duration { return n.c.between(n.disk1, n.disk2) }

func (n *node) pumpWAL() {
	if n.busy {
		return
	}
	w := n.host.WAL
	switch {
	case w.Unsynced():
		n.busy = true
		takes := n.diskTime()
		n.watchDisk(takes)
		n.after(takes, func() {
			n.busy = false
			n.run(func() {
				n.c.log("n%d syncs", n.id)
				w.Sync()
			})
		})
	case w.Waiting():
		n.busy = true
		wait := n.diskTime()
		if w.Blocked() {
			n.c.faults.count("write-ahead log waited for room")
			wait = 100 * time.Millisecond
		} else {
			n.watchDisk(wait)
		}
		n.after(wait, func() {
			n.busy = false
			n.run(func() {
				w.Write()
				n.c.log("n%d wrote up to %d", n.id, n.host.Written())
				if n.crashUnsynced && w.Unsynced() {
					n.stop("between write and sync", n.c.faults.policy())
				}
			})
		})
	}
}

// lookAtDelays has what is not due for long put out of memory, if the seed has little.
func (n *node) lookAtDelays() {
	before := n.broker.DelaySwap()
	n.broker.LookAtDelays()
	after := n.broker.DelaySwap()
	n.c.faults.counts["delayed messages put out of memory: blocks"] += int(after.Written - before.Written)
	n.c.faults.counts["delayed messages read from disk: blocks"] += int(after.Read - n.delaysRead)
	n.delaysRead = after.Read
}

// checkpoint makes one, unless one is under way.
func (n *node) checkpoint() {
	if n.checkpointing {
		return
	}
	n.checkpointing = true
	n.checkpointed = n.host.Written()
	n.host.Checkpoint(func(finish func() error) {
		if finish == nil {
			return // the log failed, and with it the node
		}
		n.after(n.diskTime(), func() {
			n.checkpointing = false
			n.run(func() {
				if n.c.faults.chance(25) {
					n.fuse = 1 + n.c.rng.IntN(30)
					n.c.faults.count("crash in a checkpoint")
				}
				err := finish()
				n.fuse = 0
				n.c.log("n%d checkpoint: %v", n.id, err)
				if err == nil {
					n.c.faults.count("checkpoint")
					n.c.faults.whole(n)
				}
			})
		})
	})
}

var errCut = errors.New("sim: the copy was cut off")

// copy brings a copy that a replica asked for, and with luck it arrives.
func (n *node) copy(f *replica.Fetch) {
	c := n.c
	n.after(c.between(time.Millisecond, 50*time.Millisecond), func() {
		n.run(func() {
			f.Run()
			n.after(c.between(time.Millisecond, 300*time.Millisecond), func() {
				n.run(func() {
					var cut error
					if c.faults.chance(6) {
						c.faults.count("copy cut off")
						cut = errCut
					}
					c.log("n%d copy of g%d arrives (%v)", n.id, f.Group().ID(), cut)
					f.Finish(cut)
				})
			})
		})
	})
}

// reconcile makes the node host what it should.
func (n *node) reconcile() {
	for _, t := range n.c.teams {
		want := t.at(n.id)
		h := n.here[t.id]
		if h != nil && h.id != want && !n.full {
			n.c.log("n%d drops replica %d of g%d", n.id, h.id, t.id)
			delete(n.here, t.id)
			if err := h.machine.remove(); err != nil && !n.dying {
				n.c.check.fail("node %d cannot remove replica %d of group %d: %v", n.id, h.id, t.id, err)
			}
			h = nil
		}
		if n.dying {
			return
		}
		if h != nil && n.rotten && h.id == want && n.c.oneIn(4) {
			n.c.log("n%d has damage found in what it stores", n.id)
			n.rotten = false
			n.replaceAll()
			return
		}
		if h == nil && want != 0 {
			n.join(t, want)
		} else if h != nil {
			if h.peers != t.version {
				h.peers = t.version
				h.machine.setPeers(t.peers)
			}
			if err := h.group.Err(); err != nil {
				n.c.log("n%d replica %d of g%d is damaged: %v", n.id, h.id, t.id, err)
				if !n.suspect && !(h.overruled && errors.Is(err, replica.ErrOverruled)) {
					n.c.check.fail("replica %d of group %d on node %d is damaged, and nothing was done to its disk: %v", h.id, t.id, n.id, err)
				}
				n.c.faults.count("replica damaged")
				n.c.check.forgot(t, n.id, 1)
				t.replace(n.id)
			}
		}
	}
}

// join starts a replica of a team here.
func (n *node) join(t *team, id record.ReplicaID) {
	if !t.ran[id] {
		// What lies here is of another replica, which is gone: a new one has nothing.
		if err := t.kind.drop(n, t); err != nil {
			if !n.dying && !n.full {
				n.c.check.fail("node %d cannot drop what it has of group %d: %v", n.id, t.id, err)
			}
			return
		}
		if n.dying {
			return
		}
		t.ran[id] = true
	}
	h := &hosted{t: t, id: id, peers: t.version}
	n.here[t.id] = h
	var founders []record.ReplicaID
	if slices.Contains(t.founders, id) {
		founders = t.founders
	}
	n.c.log("n%d runs replica %d of g%d", n.id, id, t.id)
	m, err := t.kind.host(n, h, founders)
	if n.dying {
		return
	}
	if err != nil {
		n.c.check.fail("node %d cannot run replica %d of group %d: %v", n.id, id, t.id, err)
	}
	h.machine = m
	n.c.check.joined(n, h)
}

// applied is told by the host of every entry.
func (n *node) applied(g *replica.Group, e replica.Entry, result any) {
	if n.dying {
		return
	}
	if h := n.here[g.ID()]; h != nil {
		n.c.check.applied(n, h, e, result)
	}
}

// empty takes the disk away and puts an empty one in its place: every replica
// that was here comes back under another id.
func (n *node) empty() {
	n.disk, n.rotten = vfs.NewMem(), false
	n.replaceAll()
}

// replaceAll gives the place of every replica here, whose data is gone, to another.
func (n *node) replaceAll() {
	for _, t := range n.c.teams {
		n.c.check.forgot(t, n.id, 1)
		t.replace(n.id)
	}
}
