package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// ErrNoSurvivor: the masters cannot go on from a folder.
var ErrNoSurvivor = errors.New("the masters cannot go on from this data folder")

// MastersLeft is what a stopped master's folder has of the masters' groups, as of the end of
// its log, and what would be given up if they went on from it.
type MastersLeft struct {
	ClusterID string
	Node      record.NodeID
	Groups    []GroupLeft
	// LastChange is when the last change of metadata in it was made; zero: not known.
	LastChange time.Time
	// Lost are the masters that are given up, and Kept the nodes that have to be restarted.
	Lost []meta.LostMaster
	Kept []record.NodeID
	// Stuck are partitions whose majority is lost with those masters, Gone those that lie on
	// nothing else.
	Stuck, Gone []string
}

// GroupLeft is where a group's log ends.
type GroupLeft struct {
	Group record.Group
	Whose string
	Last  record.Index
	Term  record.Term // of the entry at Last
	// Committed is how far it is known to have been committed; what is behind it may have
	// been acknowledged or not, and counts from now on.
	Committed record.Index
}

// InspectMasters tells what the masters would go on from, without changing anything. lost
// are the masters that are given up; nil: all others. Errors: ErrNoDataFolder, ErrNoSurvivor.
func InspectMasters(fsys vfs.FS, dir string, lost []record.NodeID) (*MastersLeft, error) {
	lock, err := lockStopped(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	left, _, err := inspectMasters(fsys, dir, lost)
	return left, err
}

// RecoverMasters has the masters go on from what a stopped node's folder has: it is their
// only one once the node is started. Errors: as InspectMasters; of the disk.
func RecoverMasters(fsys vfs.FS, dir string, lost []record.NodeID) (*MastersLeft, error) {
	lock, err := lockStopped(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	left, id, err := inspectMasters(fsys, dir, lost)
	if err != nil {
		return nil, err
	}
	id.Recovery = recovery{ID: uuid.NewString(), Lost: left.Lost}
	if err := id.write(fsys, dir); err != nil {
		return nil, err
	}
	cfg := replica.Config{FS: fsys, Dir: dir, WAL: wal.Config{}, Boot: machineRun()}
	if err := replica.ForceOffline(cfg, id.MetaReplica, ownMasterGroups()); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	id.Recovery.Forced = true
	return left, id.write(fsys, dir)
}

// lockStopped makes sure that no node runs on a folder, and that none starts on it.
func lockStopped(fsys vfs.FS, dir string) (io.Closer, error) {
	if _, err := fsys.List(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDataFolder, err)
	}
	lock, err := vfs.LockDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w; stop the node first", err)
	}
	return lock, nil
}

func inspectMasters(fsys vfs.FS, dir string, lost []record.NodeID) (*MastersLeft, identity, error) {
	b, err := vfs.ReadFile(fsys, path.Join(dir, propertiesFile), maxPropertiesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, identity{}, fmt.Errorf("%w: %s has no %s", ErrNoDataFolder, dir, propertiesFile)
	}
	var id identity
	if err == nil {
		id, err = parseIdentity(b)
	}
	switch {
	case err != nil:
		return nil, id, fmt.Errorf("%w: %s: %w", ErrNoSurvivor, propertiesFile, err)
	case id.Format > formatVersion:
		return nil, id, fmt.Errorf("%w: %s has format %d, this program knows up to %d: use a newer tube", ErrNoSurvivor, dir, id.Format, formatVersion)
	case id.Anew || id.MetaReplica == 0:
		return nil, id, fmt.Errorf("%w: what it had of the masters' groups was to be copied anew", ErrNoSurvivor)
	}
	i := &inspection{id: id, meta: meta.New(), ends: map[record.Group]*GroupLeft{}, saved: map[record.Group]replica.CheckpointItem{}}
	if err := i.read(fsys, dir); err != nil {
		return nil, id, fmt.Errorf("%w: %w", ErrNoSurvivor, err)
	}
	left, err := i.judge(lost)
	return left, id, err
}

// inspection reads the masters' groups of a folder.
type inspection struct {
	id    identity
	meta  *meta.Machine
	ends  map[record.Group]*GroupLeft
	saved map[record.Group]replica.CheckpointItem
	at    time.Time // of the last command
	// commands of metadata behind the checkpoint, by index: a later leader's overwrite
	// those before.
	commands []command
	err      error // the first damage
}

type command struct {
	index record.Index
	data  []byte
}

func (i *inspection) end(g record.Group) *GroupLeft {
	if !slices.Contains(ownMasterGroups(), g) {
		return nil
	}
	e := i.ends[g]
	if e == nil {
		e = &GroupLeft{Group: g, Whose: masterGroupName(g)}
		i.ends[g] = e
	}
	return e
}

func (i *inspection) damage(err error) {
	if i.err == nil {
		i.err = err
	}
}

func (i *inspection) read(fsys vfs.FS, dir string) error {
	if err := replica.DumpCheckpoint(fsys, path.Join(dir, "checkpoint"), i.section); err != nil {
		return err
	}
	if err := wal.Dump(fsys, path.Join(dir, "wal"), i.log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, c := range i.commands {
		i.meta.Apply(c.index, c.data)
		if at, ok := meta.CommandTime(c.data); ok {
			i.at = at
		}
	}
	return i.err
}

func (i *inspection) section(s replica.CheckpointItem) {
	e := i.end(s.Group)
	switch {
	case s.Err != nil && (e != nil || s.Group == 0):
		i.damage(s.Err)
	case e == nil:
	case s.Replica != i.id.MetaReplica:
		i.damage(fmt.Errorf("%s: the folder has replica %d, and the node is replica %d", e.Whose, s.Replica, i.id.MetaReplica))
	default:
		i.saved[s.Group] = s
		e.Last, e.Term, e.Committed = s.Applied, s.Term, s.Applied
		if s.Group == metaGroup {
			if err := i.meta.Restore(s.State); err != nil {
				i.damage(err)
			}
			if events := i.meta.Events(0, 1); len(events) > 0 {
				i.at = events[0].Time
			}
		}
	}
}

func (i *inspection) log(item wal.Item) {
	if d := item.Damage; d != nil && (d.Group == 0 || i.end(d.Group) != nil) {
		i.damage(d)
	}
	r := item.Record
	if r == nil {
		return
	}
	e := i.end(r.Group)
	if e == nil {
		return
	}
	switch r.Kind {
	case wal.KindEntry:
		if s := i.saved[r.Group]; r.Index <= s.Applied || r.Term < s.Term {
			return // the checkpoint has it, or has what overwrote it
		}
		e.Last, e.Term = r.Index, r.Term
		if r.Group == metaGroup {
			i.commands = slices.DeleteFunc(i.commands, func(c command) bool { return c.index >= r.Index })
			if r.EntryType == 0 && len(r.Data) > 0 {
				i.commands = append(i.commands, command{r.Index, slices.Clone(r.Data)})
			}
		}
	case wal.KindHardState:
		e.Committed = max(e.Committed, r.Index)
	case wal.KindRemoved:
		delete(i.ends, r.Group)
	}
}

// judge says what would be given up.
func (i *inspection) judge(lost []record.NodeID) (*MastersLeft, error) {
	im := i.meta.Image()
	own := im.Nodes[i.id.Node]
	if own == nil || !own.Has(meta.RoleMaster) || own.MetaReplica != i.id.MetaReplica {
		return nil, fmt.Errorf("%w: node %d is no master, or not yet", ErrNoSurvivor, i.id.Node)
	}
	left := &MastersLeft{ClusterID: i.id.ClusterID, Node: i.id.Node, LastChange: i.at}
	for _, g := range ownMasterGroups() {
		e := i.ends[g]
		if e == nil || e.Last == 0 {
			return nil, fmt.Errorf("%w: it has nothing of %s", ErrNoSurvivor, masterGroupName(g))
		}
		e.Committed = min(e.Committed, e.Last)
		left.Groups = append(left.Groups, *e)
	}
	masters := 1
	given := func(n record.NodeID) bool { return lost == nil || slices.Contains(lost, n) }
	for _, id := range slices.Sorted(maps.Keys(im.Nodes)) {
		n := im.Nodes[id]
		switch {
		case id == i.id.Node:
			continue
		case n.Has(meta.RoleMaster) && given(id):
			masters++
			left.Lost = append(left.Lost, meta.LostMaster{Node: id, Incarnation: n.Incarnation})
			continue
		case n.Has(meta.RoleMaster):
			masters++
		}
		left.Kept = append(left.Kept, id)
	}
	for _, f := range im.Founders {
		if !f.Taken && f.Node != i.id.Node {
			masters++
			left.Lost = append(left.Lost, meta.LostMaster{Node: f.Node})
		}
	}
	for _, id := range lost {
		if !slices.ContainsFunc(left.Lost, func(l meta.LostMaster) bool { return l.Node == id }) {
			return nil, fmt.Errorf("%w: node %d is not one of the other masters", ErrNoSurvivor, id)
		}
	}
	if 2*len(left.Lost) < masters {
		return nil, fmt.Errorf("%w: %d of %d masters are left, which is a majority: start them", ErrNoSurvivor, masters-len(left.Lost), masters)
	}
	left.partitions(im)
	return left, nil
}

// partitions finds those that lose their majority with the lost masters.
func (l *MastersLeft) partitions(im *meta.Image) {
	for _, t := range im.Topics {
		for p := range t.Partitions {
			present := 0
			for _, r := range t.Partitions[p].Replicas {
				if !r.Lost && !slices.ContainsFunc(l.Lost, func(m meta.LostMaster) bool { return m.Node == r.Node }) {
					present++
				}
			}
			name := fmt.Sprintf("%s/%d", t.Name, p)
			switch {
			case present == 0:
				l.Gone = append(l.Gone, name)
			case 2*present <= len(t.Partitions[p].Replicas):
				l.Stuck = append(l.Stuck, name)
			}
		}
	}
	slices.Sort(l.Stuck)
	slices.Sort(l.Gone)
}
