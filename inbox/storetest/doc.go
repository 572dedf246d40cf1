// Package storetest is the suite that every engine of [inbox.Store] passes. Each
// clause of the contract is a subtest with a name; where the contract promises
// the weaker form, so does the suite.
//
// An engine calls [Run] from its tests; [RunKept] if it keeps an index, history or
// what was acknowledged; and [RunTogether] if it makes one commit of many operations.
// The layers above the store use [Faulty] to see what they do when it fails.
//
// Every test has a store of its own. After it, the store is closed, every done
// must have been called exactly once and in order, and no goroutine may be left.
package storetest
