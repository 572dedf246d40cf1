package hooks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// The mode is kept with the session, and what sets it last counts.
func TestModeIsKept(t *testing.T) {
	b := start(t, setting{})
	asks := func(o mqtttest.Options) mqtttest.Options { return asking(o, "on") } // CONNACK tells
	mode := func(o mqtttest.Options) string {
		t.Helper()
		c := b.dial(asks(o))
		defer c.Disconnect()
		return told(c.Properties, "inbox-mode")
	}
	for i, step := range []struct {
		client  mqtttest.Options
		request string
		want    string
	}{
		{v5("phone"), "", "push"},
		{saying(v5("phone"), "inbox-mode", "pull"), "", "pull"},
		{v5("phone"), "", "pull"},
		{v5("phone"), "push", "pull"}, // from the next connection on
		{v5("phone"), "", "push"},
		{v5("phone"), "pull", "push"},
		{v5("phone"), "", "pull"},
		{saying(v5("phone"), "inbox-mode", "push"), "", "push"},
		{v5("phone"), "", "push"},
	} {
		if got := mode(step.client); got != step.want {
			t.Errorf("step %d: mode %q, want %q", i, got, step.want)
		}
		if step.request != "" {
			c := b.dial(step.client)
			ask[pull.ModeAnswer](t, c, "mode", pull.ModeRequest{Mode: step.request})
			c.Disconnect()
		}
		if i%3 == 2 {
			b.restart()
		}
	}
}

// An app that was installed anew has everything that is kept again, also what was
// acknowledged, from a time or an id on or at all.
func TestStartingAgain(t *testing.T) {
	b := start(t, setting{Keep: keeping{Rewind: time.Hour}})
	phone := b.dial(asking(v5("phone"), "on"))
	phone.Subscribe("a", 1)
	publisher := b.dial(clean("publisher"))
	var ids []string
	for _, n := range numbers(0, 9) {
		publisher.PublishAndWait("a", n, 1)
		ids = append(ids, told(phone.NextOn("a").Properties, "inbox-id"))
	}
	unread(t, phone, 0)
	phone.Disconnect()

	phone = b.dial(v5("phone"))
	phone.Ping()
	phone.Silent(0)
	page := ask[pull.MessagesAnswer](t, phone, "pull", pull.PullRequest{After: ids[6]})
	if got := payloadsOf(page.Messages); !slices.Equal(got, []string{"7", "8", "9"}) {
		t.Errorf("pulled %q behind number 6", got)
	}
	phone.Disconnect()
	for _, c := range []struct {
		from  string
		first int
	}{{ids[4], 5}, {"0", 0}, {"2020-01-01T00:00:00Z", 0}, {time.Now().Add(time.Hour).Format(time.RFC3339), 10}} {
		phone = b.dial(saying(v5("phone"), "inbox-from", c.from))
		for _, want := range numbers(c.first, 9) {
			if pk := phone.NextOn("a"); string(pk.Payload) != want {
				t.Errorf("from %s: got %s, want %s", c.from, mqtttest.Describe(pk), want)
			}
		}
		unread(t, phone, 0)
		phone.Ping()
		phone.Silent(0)
		phone.Disconnect()
	}
	connack := mqtttest.Refused(t, b.addr, saying(v5("phone"), "inbox-from", "ffffffffffffffff-00000000"))
	if connack.ReasonCode != packets.ErrImplementationSpecificError.Code {
		t.Errorf("an unknown id: %#x", connack.ReasonCode)
	}
}

// History is read by any device, newest first or from any place on, and SUBSCRIBE
// begins with the last of it. A sender takes back what it has sent.
func TestHistoryIsAskedFor(t *testing.T) {
	b := start(t, setting{Keep: keeping{History: []inbox.Kept{{Filter: "chat/#", Keep: time.Hour.Milliseconds()}}}})
	alice := clean("alice's")
	alice.Username = "alice"
	sender := b.dial(alice)
	for _, n := range numbers(0, 99) {
		sender.PublishAndWait("chat/1", n, 1)
	}
	for _, o := range []mqtttest.Options{clean("old"), v5("new")} {
		device := b.dial(o)
		page := ask[pull.MessagesAnswer](t, device, "history", pull.HistoryRequest{Topic: "chat/1"})
		want := numbers(80, 99)
		slices.Reverse(want)
		if got := payloadsOf(page.Messages); !slices.Equal(got, want) || !page.More {
			t.Errorf("history: %q", got)
		}
		page = ask[pull.MessagesAnswer](t, device, "history", pull.HistoryRequest{Topic: "chat/+", Before: page.Messages[19].ID, Limit: 2})
		if got := payloadsOf(page.Messages); !slices.Equal(got, []string{"79", "78"}) {
			t.Errorf("history before number 80: %q", got)
		}
		var deleted pull.DeleteAnswer
		if failed := tryAsk(t, device, "delete", pull.DeleteRequest{ID: page.Messages[0].ID}, &deleted); failed == nil || failed.Code != "forbidden" {
			t.Errorf("somebody else deletes a message: %v", failed)
		}
	}
	page := ask[pull.MessagesAnswer](t, sender, "history", pull.HistoryRequest{Limit: 1})
	if n := ask[pull.DeleteAnswer](t, sender, "delete", pull.DeleteRequest{ID: page.Messages[0].ID}); n.Deleted != 1 {
		t.Errorf("%d deleted", n.Deleted)
	}

	phone := b.dial(asking(v5("phone"), "on"))
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: phone.NextID(),
		Filters: packets.Subscriptions{{Filter: "chat/+", Qos: 1}},
	}
	pk.Properties.User = []packets.UserProperty{{Key: "inbox-last", Val: "3"}}
	phone.Send(pk)
	if suback := phone.NextOf(packets.Suback); suback.ReasonCodes[0] != 1 {
		t.Fatalf("SUBACK %#x", suback.ReasonCodes)
	}
	sender.PublishAndWait("chat/1", "live", 1)
	var got []string
	for len(got) == 0 || got[len(got)-1] != "live" {
		got = append(got, string(phone.NextOn("chat/1").Payload))
	}
	if all := strings.Join(got, " "); all != "96 97 98 live" { // 99 was deleted
		t.Errorf("subscribed with the last 3: %s", all)
	}
}
