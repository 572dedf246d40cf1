// Package hostiletest does to the real broker what broken, careless and hostile
// clients do, and sees to it that nobody else notices.
//
// There are only tests. One broker, a [patient], takes everything in turn: noise
// and mutated packets, clients that do not read, that never speak or that speak
// too much, names and lengths at the limits, and two clients that fight for one
// id. After each of them a message to an absent receiver must still arrive, the
// broker's goroutines must be back to their number, and its log must tell of no
// panic, no data race and no error. In the end its memory must be back, too.
//
// The flags -seed, -links and -connects make the tests longer or repeat them:
//
//	go test ./broker/hostiletest -run Hostile/noise -links 20000 -timeout 1h
//	go test ./broker/hostiletest -run Hostile/same -connects 10000
package hostiletest
