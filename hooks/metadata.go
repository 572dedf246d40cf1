package hooks

import (
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// User properties by which an MQTT 5 client and the inboxes talk to each other.
const (
	// In CONNECT: "on" asks for the three below in each message that comes from
	// the store, "off" declines them, whatever the operator's default is.
	propertyMetadata = "inbox-metadata"

	// In PUBLISH to a receiver; the id also in the PUBACK or PUBREC of a message
	// that its publisher has named.
	propertyID     = "inbox-id"     // see inbox.MessageID
	propertyTime   = "inbox-time"   // when the broker took it: RFC 3339, milliseconds, UTC
	propertySender = "inbox-sender" // the publisher's user name, or its client id if it has none

	// In PUBLISH with the three above, if messages before this one were lost: how
	// many, why, and when the first and the last of them were stored, as in
	// "3 expired 2026-01-02T15:04:05.000Z 2026-01-02T15:04:06.000Z".
	propertyGap = "inbox-gap"
)

// timeLayout is RFC 3339 with milliseconds, always of the same length.
const timeLayout = "2006-01-02T15:04:05.000Z"

// What the id and the time take as user properties.
const (
	idSize   = 1 + 2 + len(propertyID) + 2 + 25
	timeSize = 1 + 2 + len(propertyTime) + 2 + len(timeLayout)
)

// wantsMetadata reports whether a client is sent the metadata of messages, from
// the user properties of its CONNECT, which readWishes has found right; the last one counts.
func wantsMetadata(properties []packets.UserProperty, byDefault bool) bool {
	wants := byDefault
	for _, p := range properties {
		if p.Key == propertyMetadata {
			wants = p.Val == "on"
		}
	}
	return wants
}

func metadataSize(e *inbox.Envelope) int {
	return idSize + timeSize + 1 + textSize(propertySender) + textSize(e.Sender())
}

// appendMetadata appends the user properties that metadataSize has counted.
func appendMetadata(b []byte, e *inbox.Envelope) []byte {
	b = appendUserProperty(b, propertyID, e.ID.String())
	b = appendUserProperty(b, propertyTime, timeText(e.Time))
	return appendUserProperty(b, propertySender, e.Sender())
}

func timeText(milliseconds int64) string {
	return time.UnixMilli(milliseconds).UTC().Format(timeLayout)
}

func appendUserProperty(b []byte, key, value string) []byte {
	return appendText(appendText(append(b, packets.PropUser), key), value)
}

// appendNamedAck appends a PUBACK or PUBREC of MQTT 5 that tells the id of the
// message.
func appendNamedAck(b []byte, kind byte, id uint16, code byte, message inbox.MessageID) []byte {
	b = append(b, kind<<4, 2+1+1+byte(idSize), byte(id>>8), byte(id), code, byte(idSize))
	return appendUserProperty(b, propertyID, message.String())
}

// namedAckSize is the length of what appendNamedAck appends.
const namedAckSize = 2 + 2 + 1 + 1 + idSize
