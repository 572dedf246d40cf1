// Package client is what an app needs beside an MQTT client, the one of Paho for
// MQTT 5, to use all that inboxes have: what is unread, in pages and on demand;
// history; publishing that survives a crash; and telling messages that come again from new
// ones.
//
// # Where to start
//
// [New] makes a [Client], which asks over a connection that the app has anyway:
//
//	inbox := client.New(client.Options{})
//	config.OnPublishReceived = append(config.OnPublishReceived, inbox.Received)
//	connection, err := autopaho.NewConnection(ctx, config)
//	...
//	inbox.Use(connection)
//	...
//	for page, err := range inbox.Pages(ctx, pull.PullRequest{}) {
//
// The requests and answers are those of package [pull], which docs/protocol.md describes
// for other languages. Answers need no subscription.
//
// [OpenOutbox] keeps what is to be published in a directory until it is acknowledged.
// [OpenSeen] keeps the ids of what was received in a file.
//
// # What it guarantees
//
//   - A message that [Outbox.Add] has taken is sent, whatever happens to the
//     program, its machine, the connection and the broker, in the order of adding. The
//     broker stores it once: it remembers names for as long as the message could be kept,
//     see [inbox.Store]. The client id must stay the same.
//   - A walk of [Client.Pages] gives every unread message, and acknowledges a page only
//     when the next one is asked for. Who stops in the middle gets the page again.
//   - An id that [Seen.Add] has taken is known, until as many others have come as it
//     remembers. With both, a message is done once, in the order that is described there.
//
// # Files
//
// Each is written as a whole under another name, synced and renamed, or at its end
// with a sum for each entry. Their layouts stand above their codecs and in
// docs/format.md. One process at a time has them open.
//
// # Goroutines
//
// None of its own: [Outbox.Run] works on its caller's.
package client
