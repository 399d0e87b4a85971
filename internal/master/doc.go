// Package master is the role that steers: it administers topics and settings,
// places partitions, hands out producer ids, and runs the coordinators of the
// stream groups. It is a thin shell around the pure machines meta and group:
// what it decides takes effect by being committed in their logs.
//
// What the active master does by itself is Plan's: a pure function from the
// metadata and what it hears of the nodes to what should be done next. Nothing
// is remembered between plans, so that another master goes on where one ended.
// Replicas move in two steps: a plan, or somebody's word, gives a partition a
// target (meta.Placement), and the partition's own leader drives the members of
// its group there and says when they are.
package master
