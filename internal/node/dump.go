package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// DumpKind says what a DumpItem is.
type DumpKind string

// The kinds of things in a data folder.
const (
	DumpProperties DumpKind = "properties"
	DumpSection    DumpKind = "section"    // of a checkpoint: one group's state
	DumpBlock      DumpKind = "block"      // of the write-ahead log: one write
	DumpEntry      DumpKind = "entry"      // of the write-ahead log
	DumpHardState  DumpKind = "hard-state" // of the write-ahead log: term, vote, commit
	DumpRemoved    DumpKind = "removed"    // of the write-ahead log: the group is gone
	DumpMembers    DumpKind = "members"    // of the write-ahead log: a forced membership
	DumpLapse      DumpKind = "lapse"      // of the write-ahead log: what may be unsynced or forgotten
	DumpBatch      DumpKind = "batch"      // of a segment
	// DumpUnfinished: a write that did not get through, and that nobody was told
	// of. The next start cuts it off.
	DumpUnfinished DumpKind = "unfinished"
	DumpDamage     DumpKind = "damage"
)

// DumpItem is one thing that Dump found. Fields that say nothing of its kind are zero.
type DumpItem struct {
	Kind   DumpKind
	File   string // below the data folder
	Offset int64  // in bytes, within the file
	Group  record.Group
	Whose  string // the group's or folder's name for people; empty if not known
	Index  record.Index
	Term   record.Term
	Bytes  int64
	// First and Last are the offsets of a batch's records.
	First, Last record.Offset
	Records     int64  // of a block or a batch
	Text        string // what the properties say
	Err         error  // of damage, and why something is unfinished
}

// ErrNoDataFolder: there is no data folder at the place given to Dump.
var ErrNoDataFolder = errors.New("not a data folder")

// Dump reads a stopped node's data folder, without changing anything, and visits
// all that is in it, damage included. It fails if there is no such folder or
// one of its parts cannot be listed.
func Dump(fsys vfs.FS, dir string, visit func(DumpItem)) error {
	d := &dumper{fs: fsys, dir: dir, visit: visit, meta: meta.New(), ends: map[record.Group]bounds{}}
	if err := d.properties(); err != nil {
		return err
	}
	if err := replica.DumpCheckpoint(fsys, path.Join(dir, "checkpoint"), d.section); err != nil {
		return err
	}
	err := wal.Dump(fsys, path.Join(dir, "wal"), d.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.partitions()
}

type dumper struct {
	fs    vfs.FS
	dir   string
	visit func(DumpItem)
	// meta is the metadata, as far as it is read, and names what else there is:
	// partitions by the name of their folder, groups. stale: it has news.
	meta   *meta.Machine
	stale  bool
	topics map[string]partitionName
	names  map[record.Group]string
	// ends says where partitions' logs start and end in the checkpoint.
	ends map[record.Group]bounds
	// blind: the checkpoint does not tell all that it should.
	blind bool
}

type partitionName struct {
	group  record.Group
	memory bool // it has no folder
}

type bounds struct{ start, end record.Offset }

func (d *dumper) below(file string) string { return strings.TrimPrefix(file, d.dir+"/") }

func (d *dumper) damage(file string, group record.Group, offset int64, err error) {
	d.visit(DumpItem{Kind: DumpDamage, File: d.below(file), Offset: offset, Group: group, Whose: d.whose(group), Err: err})
}

func (d *dumper) whose(g record.Group) string {
	if name := masterGroupName(g); name != "" {
		return name
	}
	d.refresh()
	return d.names[g]
}

// refresh learns names from what the metadata is now.
func (d *dumper) refresh() {
	if !d.stale && d.topics != nil {
		return
	}
	d.stale, d.topics, d.names = false, map[string]partitionName{}, map[record.Group]string{}
	for _, t := range d.meta.Image().Topics {
		for p, place := range t.Partitions {
			d.names[place.Group] = fmt.Sprintf("%s/%d", t.Name, p)
			folder := record.TopicPartition{Topic: t.ID, Partition: record.Partition(p)}.String()
			d.topics[folder] = partitionName{place.Group, t.Config.MemoryOnly}
		}
	}
}

func (d *dumper) properties() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	b, err := vfs.ReadFile(d.fs, path.Join(d.dir, propertiesFile), maxPropertiesBytes)
	if errors.Is(err, fs.ErrNotExist) && !slices.ContainsFunc([]string{"wal", "checkpoint", "data"}, func(part string) bool { return slices.Contains(names, part) }) {
		return fmt.Errorf("%w: %s has no %s", ErrNoDataFolder, d.dir, propertiesFile)
	}
	var id identity
	if err == nil {
		id, err = parseIdentity(b)
	}
	if err == nil && id.Format > formatVersion {
		return fmt.Errorf("data folder %s has format %d, this program knows up to %d: use a newer tube", d.dir, id.Format, formatVersion)
	}
	if err != nil {
		d.damage(propertiesFile, 0, 0, err)
		return nil
	}
	text := fmt.Sprintf("node %d of cluster %s, format %d, incarnation %s", id.Node, id.ClusterID, id.Format, id.Incarnation)
	d.visit(DumpItem{Kind: DumpProperties, File: propertiesFile, Bytes: int64(len(b)), Text: text})
	return nil
}

// section takes the checkpoint's sections in the order of their groups: the
// metadata comes first and names the others.
func (d *dumper) section(i replica.CheckpointItem) {
	err := i.Err
	if err == nil {
		err = d.learn(i)
	}
	if err != nil {
		d.blind = true
		d.damage(i.File, i.Group, i.Offset, err)
		return
	}
	d.visit(DumpItem{
		Kind: DumpSection, File: d.below(i.File), Offset: i.Offset, Group: i.Group, Whose: d.whose(i.Group),
		Index: i.Applied, Term: i.Term, Bytes: int64(len(i.State)),
	})
}

func (d *dumper) learn(i replica.CheckpointItem) error {
	switch {
	case i.Group == metaGroup:
		d.stale = true
		return d.meta.Restore(i.State)
	case i.Group >= meta.FirstPartitionGroup:
		start, end, err := broker.SavedBounds(i.State)
		d.ends[i.Group] = bounds{start, end}
		return err
	}
	return nil
}

// log takes what the write-ahead log holds.
func (d *dumper) log(i wal.Item) {
	out := DumpItem{File: fmt.Sprintf("wal/%016x.wal", i.Position.File), Offset: i.Position.Offset}
	switch {
	case i.Damage != nil:
		d.damage("wal/"+i.Damage.File, i.Damage.Group, i.Damage.Offset, i.Damage.Cause)
		return
	case i.Cut:
		out.Kind = DumpUnfinished
		out.Err = errors.New("a write that nobody was told of begins here; the next start cuts it off")
	case i.Block != nil:
		out.Kind, out.Bytes, out.Records = DumpBlock, i.Block.SizeBytes, int64(i.Block.Records)
	case i.Record != nil:
		r := i.Record
		out.Kind = map[wal.Kind]DumpKind{wal.KindEntry: DumpEntry, wal.KindHardState: DumpHardState, wal.KindRemoved: DumpRemoved, wal.KindMembers: DumpMembers, wal.KindLapse: DumpLapse}[r.Kind]
		if out.Kind == DumpEntry && r.Group == metaGroup && r.EntryType == 0 && r.Index > d.meta.Image().Index && len(r.Data) > 0 {
			// Perhaps it was never committed; for names that will do.
			d.meta.Apply(r.Index, slices.Clone(r.Data))
			d.stale = true
		}
		out.Group, out.Whose, out.Index, out.Term, out.Bytes = r.Group, d.whose(r.Group), r.Index, r.Term, int64(len(r.Data))
	}
	d.visit(out)
}

func (d *dumper) partitions() error {
	d.refresh()
	dir := path.Join(d.dir, "data")
	folders, err := d.fs.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range folders {
		if err := d.partition(path.Join(dir, f), d.topics[f].group); err != nil {
			return err
		}
	}
	for f, t := range d.topics {
		if b := d.ends[t.group]; !t.memory && b.end > b.start && !slices.Contains(folders, f) {
			d.damage(path.Join(dir, f), t.group, 0, fmt.Errorf("the folder is missing; the checkpoint says that it holds offsets %d to %d", b.start, b.end-1))
		}
	}
	return nil
}

// partition takes one partition's folder. One that the checkpoint does not know
// is younger: all of it is in the write-ahead log.
func (d *dumper) partition(dir string, group record.Group) error {
	saved, damaged := d.ends[group], false
	end, err := d.lastBase(dir)
	if err != nil {
		return err
	}
	next := record.Offset(0) // where the item belongs
	err = commitlog.Dump(d.fs, dir, func(i commitlog.DumpItem) bool {
		out := DumpItem{File: d.below(i.File), Offset: i.Offset, Group: group, Whose: d.whose(group)}
		switch h := i.Header; {
		case i.Err == nil:
			next = h.NextOffset()
			end = max(end, next)
			out.Kind, out.First, out.Last, out.Records, out.Bytes = DumpBatch, h.BaseOffset, h.LastOffset(), int64(h.Count), int64(h.SizeBytes())
		case !d.blind && max(next, base(path.Base(i.File))) >= saved.end && strings.HasSuffix(i.File, logSuffix):
			out.Kind, out.Err = DumpUnfinished, fmt.Errorf("%w; it is behind the checkpoint: the next start cuts it off and has what was acknowledged from the write-ahead log", i.Err)
		default:
			out.Kind, out.Err, damaged = DumpDamage, i.Err, true
		}
		d.visit(out)
		return true
	})
	if err == nil && !damaged && end < saved.end {
		d.damage(dir, group, 0, fmt.Errorf("the segments end at offset %d, the checkpoint says at %d", end, saved.end))
	}
	return err
}

// lastBase is the offset at which a folder's last segment begins, 0 without one.
func (d *dumper) lastBase(dir string) (record.Offset, error) {
	names, err := d.fs.List(dir)
	last := record.Offset(0)
	for _, n := range names {
		last = max(last, base(n))
	}
	return last, err
}

const logSuffix = ".log"

// base is the offset that a segment's name says; 0 for other files.
func base(name string) record.Offset {
	digits, ok := strings.CutSuffix(name, logSuffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return record.Offset(n)
}
