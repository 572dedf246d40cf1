// Package mqtttest is an MQTT client for tests. It hides nothing: a test decides
// about every packet, every acknowledgement and the way a link ends.
//
// Start with [Dial], which connects and returns after CONNACK. What the broker
// sends is kept in order of arrival until the test takes it with [Client.Next],
// [Client.NextPublish] or [Client.Collect]; calls that wait for an answer, such as
// [Client.Subscribe], take their answer out of it and leave the rest.
// [Eventually] waits for anything else. Every wait ends after [Deadline] and
// then fails the test with what was awaited and what had come instead.
//
// Load generators that run on many goroutines use [Conn], which returns errors
// and needs no test.
//
// A client owns one goroutine, its reader, which ends with the link, at the
// latest when the test ends.
package mqtttest
