// Package hooks gives a mochi MQTT server inboxes: it keeps every message of
// QoS 1 and 2 in an inbox.Store for each of its receivers, acknowledges it to
// the publisher when it is stored, and delivers it until the receiver has
// acknowledged it.
//
// Make a [Hook] with [New], give it to the server with [Hook.Attach], and wrap
// each listener with [Hook.Listener] before adding it. Close the server, then
// call [Hook.Wait], then close the store.
//
// # Who does what
//
// The MQTT server reads, checks and answers packets, keeps access rules, and
// delivers messages of QoS 0. Of messages of QoS 1 and 2 it sees neither the
// acknowledgement nor the delivery, and it knows only clients that are
// connected. The path of such a message, file by file:
//
//	inbound.go    finds the frame
//	inspect.go    refuses it if it breaks the protocol
//	reader.go     takes it if it is an acknowledgement, or gives it to the server
//	publish.go    makes an envelope of it and gives it to the store
//	verdict.go    decides what the publisher is told when the store is done
//	outbound.go   gathers what goes to one client, and writes it
//	pump.go       takes the inbox page by page and sends it
//	session.go    takes the receiver's acknowledgements
//
// Messages of a shared subscription take another way from the store to the
// client:
//
//	group.go           a shared subscription with connected members
//	group_dispatch.go  takes the group's inbox and hands each message to a member
//	group_member.go    what one client has of its groups
//
// Around it:
//
//	connect.go    what CONNECT and CONNACK say, from the first packet to the pump
//	handover.go   how a session passes from one connection of a client to the next
//	will.go       takes the will away from the server; the store has it
//	alias.go      topic aliases to receivers
//	packet.go     puts right what the server reads and says
//	local.go      subscriptions of the program itself; inline.go those it makes with the server
//
// Subscriptions (subscribe.go) are kept by both: the store has those of every
// session, the server's index those of connected clients, to deliver messages of
// QoS 0. Those that have to do with the store take the other way too: if they are
// retained, if they are kept for absent receivers, or if the server's index would
// not find everyone they are for. Retained messages are the store's, but for
// the server's own.
//
// # What it guarantees
//
// PUBACK, and PUBREC for QoS 2, is sent after the store has the message on
// stable storage; PUBCOMP after it has forgotten the packet id. A QoS 2 message is
// stored once, however often and over whatever crash it is sent again. SUBACK is
// sent after the subscription is stored, and before the retained messages that it
// brings. CONNACK is the first packet that a client sees, and comes after the
// store has the session and the will. Messages go out in the order of storing, and never
// more of them unacknowledged than the receiver's Receive Maximum or
// [Options.Window]. A message of a shared subscription waits until a member takes
// it, goes to one, and goes to another if that one leaves without acknowledging
// it; a QoS 2 message stays with the one that it was sent to. A receiver that is
// slow, or gone without a word, costs nobody else anything: only goroutines of its
// own connection wait for it.
//
// # Goroutines
//
// Each connection has four: the read goroutine, which the listener starts and in
// which the MQTT server works, and that server's write loop; the flusher, which
// writes the outbound buffer; and the pump, which sends the inbox. The read
// goroutine ends last and waits for the other two of this package. Each shared
// subscription with connected members has one, the dispatcher, and each
// subscription of the program two; [Hook.Wait] waits for them. A client that is
// away has none.
package hooks
