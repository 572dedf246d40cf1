// Command mqtt-inbox is an MQTT broker that keeps every acknowledged QoS 1 and
// 2 message for receivers who are away. See mqtt-inbox --help.
//
// It exits with 0 when it did what it was asked, with 1 and one line on standard
// error when it could not, and with 2 when it was asked for something that does
// not exist or is not allowed.
package main
