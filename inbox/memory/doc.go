// Package memory is the reference engine of [inbox.Store]: the plainest reading
// of the contract, for tests and for trying things out. Nothing survives the
// process; [Store.Reopen] plays a restart within it. Questions are answered by going
// through everything.
//
// Start with [New]. One mutex guards everything, so that storing, becoming
// visible and subscribing have one order. It finds receivers with a matcher of
// its own, filter by filter, and so checks [inbox.Index] wherever two engines
// run the same test.
//
// Positions have gaps on purpose: nobody may compute one from another.
//
// The package owns one goroutine per store, and only while there are callbacks
// to call: it calls done, Live and State in order, and ends when none is left.
// [Store.Close] waits for it. One timer says when the next will is due or the
// next session is over; Close stops it.
package memory
