//go:build !race

package brokertest

// raceEnabled tells that the tests run with the race detector.
const raceEnabled = false
