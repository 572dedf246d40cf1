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
//	inspect.go    refuses it if it breaks the protocol, with inspect_connect.go,
//	              inspect_properties.go and inspect_scan.go
//	reader.go     takes it if it is an acknowledgement, or gives it to the server
//	publish.go    makes an envelope of it and gives it to the store
//	admit.go      bounds how many the client may have published that are not finished
//	verdict.go    decides what the publisher is told when the store is done
//	outbound.go   gathers what goes to one client; the frames are made by frame.go
//	flush.go      writes it, without what withdraw.go finds to be taken away meanwhile, and
//	              edit.go leaves out
//	pump.go       takes the inbox page by page and sends it, after redeliver.go has sent
//	              again what an earlier connection left open
//	session.go    takes the receiver's acknowledgements
//
// Messages of a shared subscription take another way from the store to the
// client:
//
//	group.go           a shared subscription with connected members
//	group_dispatch.go  takes the group's inbox and hands each message to a member
//	group_member.go    what one client has of its groups
//	group_given.go     the room for what is given to its own inbox, and may never come
//
// What a client asks its own inbox takes a third:
//
//	request.go         finds in what is published to $inbox/... what is asked
//	requests.go        bounds that, with places.go, and has it answered by package inbox/pull
//	watchers.go        finds who is to be told of what was acknowledged by another way
//	watch.go           tells one connection, now and then
//
// Around it:
//
//	hook.go       the hook, with options.go
//	listener.go   makes a link of each connection
//	link.go       one connection, and how it ends
//	connect.go    what CONNECT and CONNACK say, from the first packet to the pump
//	handover.go   how a session passes from one connection of a client to the next
//	turns.go      lets one connection of a client at a time do so
//	metadata.go   what MQTT 5 receivers are told of a message, with gap.go
//	restore.go    has the server's index know the subscriptions of a session again
//	wishes.go     what CONNECT and SUBSCRIBE say of how the inbox is to be served
//	mode.go       whether it is pushed or waits to be asked for
//	subscribe.go  subscriptions, in the store and in the server's index
//	will.go       takes the will away from the server and gives it to the store,
//	              which publishes it when it is due
//	alias.go      topic aliases to receivers
//	packet.go     puts right what the server reads and says
//	local.go      subscriptions of the program itself
//	inline.go     those of them that it makes with the server
//	check.go      what a message of the program must keep to
//
// Subscriptions are kept by both: the store has those of every session, the
// server's index those of connected clients, to deliver messages of QoS 0. Some
// of these messages go through the store all the same: those that are retained or
// kept for absent receivers, and those that the server would not deliver to
// everyone or not as a whole. Retained messages are the store's, but for the
// server's own.
//
// # What it guarantees
//
// PUBACK, and PUBREC for QoS 2, is sent after the store has the message on
// stable storage; PUBCOMP after it has forgotten the packet id. A QoS 2 message is
// stored once, however often and over whatever crash it is sent again. SUBACK is
// sent after the subscription is stored, and before the retained messages that it
// brings. CONNACK is the first packet that a client sees, and comes after the
// store has the session and the will. Messages go out in the order of storing,
// and never more of them unacknowledged than the receiver's Receive Maximum or
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
// writes the outbound buffer; and the pump, which sends the inbox. One that has
// asked its inbox for something has a fifth until that is answered. The read
// goroutine ends last and waits for the others of this package. Two timers of a
// connection close it if it cannot be written in time, and one that watches has a third,
// which tells it what was acknowledged by another way.
//
// Each shared subscription with connected members has one goroutine, the
// dispatcher. Each subscription of the program, those that it makes with the
// server too, has two: run calls its handler with what the store keeps, runPlain
// with what it does not. [Hook.Wait] waits for them all. A client that is away has
// neither goroutine nor timer.
package hooks
