// Package master is the role that steers: it administers topics and settings,
// places partitions, hands out producer ids, and runs the coordinators of the
// stream groups. It is a thin shell around the pure machines meta and group:
// what it decides takes effect by being committed in their logs.
package master
