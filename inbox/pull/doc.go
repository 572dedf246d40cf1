// Package pull is what a receiver may ask of the store: what is unread, a page of
// it, that it was read, and history. It knows neither MQTT nor HTTP: both have the
// same requests, answers and cursors, which docs/protocol.md describes.
//
// Start with [New]. [Service.Do] takes and gives bytes, in JSON or msgpack; the other
// methods of [Service] are the same operations with types. A request concerns the
// inbox of its [Asker] and no other, so whoever calls must have made sure who asks.
//
// A service has no state and starts no goroutines. Its methods may be called
// concurrently.
package pull
