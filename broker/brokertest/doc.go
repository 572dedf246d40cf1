// Package brokertest runs the real mqtt-inbox binary for tests that end it, by
// request or by SIGKILL, and start it again on the same data.
//
// Start with [Start]. Packages that use it call [Main] from TestMain, which
// removes the binary that was built for the run. The binary is built once for
// each test binary, with the race detector if the tests have it.
//
// When a test fails, what the broker logged is printed. A data race or a panic in
// the log fails the test.
//
// A running broker owns one goroutine, which waits for the process to end. All
// methods but [Broker.Crash] belong to the test's goroutine.
package brokertest
