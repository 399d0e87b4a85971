// Package wal is the node's write-ahead log: one for all replica groups on the
// node. One Writer takes what all groups have ready, writes it as one block past
// the page cache, syncs once and answers all. docs/format-wal.md draws the files.
//
// # Torn or rotten
//
// Blocks are written one after the other, large ones also while those before are
// being synced, so after a crash any of the blocks behind the last sync can be
// incomplete. Every block carries a durable mark: the place up to which
// the log was known to be synced when the block was written. What is invalid at
// a place that a later block's mark, or the next file's first mark, lies behind
// was durable once: it is damage, and is reported. What is invalid with no such
// block behind it is a torn tail that nobody was told of: it is cut.
package wal
