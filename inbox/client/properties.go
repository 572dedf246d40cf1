package client

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// User properties that a client sends.
const (
	// In PUBLISH: the name that a publisher gives to a message, so that it can send it again,
	// see inbox.Store. This package sets it.
	PropertyName = inbox.PropertyMessageID

	// In CONNECT: "on" has deliveries bring what MetadataOf reads, "off" not.
	PropertyMetadata = "inbox-metadata"

	// In CONNECT: pull.ModePull has what was stored before wait until it is asked for,
	// pull.ModePush has it delivered. It is kept with the session.
	PropertyMode = "inbox-mode"

	// In CONNECT: "on" has Options.Acknowledged be told.
	PropertyWatch = "inbox-watch"

	// In CONNECT: the id of a message, a time in RFC 3339, or "0" for everything: what
	// is behind it and still kept is unread again. For a program that has lost what it
	// had; where it stands in every CONNECT, everything comes each time.
	PropertyFrom = "inbox-from"

	// In SUBSCRIBE: how many messages of history come first, 1000 at most.
	PropertyLast = "inbox-last"
)

// User properties that the broker sends, see MetadataOf.
const (
	PropertyID     = "inbox-id" // also in the acknowledgement of a message that has a name
	PropertyTime   = "inbox-time"
	PropertySender = "inbox-sender"
	PropertyGap    = "inbox-gap"
)

// Metadata is what the broker says of a message that it delivers.
type Metadata struct {
	ID     string    // the same in deliveries, pages and history; "" if the broker does not say
	Time   time.Time // when the broker took it; zero if it does not say
	Sender string    // the publisher's user name, or its client id if there is none
	Gaps   []pull.Gap
}

// MetadataOf reads what the broker says of a message, if CONNECT has asked for it
// (PropertyMetadata) or the operator wants it. A publisher can set the same user
// properties, but those of the broker come last, and count.
func MetadataOf(p *paho.Publish) Metadata {
	var m Metadata
	if p.Properties == nil {
		return m
	}
	for _, u := range p.Properties.User {
		switch u.Key {
		case PropertyID:
			m = Metadata{ID: u.Value} // the broker's begin with it
		case PropertyTime:
			m.Time, _ = time.Parse(time.RFC3339, u.Value) // zero if it cannot be read
		case PropertySender:
			m.Sender = u.Value
		case PropertyGap:
			if gap, err := parseGap(u.Value); err == nil {
				m.Gaps = append(m.Gaps, gap)
			}
		}
	}
	return m
}

// parseGap reads "3 expired 2026-01-02T15:04:05.000Z 2026-01-02T15:04:06.000Z".
func parseGap(text string) (pull.Gap, error) {
	words := strings.Split(text, " ")
	if len(words) != 4 {
		return pull.Gap{}, fmt.Errorf("gap %q has %d words", text, len(words))
	}
	count, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return pull.Gap{}, fmt.Errorf("gap %q: %w", text, err)
	}
	gap := pull.Gap{Count: count, Reason: words[1]}
	for at, word := range map[*pull.Time]string{&gap.From: words[2], &gap.To: words[3]} {
		if err := at.UnmarshalText([]byte(word)); err != nil {
			return pull.Gap{}, fmt.Errorf("gap %q: %w", text, err)
		}
	}
	return gap, nil
}
