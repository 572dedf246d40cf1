// Package broker is an MQTT broker with inboxes: the mochi server, the inbox
// hook, a store and the listeners, wired together, started and stopped in order.
//
// Start with [New] and [Broker.Serve]:
//
//	b, err := broker.New(broker.Options{Dir: "data"})
//	if err != nil { ... }
//	err = b.Serve(ctx) // until ctx ends
//
// A program that has a broker inside publishes with [Broker.Publish], which
// returns when the message is stored, and receives with [Broker.Subscribe]. What
// can be asked for over HTTP, see [Options], stands in openapi.json.
//
// What it guarantees: New returns with every socket bound and the store open,
// or with an error and nothing left behind. Without an [Access] and without
// AllowAnonymous nobody but this machine can connect. Serve ends when the store
// or a listener can no longer do its work, and says why. After Serve or Close
// has returned no goroutine is left, unless StopTimeout ran out.
//
// Goroutines: one that accepts per listener, one per connection, the HTTP
// server's per WebSocket and HTTP listener, and those of the mochi server, the hook
// and the store. [Broker.Close] ends and awaits them all.
package broker
