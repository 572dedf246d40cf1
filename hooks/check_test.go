package hooks

import (
	"errors"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestCheckMessage(t *testing.T) {
	long := strings.Repeat("a", maxText+1)
	tests := []struct {
		name string
		set  func(*inbox.Envelope)
		ok   bool
	}{
		{"a message", func(*inbox.Envelope) {}, true},
		{"all the rest", func(e *inbox.Envelope) {
			e.QoS, e.PayloadFormat, e.Expiry = 2, inbox.FormatUTF8, 1
			e.ContentType, e.ResponseTopic, e.CorrelationData = "text/plain", "reply", []byte{0}
			e.UserProperties = []inbox.UserProperty{{Key: "k", Value: "ü"}}
		}, true},
		{"longest text", func(e *inbox.Envelope) { e.ContentType = long[1:] }, true},
		{"no topic", func(e *inbox.Envelope) { e.Topic = "" }, false},
		{"long topic", func(e *inbox.Envelope) { e.Topic = long }, false},
		{"topic of the server", func(e *inbox.Envelope) { e.Topic = "$SYS/a" }, false},
		{"levels", func(e *inbox.Envelope) { e.Topic = strings.Repeat("/", maxLevels) }, false},
		{"wildcard", func(e *inbox.Envelope) { e.Topic = "a/+" }, false},
		{"NUL", func(e *inbox.Envelope) { e.Topic = "a\x00" }, false},
		{"control character", func(e *inbox.Envelope) { e.Topic = "a\n" }, false},
		{"no UTF-8", func(e *inbox.Envelope) { e.Topic = "a\xff" }, false},
		{"QoS 3", func(e *inbox.Envelope) { e.QoS = 3 }, false},
		{"payload format", func(e *inbox.Envelope) { e.PayloadFormat = 7 }, false},
		{"expiry", func(e *inbox.Envelope) { e.Expiry = -1 }, false},
		{"content type", func(e *inbox.Envelope) { e.ContentType = long }, false},
		{"response topic", func(e *inbox.Envelope) { e.ResponseTopic = "a/#" }, false},
		{"correlation data", func(e *inbox.Envelope) { e.CorrelationData = []byte(long) }, false},
		{"client id", func(e *inbox.Envelope) { e.Client = long }, false},
		{"user name", func(e *inbox.Envelope) { e.User = "\x01" }, false},
		{"name of a user property", func(e *inbox.Envelope) { e.UserProperties = []inbox.UserProperty{{Key: long}} }, false},
		{"user property", func(e *inbox.Envelope) { e.UserProperties = []inbox.UserProperty{{Value: "\uffff"}} }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &inbox.Envelope{Topic: "a", QoS: 1}
			tt.set(e)
			if err := CheckMessage(e, 1<<20); (err == nil) != tt.ok {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestCheckMessageCountsAllFields(t *testing.T) {
	e := &inbox.Envelope{
		Topic: "a", Payload: []byte("p"), QoS: 1, Expiry: 1, PayloadFormat: inbox.FormatBytes,
		ContentType: "c", ResponseTopic: "r", CorrelationData: []byte{},
		UserProperties: []inbox.UserProperty{{Key: "k", Value: "v"}},
	}
	size := len(appendPublish(nil, true, &publication{Envelope: e, grant: inbox.Grant{QoS: 1}, packetID: 1}))
	if err := CheckMessage(e, size); err != nil {
		t.Errorf("%d bytes: %v", size, err)
	}
	if err := CheckMessage(e, size-1); !errors.Is(err, inbox.ErrTooLarge) {
		t.Errorf("%d bytes, limit one less: %v, want %v", size, err, inbox.ErrTooLarge)
	}
}
