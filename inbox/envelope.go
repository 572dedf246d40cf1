package inbox

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// Position is a place in the order of one inbox. Positions grow in the order in
// which messages were stored, and have gaps: never compute one from another,
// and never compare positions of two inboxes. 0 stands before everything.
type Position uint64

// MessageID names a message for ever: the number it got when it was stored and
// the store that gave it. Ids of one store sort, as values and as strings, in
// the order of storing.
type MessageID struct {
	Sequence Position
	Store    uint32 // drawn at random when the store was created
}

// String returns the 25 characters that users see: 16 hexadecimal digits of the
// sequence, a hyphen, 8 of the store.
func (id MessageID) String() string { return fmt.Sprintf("%016x-%08x", uint64(id.Sequence), id.Store) }

// ParseMessageID is the reverse of [MessageID.String]. Its error wraps [ErrUnknownID].
func ParseMessageID(s string) (MessageID, error) {
	sequence, store, _ := strings.Cut(s, "-")
	high, err1 := hex.DecodeString(sequence)
	low, err2 := hex.DecodeString(store)
	if err1 != nil || err2 != nil || len(high) != 8 || len(low) != 4 || strings.ToLower(s) != s {
		return MessageID{}, fmt.Errorf("%w: %.40q has not the form of an id", ErrUnknownID, s)
	}
	id := MessageID{Position(binary.BigEndian.Uint64(high)), binary.BigEndian.Uint32(low)}
	if id.Sequence == 0 { // no message has it, and without a store it stands for none
		return MessageID{}, fmt.Errorf("%w: %s", ErrUnknownID, s)
	}
	return id, nil
}

// PayloadFormat is the MQTT 5 Payload Format Indicator, including its absence.
type PayloadFormat byte

// The payload formats. A present zero is passed on, so it differs from absence.
const (
	FormatAbsent PayloadFormat = iota // no indicator
	FormatBytes                       // indicator 0: unspecified bytes
	FormatUTF8                        // indicator 1: UTF-8 text
)

// UserProperty is one MQTT 5 user property. Names repeat and order matters.
type UserProperty struct{ Key, Value string }

// Envelope is one published message with everything that is kept of it. Whoever
// builds an envelope and hands it to [Store.Append] gives it away: from then on
// nobody but the store writes to it, and after that nobody at all. Envelopes are
// shared between receivers.
type Envelope struct {
	ID   MessageID // given by the store when it commits
	Time int64     // when the broker took it, Unix milliseconds

	Topic   string
	Payload []byte
	QoS     byte // as published: 0, 1 or 2
	Retain  bool // as published

	Client string // the publisher's client id
	User   string // the publisher's user name, empty for none

	Expiry          int64 // Unix milliseconds after which it must not be delivered; 0 for never
	ContentType     string
	ResponseTopic   string
	CorrelationData []byte
	PayloadFormat   PayloadFormat
	UserProperties  []UserProperty // in the publisher's order

	// Deleted marks the place of a message in history whose content was taken
	// away. It has an id, a time, a topic, and, unless that was erased, a publisher.
	Deleted bool
}

// Sender is who published the message: the user name, or the client id of one
// who has none.
func (e *Envelope) Sender() string {
	if e.User != "" {
		return e.User
	}
	return e.Client
}

// Size is what the message takes in memory, in bytes: payload, texts and user
// properties. It costs a loop over the user properties.
func (e *Envelope) Size() int {
	n := envelopeSize + len(e.Payload) + len(e.Topic) + len(e.Client) + len(e.User) +
		len(e.ContentType) + len(e.ResponseTopic) + len(e.CorrelationData)
	for _, p := range e.UserProperties {
		n += userPropertySize + len(p.Key) + len(p.Value)
	}
	return n
}

// What an envelope and a user property take beside their texts.
const (
	envelopeSize     = int(unsafe.Sizeof(Envelope{}))
	userPropertySize = int(unsafe.Sizeof(UserProperty{}))
)

// PropertyMessageID is the user property by which a publisher names a message, so
// that it may send it again and again until it is acknowledged.
const PropertyMessageID = "msg-id"

// MessageID returns the name that the publisher gave the message, "" if none: the
// first [PropertyMessageID] among its user properties.
func (e *Envelope) MessageID() string {
	for _, p := range e.UserProperties {
		if p.Key == PropertyMessageID {
			return p.Value
		}
	}
	return ""
}

// Expired reports whether the message must no longer be delivered.
func (e *Envelope) Expired(now time.Time) bool {
	return e.Expiry != 0 && now.UnixMilli() >= e.Expiry
}
