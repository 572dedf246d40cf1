package inbox

// Receiver is who an inbox belongs to: the MQTT client id of a session.
type Receiver string

// Subscription is one topic filter of a session with its MQTT options.
type Subscription struct {
	Filter            string
	QoS               byte   // granted maximum: 0, 1 or 2
	NoLocal           bool   // not for messages that the receiver itself published
	RetainAsPublished bool   // deliver with the publisher's retain flag
	RetainHandling    byte   // 0 send retained, 1 only if new, 2 never
	Identifier        uint32 // MQTT 5 Subscription Identifier, 1 to 268,435,455; 0 for none

	// Last asks for so many of the last messages in history that match, when the
	// subscription is made; it is not kept. See [Inbox.Subscribe].
	Last int
}

// Grant is how a message goes to one receiver: all its matching subscriptions
// taken together. It is fixed when the message is stored.
type Grant struct {
	QoS         byte     // the lower of the publisher's and the highest matching subscription's
	Retain      bool     // the retain flag to send
	Identifiers []uint32 // of every matching subscription that has one, ascending; not to be changed
}
