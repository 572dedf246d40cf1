// Package killtest loads a broker, ends it at bad moments, starts it again on
// the same data, and counts every message.
//
// Start with [Run], which needs an address and two functions: one that ends the
// broker at once, and one that brings it back. So it drives a killed process as
// well as a disk that loses power, and any broker.
//
// Publishers with many messages in flight send numbered messages, each on its
// own topic. Receivers stay, leave, acknowledge late, take over their own
// session again and again, never read, or publish with the packet ids that they
// receive. After the last round each receiver takes what is left. The [Ledger]
// then says whether
//
//   - every acknowledged message reached every receiver that had subscribed
//     before it was sent,
//   - each receiver saw the messages of each publisher for the first time in
//     the order of sending,
//   - publishers were acknowledged in the order of sending,
//   - sessions were still there, and no receiver got more than its Receive
//     Maximum,
//   - QoS 1 messages came again only if the publisher had sent them again, or if
//     the receiver had not acknowledged them, or had done so at most [Tail]
//     before the broker or the link broke; and QoS 2 messages never.
//
// Three clients that come and go share a subscription to everything (shared.go):
// each acknowledged message reached one of them, and at QoS 2 one alone.
//
// A receiver in pull mode asks (puller.go): each acknowledged message reached it, by a
// page or by delivery, and nothing comes to it again of which it was answered that it is
// acknowledged. In the end nothing is unread. Another one also acknowledges everything, or
// all of a sender or in a topic, unseen (ledger_cleared.go): what was acknowledged to its
// publisher before the request comes no more, and what was sent after the answer reaches it.
//
// What is kept in history is read after the last kill, page by page (archive.go): all that
// was acknowledged is there once, in the order of storing, and nothing else.
//
// Before each kill, witnesses set up what a broker must keep beside messages, and
// look after it whether it did: wills, retained messages, the time that messages
// have left, sessions and subscriptions (wills.go, retained.go, expiring.go,
// subscriptions.go), the last messages that came with a subscription, what became unread
// again, what a subscription that was given up takes with it, and a message that its sender
// has deleted (past.go), and that a sender was erased (erased.go).
//
// Behind all that, what is stored is verified: nothing is missing in it, and nothing left.
//
// The tests of the package are the short run of every `go test`, half of it with
// references for each receiver, at QoS 2 with rewinding, and half with a stream for each
// filter and history; the flags -kills, -seed, -qos, -pause, -group-from and -broker make
// it longer, keep it to one way of storing, or turn it to another broker:
//
//	go test ./broker/killtest -run Kill -kills 100 -qos 2 -pause 20ms -v -timeout 30m
//	go test ./broker/killtest -run Kill -kills 100 -group-from 2 -v -timeout 30m
//	go test ./broker/killtest -run Kill -broker 'mosquitto -p {port}' -v
//
// Every client is one goroutine. Run ends when all of them have.
package killtest
