// Package leaktest finds goroutines that tests leave behind.
//
// It is goleak with patience: goleak gives goroutines that are about to end less
// than half a second, which they may wait for the processor alone, or for a disk,
// where much else is done at the time.
//
// [Main] is for packages, [Find] for single tests.
package leaktest
