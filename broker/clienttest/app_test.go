package clienttest

import (
	"slices"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
)

// keepChat has history of all conversations.
var keepChat = brokertest.Options{WebSocket: true, Args: []string{"--history", "chat/#"}}

// What an app has added is published, once and in order, though the app is killed, and the
// broker too.
func TestJavaScriptOutboxSurvivesKills(t *testing.T) {
	needMQTTjs(t)
	b := brokertest.Start(t, brokertest.Options{WebSocket: true})
	const each, kills = 12, 2
	got := make(chan string, each*kills+10)
	seen := map[string]bool{}
	connectDevice(t, b, deviceOptions{id: "alice", subscribe: "chat/#", received: func(p *paho.Publish) {
		if id := client.MetadataOf(p).ID; !seen[id] { // else her acknowledgement was lost with a broker
			seen[id] = true
			got <- string(p.Payload)
		}
	}})

	dir := t.TempDir()
	var want []string
	for kill := range kills {
		a := connectApp(t, b, "bob", dir)
		for _, payload := range numbered("", kill*each, (kill+1)*each) {
			a.do("add", with{"topic": "chat/alice", "payload": payload}, nil)
			want = append(want, payload)
			if len(want)%each == each/2 {
				b.Kill() // what follows waits in the outbox
			}
		}
		a.kill()
		b.Restart()
	}
	a := connectApp(t, b, "bob", dir)
	var all []string
	for len(all) < len(want) {
		all = append(all, <-got)
	}
	a.do("publish", with{"topic": "chat/alice", "payload": "last"}, nil)
	equal(t, "received", append(all, <-got), append(want, "last"))
	var lost []string
	if a.do("lost", nil, &lost); len(lost) > 0 {
		t.Errorf("lost are %q", lost)
	}
	a.end()
}

// What was seen is known after the app was killed.
func TestJavaScriptSeenSurvivesKills(t *testing.T) {
	needMQTTjs(t)
	dir := with{"dir": t.TempDir()}
	a := startApp(t)
	a.do("open", dir, nil)
	var news []bool
	a.do("first", with{"ids": append(numbered("", 0, 250), "7", "")}, &news)
	if len(news) != 252 || slices.Contains(news[:250], false) || news[250] || !news[251] {
		t.Errorf("new are %v", news)
	}
	a.do("addSeen", with{"ids": numbered("", 250, 780)}, nil)
	a.kill()

	a = startApp(t)
	a.do("open", dir, nil)
	a.do("first", with{"ids": slices.Concat(numbered("", 280, 780), numbered("", 0, 100))}, &news) // the last 500, and forgotten ones
	if slices.Contains(news[:500], true) || slices.Contains(news[500:], false) {
		t.Errorf("after a kill new are %v", news)
	}
}

// Live messages are acknowledged when the app is done with them, and known by their ids
// when they come in a page, too.
func TestJavaScriptTellsRepeats(t *testing.T) {
	needMQTTjs(t)
	b := brokertest.Start(t, keepChat)
	a := connectApp(t, b, "alice", t.TempDir())
	a.do("subscribe", with{"filter": "chat/#"}, nil)
	bob := connectDevice(t, b, deviceOptions{id: "bob"})
	ids := bob.publish("chat/a", "0", "1")
	type message struct {
		ID, Sender, Payload string
		First               bool
	}
	var live []message
	mqtttest.Eventually(t, func() bool {
		a.do("live", nil, &live)
		return len(live) == 2
	}, "both come")
	for i, m := range live {
		if m.ID != ids[i] || m.Sender != "bob" || !m.First {
			t.Errorf("number %d is %+v, want id %s", i, m, ids[i])
		}
	}
	var news []bool
	a.do("first", with{"ids": ids}, &news)
	if slices.Contains(news, true) {
		t.Error("what came live is new in a page")
	}
	a.end()
}
