package clienttest

import (
	"slices"
	"strings"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// examples/js sees the same as inbox/client: what is unread, in pages, which are acknowledged by
// going on; and history.
func TestJavaScriptReadsItsInbox(t *testing.T) {
	needMQTTjs(t)
	b := brokertest.Start(t, keepChat)
	away(t, b, "alice", "chat/#")
	bob := connectDevice(t, b, deviceOptions{id: "bob"})
	ids := bob.publish("chat/a", numbered("a", 0, 10)...)
	bob.publish("chat/b", numbered("b", 0, 5)...)

	a := connectApp(t, b, "alice", t.TempDir())
	var summary pull.SummaryAnswer
	a.do("summary", nil, &summary)
	if summary.Messages != 15 || len(summary.Senders) != 1 || summary.Senders[0].Sender != "bob" || len(summary.Topics) != 2 ||
		summary.Topics[0].Topic != "chat/b" || summary.Topics[1].Messages != 10 || summary.Topics[1].Oldest.ID != ids[0] {
		t.Errorf("the summary is %+v", summary)
	}

	request := pull.PullRequest{Topic: "chat/a", Limit: 4}
	var pages [][]string
	a.do("pages", with{"request": request, "stop": 2}, &pages)
	equal(t, "pages", slices.Concat(pages...), numbered("a", 0, 8))
	a.do("pages", with{"request": request}, &pages) // the second page again, for nobody went on
	equal(t, "pages again", slices.Concat(pages...), numbered("a", 4, 10))
	if len(pages) != 2 {
		t.Errorf("6 messages in pages of 4 come in %d", len(pages))
	}
	a.do("pages", with{"request": pull.PullRequest{Order: pull.NewestFirst, Limit: 2, Ack: new(false)}}, &pages)
	newest := numbered("b", 0, 5)
	slices.Reverse(newest)
	equal(t, "newest first", slices.Concat(pages...), newest)

	var n int
	a.do("ack", with{"request": pull.AckRequest{IDs: slices.Repeat(ids, 150)}}, &n)
	if n != 0 {
		t.Errorf("%d that were acknowledged are acknowledged again", n)
	}
	tablet := connectAppOf(t, b, "alice", "alice-tablet", t.TempDir())
	a.do("ack", with{"request": pull.AckRequest{Sender: "bob"}}, &n)
	if n != 5 {
		t.Errorf("%d are acknowledged, want 5", n)
	}
	var notice pull.Notice
	if tablet.do("told", nil, &notice); !slices.Equal(notice.Clients, []string{"alice"}) {
		t.Errorf("the other device is told %+v", notice)
	}
	tablet.end()

	var history []pull.Message
	a.do("history", with{"request": pull.HistoryRequest{Topic: "chat/+", Limit: 4}, "stop": 14}, &history)
	var got []string
	for _, m := range history {
		got = append(got, m.Payload)
	}
	all := slices.Concat(numbered("a", 0, 10), numbered("b", 0, 5))
	slices.Reverse(all)
	equal(t, "history", got, all[:14])
	if last := history[13]; last.ID != ids[1] || last.Client != "bob" {
		t.Errorf("the oldest is %+v, want id %s", last, ids[1])
	}
	var many []int
	a.do("many", with{"n": 30}, &many)
	if len(many) != 30 || slices.Max(many) != 0 {
		t.Errorf("30 questions at a time are answered %v", many)
	}

	if err := a.try("delete", with{"id": ids[0]}, nil); err == nil || !strings.Contains(err.Error(), pull.CodeForbidden) {
		t.Errorf("somebody else's message is deleted: %v", err)
	}
	var receipt struct{ Name, ID string }
	a.do("publish", with{"topic": "chat/c", "payload": "mine"}, &receipt)
	a.do("delete", with{"id": receipt.ID}, nil)
	a.do("history", with{"request": pull.HistoryRequest{}, "stop": 1}, &history)
	if m := history[0]; m.ID != receipt.ID || !m.Deleted {
		t.Errorf("deleted: %+v", m)
	}
	var modes [2]string
	a.do("mode", nil, &modes[0])
	a.do("setMode", with{"mode": "push"}, nil)
	if a.do("mode", nil, &modes[1]); modes != [2]string{pull.ModePull, pull.ModePush} {
		t.Errorf("the mode is %q and then %q", modes[0], modes[1])
	}
	a.end()
}

// A question whose connection breaks is asked again over the next one.
func TestJavaScriptAsksAgain(t *testing.T) {
	needMQTTjs(t)
	b := brokertest.Start(t, keepChat)
	away(t, b, "alice", "chat/#")
	connectDevice(t, b, deviceOptions{id: "bob"}).publish("chat/a", "0", "1")
	a := connectApp(t, b, "alice", t.TempDir())
	var summary pull.SummaryAnswer
	a.do("summary", nil, &summary) // it is connected
	for _, stop := range []func(){b.Pause, b.Kill} {
		stop()
		a.tell("summary", nil)
		b.Kill()
		b.Restart()
		if err := a.result(&summary); err != nil || summary.Messages != 2 {
			t.Errorf("the summary is %+v, %v", summary, err)
		}
	}
	a.end()
}
