// Package inbox is the domain: what a message for an absent receiver is, how it
// is kept, and in which order it is handed over. It knows neither an MQTT
// library nor a storage engine.
//
// Start with [Envelope] (a stored message), [Store] and [Inbox] (the contract
// that every storage engine keeps), and [Window] (what one receiver has been
// sent and has not acknowledged). [Index] finds the receivers of a topic.
//
// The engines live in inbox/badger (durable) and inbox/memory (reference, for
// tests); inbox/storetest is the suite that both pass.
//
// The package starts no goroutines.
package inbox
