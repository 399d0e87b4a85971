package sim

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// faults makes things go wrong, and counts.
type faults struct {
	c      *cluster
	counts map[string]int
	// lossy is the node whose disk lost something that was synced, until every
	// replica on it is whole again; nil: none.
	lossy *node
	// odds has each fault as often as it is likely in this run.
	odds []fault
}

type fault struct {
	name string
	do   func(*faults) bool // false: not now
	rare bool
}

// kinds of faults; a run has each with a weight of its own.
var kinds = []fault{
	{"crash", (*faults).crash, false},
	{"crash between write and fsync", (*faults).crashUnsynced, false},
	{"crash at a change of the disk", (*faults).crashAtChange, false},
	{"crash of all", (*faults).crashAll, false},
	{"pause", (*faults).pause, false},
	{"slow disk", (*faults).slowDisk, false},
	{"hung disk", (*faults).hungDisk, false},
	{"disk full", (*faults).diskFull, false},
	{"write failed", (*faults).writeFailed, false},
	{"fsync failed", (*faults).syncFailed, false},
	{"bit rot in the write-ahead log", (*faults).rotWAL, false},
	{"bit rot in a checkpoint", (*faults).rotCheckpoint, false},
	{"bit rot in a segment", (*faults).rotSegment, false},
	{"empty disk", (*faults).emptyDisk, false},
	{"old disk image", (*faults).oldDisk, true},
	{"cut one way", (*faults).cutOneWay, false},
	{"node isolated", (*faults).isolate, false},
	{"network split", (*faults).split, false},
	{"bad network", (*faults).badNetwork, false},
	{"clock rate", (*faults).clockRate, false},
	{"clock jump", (*faults).clockJump, false},
	{"membership", (*faults).move, true},
	{"leadership transfer", (*faults).transfer, false},
	{"power cut with the leader gone", (*faults).forget, true},
}

func (f *faults) count(what string) { f.counts[what]++ }

// chance is true once in n times, while things go wrong.
func (f *faults) chance(n int) bool { return !f.c.calm && f.c.oneIn(n) }

func (f *faults) begin() {
	c := f.c
	for _, k := range c.kinds() {
		for range c.rng.IntN(5) {
			f.odds = append(f.odds, k)
		}
		if k.rare { // it is often not possible when its turn comes
			f.odds = append(f.odds, k, k)
		}
	}
	if len(f.odds) == 0 {
		f.odds = kinds
	}
	f.restoreNetwork()
	c.net.cut = map[[2]record.NodeID]bool{}
	gap := c.between(150*time.Millisecond, 2*time.Second)
	var next func()
	next = func() {
		if c.calm {
			return
		}
		k := f.odds[c.rng.IntN(len(f.odds))]
		if k.do(f) {
			f.count(k.name)
			c.log("fault: %s", k.name)
		}
		c.after(c.between(0, 2*gap), next)
	}
	c.after(c.between(time.Second, 3*time.Second), next)
}

// kinds are the faults that may happen in this run.
func (c *cluster) kinds() []fault {
	if c.queues == nil {
		return kinds
	}
	return slices.Concat(kinds, queueKinds)
}

func (f *faults) restoreNetwork() {
	n := &f.c.net
	n.drop, n.repeat, n.late, n.slowest = 0, 0, 0, 3*time.Millisecond
}

// victim is a node that is up; nil: none.
func (f *faults) victim() *node {
	n := f.c.nodes[f.c.rng.IntN(len(f.c.nodes))]
	if !n.up {
		return nil
	}
	return n
}

func (f *faults) policy() vfs.CrashPolicy {
	p := []vfs.CrashPolicy{vfs.CrashRandom, vfs.CrashRandom, vfs.CrashLose, vfs.CrashKeep}[f.c.rng.IntN(4)]
	f.count([]string{"unsynced data lost or torn", "unsynced data lost", "unsynced data kept"}[p])
	return p
}

func (f *faults) crash() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	n.crash(f.policy())
	return true
}

// crashUnsynced ends a node as soon as it has written what it has not synced.
func (f *faults) crashUnsynced() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	n.crashUnsynced = true
	return true
}

func (f *faults) crashAtChange() bool {
	n := f.victim()
	if n == nil || n.fuse > 0 {
		return false
	}
	n.fuse = 1 + f.c.rng.IntN(60)
	return true
}

func (f *faults) crashAll() bool {
	for _, n := range f.c.nodes {
		n.crash(f.policy())
	}
	return true
}

func (f *faults) pause() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	n.pausedUntil = f.c.now + f.c.between(100*time.Millisecond, 6*time.Second)
	f.c.log("n%d pauses until %v", n.id, n.pausedUntil)
	return true
}

// while makes something so, and not so any more after a while.
func (f *faults) during(d time.Duration, undo func()) { f.c.after(d, undo) }

func (f *faults) slowDisk() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	f.c.log("n%d has a slow disk", n.id)
	n.disk1, n.disk2 = 100*time.Millisecond, f.c.between(200*time.Millisecond, 10*time.Second)
	f.during(f.c.between(time.Second, 15*time.Second), n.fastDisk)
	return true
}

func (n *node) fastDisk() { n.disk1, n.disk2 = 50*time.Microsecond, 2*time.Millisecond }

// hungDisk: nothing comes back from it; a watchdog ends the node.
func (f *faults) hungDisk() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	f.c.log("n%d has a disk that hangs", n.id)
	n.disk1, n.disk2 = time.Hour, time.Hour
	life := n.life
	f.during(f.c.between(5*time.Second, 15*time.Second), func() {
		n.fastDisk()
		if n.life == life {
			n.crash(f.policy())
		}
	})
	return true
}

func (n *node) setFull(full bool) {
	n.full = full
	n.disk.SetCapacity(0)
	if full {
		n.disk.SetCapacity(1)
	}
}

func (f *faults) diskFull() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	f.c.log("n%d has a full disk", n.id)
	n.setFull(true)
	f.during(f.c.between(500*time.Millisecond, 8*time.Second), func() { n.setFull(false) })
	return true
}

func (f *faults) fails(ops vfs.OpKind, short bool) bool {
	n := f.victim()
	if n == nil || f.c.cfg.Mode == "" {
		return false
	}
	fault := vfs.Fault{Ops: ops, Times: 1, After: f.c.rng.IntN(4), Err: syscall.EIO, Path: "/wal/"}
	if short {
		fault.ShortBytes = f.c.rng.IntN(6000)
	}
	n.faulty.Inject(fault)
	return true
}

func (f *faults) writeFailed() bool { return f.fails(vfs.OpWrite, true) }
func (f *faults) syncFailed() bool  { return f.fails(vfs.OpSyncData|vfs.OpSync, false) }

// mayLose reports whether a node's disk may lose what was synced: no other has,
// and every group on it has enough others.
func (f *faults) mayLose(n *node) bool {
	if n == nil || f.lossy != nil {
		return false
	}
	for _, t := range f.c.teams {
		if !t.settled || t.at(n.id) != 0 && len(t.voters) < 3 {
			return false
		}
	}
	return true
}

// loses marks a node as one whose disk lost something.
func (f *faults) loses(n *node) { f.lossy, n.suspect = n, true }

// whole is called when a node has made a checkpoint: if its replicas are sound
// and every group has the members it should have, disks may be lost again.
func (f *faults) whole(n *node) {
	if n != f.lossy || n.dying || n.rotten {
		return
	}
	for _, t := range f.c.teams {
		h := n.here[t.id]
		switch {
		case !t.settled:
			return
		case t.at(n.id) != 0 && (h == nil || h.group == nil || h.group.Err() != nil):
			return
		}
	}
	f.c.log("n%d is whole again", n.id)
	f.lossy, n.suspect = nil, false
}

func (f *faults) rotWAL() bool        { return f.rot("d/wal", ".wal") }
func (f *faults) rotCheckpoint() bool { return f.rot("d/checkpoint", ".ckpt") }

// rotSegment damages what a partition stores; whoever looks after the node finds
// that, some time later, and has every replica on it replaced.
func (f *faults) rotSegment() bool {
	var dirs []string
	for _, t := range f.c.teams {
		if _, ok := t.kind.(partitionKind); ok || t.queue != nil {
			dirs = append(dirs, "d/data/"+t.partition().String())
		}
	}
	dir := dirs[0]
	if f.c.queues != nil {
		dir = dirs[f.c.rng.IntN(len(dirs))]
	}
	if !f.rot(dir, ".log") {
		return false
	}
	f.lossy.rotten = true
	return true
}

// rot turns over bits of a node's files while it is down.
func (f *faults) rot(dir, suffix string) bool {
	n := f.victim()
	if !f.mayLose(n) {
		return false
	}
	// A log that was idle for a moment knows what of it was durable; what is
	// beyond the last mark cannot be told from a torn tail.
	n.run(func() {
		n.host.WAL.Drain()
		n.host.WAL.Mark()
		n.host.WAL.Drain()
	})
	if !n.up {
		return false
	}
	f.loses(n)
	n.crash(vfs.CrashKeep)
	names, err := n.disk.List(dir)
	if err != nil {
		return false
	}
	names = slices.DeleteFunc(names, func(s string) bool { return len(s) < len(suffix) || s[len(s)-len(suffix):] != suffix })
	if len(names) == 0 {
		return false
	}
	for range 1 + f.c.rng.IntN(3) {
		name := dir + "/" + names[f.c.rng.IntN(len(names))]
		info, err := n.disk.Stat(name)
		if err != nil || info.SizeBytes == 0 {
			continue
		}
		size := info.SizeBytes
		if f.c.oneIn(2) {
			size = min(size, 16<<10)
		}
		at := f.c.rng.Int64N(size)
		f.c.log("n%d rots: %s at %d", n.id, name, at)
		if err := vfs.FlipBit(n.disk, name, at, uint(f.c.rng.IntN(8))); err != nil {
			f.c.check.fail("cannot flip a bit: %v", err)
		}
	}
	return true
}

func (f *faults) emptyDisk() bool {
	n := f.victim()
	if !f.mayLose(n) {
		return false
	}
	f.loses(n)
	n.crash(vfs.CrashLose)
	n.empty()
	return true
}

// oldDisk puts an earlier image of a node's disk back. The node is known by how
// often its disk was started, and so the image is refused: it starts empty.
func (f *faults) oldDisk() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	if !f.mayLose(n) || n.held == nil || n.heldAt == n.stamp {
		return false
	}
	f.loses(n)
	n.crash(vfs.CrashLose)
	n.disk, n.held = n.held, nil
	f.c.log("n%d has the disk of its start %d, the cluster knows of %d", n.id, n.heldAt, n.stamp)
	n.empty()
	return true
}

func (w *network) open(from, to record.NodeID) bool {
	return !w.cut[[2]record.NodeID{from, to}]
}

// sever cuts directions for a while.
func (f *faults) sever(pairs ...[2]record.NodeID) bool {
	cut := maps.Clone(f.c.net.cut)
	for _, p := range pairs {
		cut[p] = true
	}
	f.c.net.cut = cut
	f.c.log("cut: %v", pairs)
	f.during(f.c.between(200*time.Millisecond, 8*time.Second), func() {
		cut := maps.Clone(f.c.net.cut)
		for _, p := range pairs {
			delete(cut, p)
		}
		f.c.net.cut = cut
	})
	return true
}

func (f *faults) cutOneWay() bool {
	p := f.c.some(2)
	if f.c.oneIn(2) {
		p[0], p[1] = p[1], p[0]
	}
	return f.sever([2]record.NodeID{p[0], p[1]})
}

func (f *faults) isolate() bool {
	n := record.NodeID(1 + f.c.rng.IntN(len(f.c.nodes)))
	var pairs [][2]record.NodeID
	both := f.c.rng.IntN(3)
	for _, other := range f.c.nodes {
		if other.id == n {
			continue
		}
		if both != 1 {
			pairs = append(pairs, [2]record.NodeID{n, other.id})
		}
		if both != 2 {
			pairs = append(pairs, [2]record.NodeID{other.id, n})
		}
	}
	return f.sever(pairs...)
}

func (f *faults) split() bool {
	side := f.c.some(1 + f.c.rng.IntN(len(f.c.nodes)-1))
	var pairs [][2]record.NodeID
	for _, a := range f.c.nodes {
		for _, b := range f.c.nodes {
			if slices.Contains(side, a.id) != slices.Contains(side, b.id) {
				pairs = append(pairs, [2]record.NodeID{a.id, b.id})
			}
		}
	}
	return f.sever(pairs...)
}

func (f *faults) badNetwork() bool {
	n := &f.c.net
	n.drop, n.repeat, n.late = f.c.rng.IntN(300), f.c.rng.IntN(200), f.c.rng.IntN(100)
	n.slowest = f.c.between(time.Millisecond, 200*time.Millisecond)
	f.during(f.c.between(time.Second, 10*time.Second), f.restoreNetwork)
	return true
}

func (f *faults) clockRate() bool {
	n := f.c.nodes[f.c.rng.IntN(len(f.c.nodes))]
	n.tick = f.c.between(30*time.Millisecond, 400*time.Millisecond)
	f.c.log("n%d ticks every %v", n.id, n.tick)
	f.during(f.c.between(time.Second, 10*time.Second), func() { n.tick = 100 * time.Millisecond })
	return true
}

func (f *faults) clockJump() bool {
	n := f.victim()
	if n == nil {
		return false
	}
	n.skew += f.c.between(-time.Hour, time.Hour)
	n.run(func() {
		for range f.c.rng.IntN(30) {
			n.host.Tick()
		}
	})
	return true
}

func (f *faults) move() bool {
	t := f.c.teams[f.c.rng.IntN(len(f.c.teams))]
	if f.lossy != nil || t.relaxed { // how many must have forgotten something is counted with three
		return false
	}
	t.move()
	return true
}

func (f *faults) transfer() bool {
	t := f.c.teams[f.c.rng.IntN(len(f.c.teams))]
	n := t.leader()
	if n == nil || n.pausedUntil > f.c.now {
		return false
	}
	n.run(func() { n.here[t.id].group.Transfer(0) })
	return true
}

// forget has one replica of a relaxed group fall behind, and then at the same moment the
// process of the leader end and the power of the third fail: what was committed
// meanwhile is with the leader alone.
func (f *faults) forget() bool {
	for _, t := range f.c.teams {
		lead := t.leader()
		if !t.relaxed || !t.settled || lead == nil || len(t.peers) != 3 {
			continue
		}
		var others []*node
		for _, id := range sortedKeys(t.peers) {
			if n := f.c.node(t.peers[id]); n != lead {
				others = append(others, n)
			}
		}
		i := f.c.rng.IntN(2)
		behind, cut := others[i], others[1-i]
		f.sever([2]record.NodeID{lead.id, behind.id}, [2]record.NodeID{behind.id, lead.id})
		f.during(f.c.between(200*time.Millisecond, time.Second), func() {
			if f.c.calm {
				return
			}
			f.c.log("n%d ends, n%d loses its power", lead.id, cut.id)
			lead.crash(vfs.CrashKeep)
			cut.crash(vfs.CrashLose)
		})
		return true
	}
	return false
}

// heal ends everything that goes wrong.
func (c *cluster) heal() {
	c.log("healed")
	c.calm = true
	c.net.cut = nil
	c.faults.restoreNetwork()
	if c.cfg.Mode == Liveness {
		c.absent = c.faults.spare()
	}
	for _, n := range c.nodes {
		hung := n.disk1 == time.Hour
		n.fastDisk()
		n.tick, n.fuse = 100*time.Millisecond, 0
		n.pausedUntil = min(n.pausedUntil, c.now)
		n.setFull(false)
		if n == c.absent || hung || n.up { // started anew, so that no fault is left in it
			n.crash(vfs.CrashRandom)
		}
	}
	if n := c.absent; n != nil {
		n.life++
		c.log("n%d stays away", n.id)
	}
}

// spare is a node that can stay away: what it has, others have; nil: none.
func (f *faults) spare() *node {
	ok := func(n *node) bool {
		for _, t := range f.c.teams {
			if t.relaxed && t.at(n.id) != 0 {
				return false // others may have forgotten what it has, and wait for it
			}
			if t.at(n.id) != 0 && n != f.lossy && (!t.settled || len(t.voters) < 3) {
				return false
			}
		}
		return true
	}
	if f.lossy != nil {
		if !ok(f.lossy) {
			return nil
		}
		return f.lossy
	}
	for _, i := range f.c.rng.Perm(len(f.c.nodes)) {
		if ok(f.c.nodes[i]) {
			return f.c.nodes[i]
		}
	}
	return nil
}
