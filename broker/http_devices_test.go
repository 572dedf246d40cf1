package broker

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// An app that counts unread messages for a user, and not for a device, has one inbox
// for that, which all devices ask over HTTP: a new one finds what is unread, and a
// late one does not take it back (cases 144, 148).
func TestHTTPOneInboxForAllDevices(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, f *face) {
		f.receiver("alice", "chat/#")
		for range 100 {
			f.publish("chat/alice", "hello", as("bob", "x"))
		}
		unread := func() int64 { return want[pull.SummaryAnswer](f, "GET", "/v1/inboxes/alice/summary", nil).Messages }
		read := func(through string) {
			want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice/acknowledge", pull.AckRequest{Through: through})
		}

		page := func(limit string) pull.MessagesAnswer {
			return want[pull.MessagesAnswer](f, "GET", "/v1/inboxes/alice/messages?limit="+limit, nil)
		}
		older, newer := page("60").Next, page("80").Next
		read(newer)
		if n := unread(); n != 20 {
			t.Errorf("a new device is told of %d unread messages, want 20", n)
		}
		if n := len(want[pull.MessagesAnswer](f, "GET", "/v1/history?topic=chat/alice&limit=1000", nil).Messages); n != 100 {
			t.Errorf("a new device finds %d messages in history, want 100", n)
		}

		read(older) // by a device that has been away
		if n := unread(); n != 20 {
			t.Errorf("%d unread messages after an older mark, want 20", n)
		}
	})
}

// Devices that watch are told that another one has read something, in whatever inbox of
// their user, and nobody else is.
func TestDevicesAreToldWhatIsRead(t *testing.T) {
	f := guarded(t, users{})
	device := func(user, id string, watch string) *mqtttest.Client {
		c := f.dial(id, func(o *mqtttest.Options) {
			o.Version, o.Username, o.Password = 5, user, "word"
			if watch != "" {
				o.UserProperties = []packets.UserProperty{{Key: "inbox-watch", Val: watch}}
			}
		})
		c.Subscribe("chat/#", 1)
		return c
	}
	phone, tablet := device("alice", "alice-phone", "on"), device("alice", "alice-tablet", "on")
	quiet, bob := device("alice", "alice-tv", "off"), device("bob", "bob-phone", "on")
	plain := device("alice", "alice-desk", "")
	told := func(c *mqtttest.Client, client string) {
		t.Helper()
		pk := c.NextPublish()
		var n pull.Notice
		if err := json.Unmarshal(pk.Payload, &n); err != nil || pk.TopicName != "$inbox/acknowledged" || pk.FixedHeader.Qos != 0 || !slices.Equal(n.Clients, []string{client}) || n.More {
			t.Errorf("%s is told %s", c.ID, mqtttest.Describe(pk))
		}
	}
	// What follows a message is the next packet: nothing was told before it.
	nothing := func(all ...*mqtttest.Client) {
		t.Helper()
		text := fmt.Sprint("end ", len(all))
		f.publish("chat/end", text, as("bob", "word"))
		for _, c := range all {
			if pk := c.NextPublish(); string(pk.Payload) != text {
				t.Errorf("%s is told %s", c.ID, mqtttest.Describe(pk))
			}
		}
	}
	all := []*mqtttest.Client{phone, tablet, quiet, bob, plain}
	nothing(all...)

	shared := f.dial("alice-inbox", func(o *mqtttest.Options) { o.Username, o.Password = "alice", "word" })
	shared.Subscribe("chat/#", 1)
	shared.Disconnect()
	shared.WaitClosed()
	f.publish("chat/1", "2", as("bob", "word"))
	for _, c := range all {
		c.NextPublish()
	}
	read := func() int {
		return want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice-inbox/acknowledge", pull.AckRequest{All: true}, as("alice", "word")).Acknowledged
	}
	if n := read(); n != 1 {
		t.Fatalf("%d acknowledged", n)
	}
	told(phone, "alice-inbox")
	told(tablet, "alice-inbox")
	if n := read(); n != 0 {
		t.Fatalf("%d acknowledged again", n)
	}
	nothing(all...)
}

// A device that asks over MQTT is answered, and the other one is told.
func TestDevicesAreToldOverMQTT(t *testing.T) {
	f := guarded(t, users{})
	watching := func(o *mqtttest.Options) {
		o.Version, o.Username, o.Password = 5, "alice", "word"
		o.UserProperties = []packets.UserProperty{{Key: "inbox-watch", Val: "on"}, {Key: "inbox-mode", Val: "pull"}}
	}
	f.publish("chat/1", "1", as("bob", "word"))
	f.publish("chat/1", "2", as("bob", "word"))
	phone, tablet := f.dial("alice-phone", watching), f.dial("alice-tablet", watching)
	tablet.Subscribe("chat/none", 1) // from then on it watches
	ask := func(operation, request string) (answer pull.MessagesAnswer) {
		t.Helper()
		phone.Publish("$inbox/"+operation, request, 0)
		pk := phone.NextPublish()
		if err := json.Unmarshal(pk.Payload, &answer); err != nil || pk.TopicName != "$inbox/"+operation+"/answer" {
			t.Fatalf("%s: %s", operation, mqtttest.Describe(pk))
		}
		return answer
	}
	next := ask("pull", `{"limit":1}`).Next
	ask("pull", `{"limit":1,"after":"`+next+`"}`) // acknowledges the first
	if pk := tablet.NextPublish(); pk.TopicName != "$inbox/acknowledged" || string(pk.Payload) != `{"clients":["alice-phone"]}` {
		t.Errorf("told %s", mqtttest.Describe(pk))
	}
	want[pull.AckAnswer](f, "POST", "/v1/inboxes/alice-phone/acknowledge", pull.AckRequest{All: true}, as("alice", "word"))
	if pk := phone.NextPublish(); pk.TopicName != "$inbox/acknowledged" {
		t.Errorf("told %s", mqtttest.Describe(pk))
	}
}
