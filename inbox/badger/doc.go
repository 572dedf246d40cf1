// Package badger is the durable storage engine: an [inbox.Store] in an embedded
// Badger database.
//
// Call [Open] first. To find the line that makes a message durable, read
// commitGroup.commit in commit.go: every operation of every connection goes through
// one queue into one goroutine, the committer, which writes a group of them as
// one transaction and one sync. Sequence numbers are given there, so the order
// of keys is the order of commits is the order of visibility.
//
// # What is written
//
// All messages that one group has for one receiver go into one block: one key
// and one value, however many they are (block.go). A message for one receiver
// stands in its block; a message for several is written once as a body, and the
// blocks refer to it. A filter that many sessions are subscribed to has a stream
// (stream.go), which stands for all of them, and one that is kept whoever has read it a
// history (history.go). Inboxes that are asked for messages by sender or topic have an
// index (indexer.go), which has nothing that is not in the blocks. Every key is drawn in
// keys.go.
//
// # What is guaranteed
//
// A nil error in done means that the transaction was synced. After a failed
// commit nothing is known about the store's memory any more, so the failure is
// final: [Store.Failed] is closed and everything gets [inbox.ErrClosed].
//
// # Goroutines
//
// The committer, the fan-out, the sweeper and the indexer, all started by Open and ended
// by Close. The fan-out hands the messages of streams to the members that are
// connected. The sweeper finds what receivers have finished and hands the deletions
// to the committer, and the indexer what it has sorted; both read, and never write by
// themselves. The sweeper also completes what was begun to be erased (erase.go). While a
// store is opened there are two more, for subscriptions and names. Badger has its own.
package badger
