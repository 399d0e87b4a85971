package meta

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// Level counts what programs have learned to write that those before them cannot follow:
// kinds of commands and entries, in this log, in that of stream groups or in that of a
// partition, settings, fields that a machine acts on. A node says with its registration which
// level its program knows, and the active master raises the cluster's to what all nodes
// know. What came with a level is written only once the cluster is at it, so that versions
// may be mixed while the nodes are upgraded one after the other.
type Level uint32

// KnownLevel is what this program knows. Whoever adds something that an earlier program
// cannot follow raises it, says here what it is, and writes it only where
// Image.Level ≥ that level.
//
//	0  programs before levels
//	1  SetLevel
//	2  message ids whose window counts from when all queue groups are done, too: version 2 of
//	   queue.Annexe, which has states of partitions written in version 3 of queue.State
const KnownLevel = LevelIDWindows

// LevelIDWindows is where leaders of partitions write version 2 of queue.Annexe.
const LevelIDWindows Level = 2

// ErrOldProgram: the cluster writes what the node's program cannot follow.
var ErrOldProgram = errors.New("the program is too old for this cluster")

// SetLevel raises the cluster's level. It is refused while a node does not know it.
func SetLevel(now time.Time, to Level) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_SetLevel{SetLevel: &metapb.SetLevel{Level: uint32(to)}}})
}

// Follows is why a program that knows a level cannot take part in the cluster; nil: it
// can. Error: ErrOldProgram.
func (im *Image) Follows(program Level) error {
	if program >= im.Level {
		return nil
	}
	return fmt.Errorf("%w: all its nodes know feature level %d and it is used, this program knows level %d: start a newer tube, of the version of the other nodes (tube cluster nodes)", ErrOldProgram, im.Level, program)
}

// CommonLevel is the highest that all nodes know; the cluster may be raised to it. A
// founder that has not registered yet may be of any version, so that there is none then.
func (im *Image) CommonLevel() (Level, bool) {
	if len(im.Nodes) == 0 || slices.ContainsFunc(im.Founders, func(f Founder) bool { return !f.Taken }) {
		return 0, false
	}
	common := ^Level(0)
	for _, n := range im.Nodes {
		common = min(common, n.Level)
	}
	return common, true
}

// NextLevel is the lowest above the cluster's that some node knows, and the nodes that do not
// know it, by id. None: no node knows more than the cluster's level.
func (im *Image) NextLevel() (next Level, behind []record.NodeID) {
	for _, n := range im.Nodes {
		if n.Level > im.Level && (next == 0 || n.Level < next) {
			next = n.Level
		}
	}
	if next == 0 {
		return 0, nil
	}
	for _, id := range sortedNodes(im) {
		if im.Nodes[id].Level < next {
			behind = append(behind, id)
		}
	}
	for _, f := range im.Founders {
		if !f.Taken && im.Nodes[f.Node] == nil {
			behind = append(behind, f.Node)
		}
	}
	slices.Sort(behind)
	return next, behind
}

func (m *Machine) setLevel(im *Image, now time.Time, c *metapb.SetLevel) Result {
	to := Level(c.GetLevel())
	common, known := im.CommonLevel()
	switch {
	case to <= im.Level:
		return Result{}
	case !known || to > common:
		_, behind := im.NextLevel()
		return Result{Err: fmt.Errorf("%w: level %d; nodes %v do not know it", ErrLevel, to, behind)}
	case to > KnownLevel: // this node was started with an older program, and has not said so yet
		return Result{Err: fmt.Errorf("%w: feature level %d, this program knows level %d: start a newer tube", ErrUnknownCommand, to, KnownLevel)}
	}
	im.Level = to
	m.note(now, "level-raised", "cluster", "all nodes know feature level %d, and the cluster uses it from now on: programs that do not know it are refused", to)
	return Result{}
}
