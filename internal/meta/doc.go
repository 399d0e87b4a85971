// Package meta is the cluster's metadata: topics, their settings and where their
// partitions lie, nodes, producer ids, and the last events. It is pure: a
// Machine is fed the committed commands of the meta log, one after the other,
// and depends on nothing else. Readers hold an Image, which never changes.
package meta
