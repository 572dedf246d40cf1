// Package clienttest runs the MQTT clients that people use, side by side,
// against the real broker: Paho Go for MQTT 3.1.1 and for MQTT 5 (autopaho),
// MQTT.js, Paho Python and the mosquitto tools, over TCP and WebSocket.
//
// There are only tests. Each client library is a [visitor], which does a [visit]:
// it connects, and receives or publishes. Every library is publisher, absent
// receiver and resumed receiver with every other (matrix_test.go), and those that
// connect again by themselves do so over a kill of the broker
// (reconnect_test.go).
//
// What the repository has for clients is tested here, too, where it takes a real
// broker: package inbox/client (device_test.go, outbox_test.go) and
// examples/js (node_test.go).
//
// MQTT.js and Paho Python are run by the scripts in testdata. Tests of a client
// that is not installed are skipped, and fail where CI is set.
package clienttest
