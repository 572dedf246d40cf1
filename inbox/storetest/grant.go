package storetest

import "github.com/mqtt-inbox/mqtt-inbox/inbox"

// All matching subscriptions of a receiver together give one entry.
func grantOverlap(tr *trial) {
	c := tr.connect("c", lasting)
	c.add(
		inbox.Subscription{Filter: "a/b", QoS: 0, Identifier: 300},
		inbox.Subscription{Filter: "a/+", QoS: 2, Identifier: 5},
		inbox.Subscription{Filter: "a/#", QoS: 1, RetainAsPublished: true},
		inbox.Subscription{Filter: "#", QoS: 1, Identifier: 5}, // the same again [MQTT-3.3.4-5]
		inbox.Subscription{Filter: "+/b", QoS: 1, Identifier: 268435455},
		inbox.Subscription{Filter: "a", QoS: 2, Identifier: 9},
	)
	e := message("a/b", 2, "m")
	e.Retain = true
	receipt := tr.append(e)[0]
	matchedBetween(tr, receipt, 1, 5)
	want := inbox.Grant{QoS: 2, Retain: true, Identifiers: []uint32{5, 5, 300, 268435455}}
	sameGrant(tr, c.only("m")[0], want)

	tr.restart()
	c = tr.connect("c", lasting)
	sameGrant(tr, c.expect("m")[0], want)
}

func grantQoS(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("1", 1)
	c.subscribe("2", 2)
	c.subscribe("+", 1)
	tr.append(message("1", 1, "1 on 1"), message("1", 2, "2 on 1"), message("2", 1, "1 on 2"), message("2", 2, "2 on 2"))
	want := []byte{1, 1, 1, 2}
	for i, e := range c.only("1 on 1", "2 on 1", "1 on 2", "2 on 2") {
		sameGrant(tr, e, inbox.Grant{QoS: want[i]})
		if published := byte(1 + i%2); e.Envelope.QoS != published {
			tr.Fatalf("%s: the envelope says QoS %d, published was %d", e.Envelope.Payload, e.Envelope.QoS, published)
		}
	}
}

func grantRetain(tr *trial) {
	as := tr.connect("as published", lasting)
	as.add(inbox.Subscription{Filter: "a", QoS: 1, RetainAsPublished: true})
	not := tr.connect("not", lasting)
	not.add(inbox.Subscription{Filter: "a", QoS: 1})
	for _, retain := range []bool{true, false} {
		e := message("a", 1, "m")
		e.Retain = retain
		tr.append(e)
	}
	for i, e := range as.only("m", "m") {
		sameGrant(tr, e, inbox.Grant{QoS: 1, Retain: i == 0})
	}
	for i, e := range not.only("m", "m") {
		sameGrant(tr, e, inbox.Grant{QoS: 1})
		if e.Envelope.Retain != (i == 0) {
			tr.Fatal("the envelope lost the publisher's retain flag")
		}
	}
}

// No Local takes one subscription out, not the message.
func grantNoLocal(tr *trial) {
	c := tr.connect("c", lasting)
	c.add(
		inbox.Subscription{Filter: "a", QoS: 2, NoLocal: true, RetainAsPublished: true, Identifier: 1},
		inbox.Subscription{Filter: "b", QoS: 2, NoLocal: true, Identifier: 2},
		inbox.Subscription{Filter: "a/#", QoS: 1, Identifier: 3},
	)
	other := tr.connect("other", lasting)
	other.add(inbox.Subscription{Filter: "+", QoS: 1, NoLocal: true})
	from := func(client, topic, payload string) inbox.Receipt {
		e := message(topic, 2, payload)
		e.Client, e.Retain = client, true
		return tr.append(e)[0]
	}
	matchedBetween(tr, from("c", "a", "own"), 2, 3)
	matchedBetween(tr, from("c", "b", "own b"), 1, 2)
	matchedBetween(tr, from("cc", "a", "of cc"), 2, 3)
	matched(tr, from("", "b", "of nobody"), 2)

	got := c.only("own", "of cc", "of nobody")
	sameGrant(tr, got[0], inbox.Grant{QoS: 1, Identifiers: []uint32{3}})
	sameGrant(tr, got[1], inbox.Grant{QoS: 2, Retain: true, Identifiers: []uint32{1, 3}})
	sameGrant(tr, got[2], inbox.Grant{QoS: 2, Identifiers: []uint32{2}})
	other.only("own", "own b", "of cc", "of nobody")
}

// Subscribing again changes what comes, not what is there.
func grantFixed(tr *trial) {
	c := tr.connect("c", lasting)
	linked := tr.connect("linked", inbox.ExpiryAtOnce)
	for _, one := range []*client{c, linked} {
		one.add(inbox.Subscription{Filter: "a", QoS: 1, Identifier: 1})
	}
	tr.append(message("a", 2, "first"))
	for _, one := range []*client{c, linked} {
		one.add(inbox.Subscription{Filter: "a", QoS: 2, Identifier: 2})
		one.add(inbox.Subscription{Filter: "+", QoS: 2, Identifier: 3})
	}
	tr.append(message("a", 2, "second"))

	compare := func(got []inbox.Entry) {
		tr.Helper()
		sameGrant(tr, got[0], inbox.Grant{QoS: 1, Identifiers: []uint32{1}})
		sameGrant(tr, got[1], inbox.Grant{QoS: 2, Identifiers: []uint32{2, 3}})
	}
	compare(linked.only("first", "second"))
	c.add(inbox.Subscription{Filter: "a", QoS: 1})
	c.add(inbox.Subscription{Filter: "+", QoS: 1})
	compare(c.only("first", "second"))
	tr.restart()
	c = tr.connect("c", lasting)
	compare(c.expect("first", "second"))
}
