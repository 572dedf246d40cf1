// Package bench measures an MQTT broker from outside, over real sockets, and
// checks every message while it does: what was acknowledged to a publisher must
// reach its receiver once and in order.
//
// Start with [Ack], which measures how fast messages for absent receivers are
// acknowledged, [Replay], which measures how receivers get them back, and [Group],
// which measures what many receivers of the same messages cost. All run against each [Target]: this broker, others that are started as a child
// process, a broker that runs already, or the bare disk. [Results] prints the
// results.
//
// The load comes from one goroutine per connection, which writes frames encoded
// beforehand and takes acknowledgements by the bufferful, so that most of a
// small machine is left to the broker. Every goroutine ends before the function
// that started it returns.
package bench
