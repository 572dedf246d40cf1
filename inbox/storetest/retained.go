package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func retain(topic string, qos byte, payload string) *inbox.Envelope {
	e := message(topic, qos, payload)
	e.Retain = true
	return e
}

// retained lists the retained messages for a filter by topic, each of which
// must come once.
func (tr *trial) retained(filter string) map[string]*inbox.Envelope {
	tr.Helper()
	all := map[string]*inbox.Envelope{}
	for e, err := range tr.store.Retained(tr.ctx, filter) {
		if err != nil {
			tr.Fatalf("retained for %.40q: %v", filter, err)
		}
		if all[e.Topic] != nil {
			tr.Fatalf("topic %.40q is listed twice", e.Topic)
		}
		all[e.Topic] = e
	}
	return all
}

// retains fails unless these topics and payloads, in turn, are all that is
// retained, for who lists it and for who subscribes.
func (tr *trial) retains(pairs ...string) {
	tr.Helper()
	var want, listed, sent []string
	for i := 0; i < len(pairs); i += 2 {
		want = append(want, pairs[i]+" "+pairs[i+1])
	}
	for topic, e := range tr.retained("#") {
		listed = append(listed, topic+" "+string(e.Payload))
	}
	c := tr.connectFresh("reader of retained", inbox.ExpiryAtOnce)
	c.subscribe("#", 1)
	for _, e := range c.rest() {
		sent = append(sent, e.Envelope.Topic+" "+string(e.Envelope.Payload))
	}
	c.close(inbox.ExpiryAtOnce)
	for range len(c.live) { // of QoS 0
		e := <-c.live
		sent = append(sent, e.Envelope.Topic+" "+string(e.Envelope.Payload))
	}
	slices.Sort(want)
	slices.Sort(listed)
	slices.Sort(sent)
	same(tr, "listed", listed, want)
	same(tr, "sent", sent, want)
}

func retainedKept(tr *trial) {
	tr.retains()
	tr.append(retain("a", 1, "1"), retain("b", 2, "2"), message("c", 1, "not retained"))
	tr.retains("a", "1", "b", "2")
	tr.append(retain("a", 2, "3"), message("b", 1, "not retained either"))
	tr.retains("a", "3", "b", "2")
	tr.restart()
	tr.retains("a", "3", "b", "2")
	tr.append(retain("a", 1, ""), retain("never", 1, ""), retain("c", 1, "4"))
	tr.retains("b", "2", "c", "4")
	tr.append(retain("c", 1, ""), retain("c", 1, "5"), retain("b", 1, "6"), retain("b", 1, ""))
	tr.restart()
	tr.retains("c", "5")
}

// An empty message that removes the retained one is delivered like any other.
func retainedEmpty(tr *trial) {
	absent := tr.connect("absent", lasting)
	absent.add(inbox.Subscription{Filter: "a", QoS: 1, RetainAsPublished: true})
	absent.close(lasting)
	present := tr.connect("present", inbox.ExpiryAtOnce)
	present.subscribe("a", 1)
	tr.append(retain("a", 1, "1"), retain("a", 1, ""))
	for i, c := range []*client{present, tr.connect("absent", lasting)} {
		for _, e := range c.only("1", "") {
			sameGrant(tr, e, inbox.Grant{QoS: 1, Retain: i == 1})
		}
	}
	tr.retains()
}

// A QoS 0 message is kept as the retained one, and for nobody who is away.
func retainedQoS0(tr *trial) {
	absent := tr.connect("absent", lasting)
	absent.subscribe("a", 0)
	absent.close(lasting)
	live := tr.connect("live", lasting)
	live.subscribe("a", 2)
	tr.append(retain("a", 0, "m"))
	for _, e := range live.heard(1) {
		sameGrant(tr, e, inbox.Grant{})
	}
	tr.restart()
	tr.retains("a", "m")
	if e := tr.retained("a")["a"]; e.QoS != 0 || !e.Retain {
		tr.Fatalf("retained %+v", e)
	}
	for _, r := range []inbox.Receiver{"absent", "live"} {
		c := tr.connect(r, lasting)
		c.only()
		if len(c.live) != 0 {
			tr.Fatalf("%q heard %v", r, payloads(c.heard(1)))
		}
	}
	tr.append(retain("a", 0, ""))
	tr.retains()
}

func retainedHandling(tr *trial) {
	tr.append(retain("a", 1, "m"))
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connect("c", expiry)
		for _, step := range []struct {
			handling byte
			comes    bool
		}{{2, false}, {1, false}, {0, true}, {0, true}, {1, false}, {2, false}} {
			c.add(inbox.Subscription{Filter: "a", QoS: 1, RetainHandling: step.handling})
			var want []string
			if step.comes {
				want = []string{"m"}
			}
			c.only(want...)
		}
		c.unsubscribe("a")
		c.add(inbox.Subscription{Filter: "a", QoS: 1, RetainHandling: 1})
		c.only("m")
		if expiry == lasting { // what a restart keeps is not new
			tr.restart()
			c = tr.connect("c", lasting)
			before := c.only("m", "m", "m")
			c.finish(before...)
			c.add(inbox.Subscription{Filter: "a", QoS: 1, RetainHandling: 1})
			c.only()
		}
		c.close(inbox.ExpiryAtOnce)
	}
}

// A copy is granted by its own subscription alone, and always has the flag.
func retainedGrant(tr *trial) {
	tr.append(retain("a/0", 0, "0"), retain("a/1", 1, "1"), retain("a/2", 2, "2"))
	ids := tr.retained("#")
	for _, expiry := range []inbox.Expiry{lasting, inbox.ExpiryAtOnce} {
		c := tr.connectFresh("c", expiry)
		for i, sub := range []inbox.Subscription{
			{Filter: "a/+", QoS: 2, Identifier: 7},
			{Filter: "a/#", QoS: 1, RetainAsPublished: true},
			{Filter: "+/+", QoS: 0, Identifier: 268_435_455},
		} {
			c.add(sub)
			kept := c.rest()
			var got []inbox.Entry
			for range 3 - len(kept) {
				got = append(got, c.heard(1)...)
			}
			for _, e := range got {
				if e.Position != 0 {
					tr.Fatalf("a live copy has position %d", e.Position)
				}
			}
			got = append(got, kept...)
			slices.SortFunc(got, func(a, b inbox.Entry) int { return strings.Compare(a.Envelope.Topic, b.Envelope.Topic) })
			same(tr, fmt.Sprint("subscription ", i), payloads(got), []string{"0", "1", "2"})
			for qos, e := range got {
				want := inbox.Grant{QoS: min(byte(qos), sub.QoS), Retain: true}
				if sub.Identifier != 0 {
					want.Identifiers = []uint32{sub.Identifier}
				}
				sameGrant(tr, e, want)
				if e.Envelope.ID != ids[e.Envelope.Topic].ID {
					tr.Fatalf("the copy has id %v, the message %v", e.Envelope.ID, ids[e.Envelope.Topic].ID)
				}
			}
		}
		// Whatever is published from now on has the flag as published, or not.
		c.unsubscribe("a/#")
		tr.append(retain("a/1", 1, "1"))
		sameGrant(tr, c.only("1")[0], inbox.Grant{QoS: 1, Identifiers: []uint32{7, 268_435_455}})
		ids = tr.retained("#")
	}
}

func retainedNoLocal(tr *trial) {
	own := retain("own", 1, "own")
	own.Client = "c"
	tr.append(own, retain("other", 1, "other"))
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "#", QoS: 1, NoLocal: true})
	c.only("other")
	c.add(inbox.Subscription{Filter: "own", QoS: 1})
	c.only("own")
}

func retainedExpired(tr *trial) {
	gone, soon, later := retain("gone", 1, "gone"), retain("soon", 1, "soon"), retain("later", 1, "later")
	gone.Expiry = time.Now().Add(-time.Second).UnixMilli()
	soon.Expiry = time.Now().Add(time.Second).UnixMilli()
	later.Expiry = time.Now().Add(time.Hour).UnixMilli()
	until := soon.Expiry
	tr.append(gone, soon, later)
	tr.eventually("the message expires", func() bool { return time.Now().UnixMilli() >= until })
	for range 2 {
		c := tr.connectFresh("c", lasting)
		c.subscribe("#", 1)
		c.only("later")
		tr.restart()
	}
}

func retainedEveryField(tr *trial) {
	random := newRandom(tr)
	want := map[string]*inbox.Envelope{}
	for i := range size(100, 30) {
		e := randomEnvelope(random, fmt.Sprint("t/", i))
		e.Retain, e.QoS = true, byte(i%3)
		if e.Expiry < 1<<41 {
			e.Expiry = 0
		}
		if len(e.Payload) == 0 {
			e.Payload = []byte("m")
		}
		kept := *e
		kept.ID = tr.append(e)[0].ID
		want[e.Topic] = &kept
	}
	for range 2 {
		listed := tr.retained("t/+")
		c := tr.connectFresh("c", lasting)
		c.subscribe("t/#", 2)
		sent := c.rest()
		for range len(want) - len(sent) {
			sent = append(sent, c.heard(1)...)
		}
		for _, e := range sent {
			sameEnvelope(tr, e.Envelope, want[e.Envelope.Topic])
			sameEnvelope(tr, listed[e.Envelope.Topic], want[e.Envelope.Topic])
		}
		if len(listed) != len(want) {
			tr.Fatalf("%d listed, want %d", len(listed), len(want))
		}
		tr.restart()
	}
}

// What a subscription brought is in the inbox like anything else: it stays when
// the retained message goes, and until it is finished.
func retainedCopies(tr *trial) {
	c := tr.connect("c", lasting)
	c.subscribe("a", 1)
	tr.publish("a", "before")
	tr.append(retain("b", 2, "copy"))
	c.subscribe("b", 2)
	tr.append(message("a", 1, "after"), retain("b", 1, ""))
	tr.restart()
	c = tr.connect("c", lasting)
	got := c.only("before", "copy", "after", "")
	sameGrant(tr, got[1], inbox.Grant{QoS: 2, Retain: true})
	c.finish(got[0], got[2])
	c.save()
	tr.restart()
	c = tr.connect("c", lasting)
	same(tr, "the open copy", payloads(c.read(got[1].Position)), []string{"copy"})
	c.finish(got[1])
	c.save()
	c.only()
}

// While a publisher updates retained messages, whoever subscribes never gets an
// older one after a newer one, and at last has the newest.
func retainedNewestLast(tr *trial) {
	topics := size(5000, 1000)
	topic := func(i int) string { return fmt.Sprint("r/", i) }
	for i := range topics {
		tr.main.append(retain(topic(i), byte(1+i%2), "0"))
	}
	tr.main.stored(0)

	kept, live := newVersions(tr), newVersions(tr)
	c := tr.connect("kept", lasting)
	zero, _, err := tr.store.Open(tr.ctx, "live", inbox.OpenOptions{Expiry: inbox.ExpiryAtOnce, Live: live.note})
	if err != nil {
		tr.Fatalf("open: %v", err)
	}

	newest := make([]int, topics)
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	p := tr.publisher()
	random := newRandom(tr)
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			i := random.IntN(topics)
			newest[i]++
			p.append(retain(topic(i), byte(1+i%2), strconv.Itoa(newest[i])))
			if p.sent%32 == 0 {
				p.wait()
			}
		}
	})
	for range 3 {
		c.subscribe("#", 1)
		if _, err := zero.Subscribe(tr.ctx, inbox.Subscription{Filter: "#"}); err != nil {
			tr.Fatalf("subscribe: %v", err)
		}
	}
	close(stop)
	publishing.Wait()
	p.stored(0)

	for _, e := range c.rest() {
		kept.note(e)
	}
	for i, version := range newest {
		if got := live.of(topic(i)); got != version {
			tr.Fatalf("live: the last of topic %d is %d, want %d", i, got, version)
		}
		if got := kept.of(topic(i)); got != version {
			tr.Fatalf("the last of topic %d is %d, want %d", i, got, version)
		}
	}
}

// versions is what came last for each topic.
type versions struct {
	tr   *trial
	mu   sync.Mutex
	last map[string]int
}

func newVersions(tr *trial) *versions { return &versions{tr: tr, last: map[string]int{}} }

// note fails if what comes is older than what came before. It may run on a
// goroutine of the engine.
func (v *versions) note(e inbox.Entry) {
	n, err := strconv.Atoi(string(e.Envelope.Payload))
	v.mu.Lock()
	defer v.mu.Unlock()
	if was := v.last[e.Envelope.Topic]; err != nil || n < was {
		v.tr.Errorf("%s: %q follows %d", e.Envelope.Topic, e.Envelope.Payload, was)
	}
	v.last[e.Envelope.Topic] = n
}

func (v *versions) of(topic string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, ok := v.last[topic]; ok {
		return n
	}
	return -1
}
