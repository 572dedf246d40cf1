package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// group opens the inbox of a group.
func (tr *trial) group(filter string) *client {
	tr.Helper()
	return tr.connectWith(inbox.GroupReceiver(filter), inbox.OpenOptions{Expiry: inbox.ExpiryNever, Resume: true})
}

// noGroup fails if a group has an inbox, or is listed.
func (tr *trial) noGroup(when, filter string) {
	tr.Helper()
	_, err := tr.tryConnect(inbox.GroupReceiver(filter), inbox.OpenOptions{Expiry: inbox.ExpiryNever, Resume: true})
	if !errors.Is(err, inbox.ErrNoSession) {
		tr.Fatalf("%s: opening %q: %v, want ErrNoSession", when, filter, err)
	}
}

// member connects a receiver that shares a filter.
func (tr *trial) member(r inbox.Receiver, expiry inbox.Expiry, filters ...string) *client {
	tr.Helper()
	c := tr.connect(r, expiry)
	for _, f := range filters {
		c.subscribe(f, 1)
	}
	return c
}

func sharedOnce(tr *trial) {
	tr.noGroup("before anybody came", "$share/g/a/+")
	for _, r := range []inbox.Receiver{"x", "y", "z"} {
		tr.member(r, lasting, "$share/g/a/+").close(lasting)
	}
	matched(tr, tr.publish("a/b", "one")[0], 1)
	tr.publish("a/b", "two", "three")
	matched(tr, tr.publish("b", "other")[0], 0)
	if got := tr.sessions(); len(got) != 3 {
		tr.Fatalf("sessions: %+v", got)
	}
	g := tr.group("$share/g/a/+")
	if !g.resumed {
		tr.Fatal("the group was not resumed")
	}
	got := g.only("one", "two", "three")
	g.finish(got[0], got[2])
	g.save()
	g.close(inbox.ExpiryNever)
	tr.publish("a/b", "four")
	g = tr.group("$share/g/a/+")
	same(tr, "open", payloads(g.read(got[1].Position)), []string{"two"})
	g.only("four")
	for _, r := range []inbox.Receiver{"x", "y", "z"} {
		tr.connect(r, lasting).only()
	}
	if got := tr.sessions(); len(got) != 3 {
		tr.Fatalf("sessions: %+v", got)
	}
}

// The group has what was published; what the members asked for is applied when
// one of them gets it.
func sharedGrant(tr *trial) {
	c := tr.connect("c", lasting)
	c.add(inbox.Subscription{Filter: "$share/g/#", QoS: 1, Identifier: 9})
	g := tr.group("$share/g/#")
	for qos := range byte(3) {
		tr.append(retain("a", qos, fmt.Sprint("qos ", qos)))
	}
	sameGrant(tr, g.heard(1)[0], inbox.Grant{Retain: true})
	for i, e := range g.only("qos 1", "qos 2") {
		sameGrant(tr, e, inbox.Grant{QoS: byte(i + 1), Retain: true})
	}
	own := message("a", 1, "of a member")
	own.Client = "c"
	tr.append(own)
	g.only("of a member")
	tr.publish("$share/g/a", "not for a filter")
	tr.publish("$SYS/a", "not for wildcards")
	g.only()
	c.only()
	if len(c.live) != 0 {
		tr.Fatalf("the member heard %v", payloads(c.heard(1)))
	}
}

func sharedEnds(tr *trial) {
	const filter = "$share/g/a"
	ends := []struct {
		name string
		do   func(c *client)
	}{
		{"unsubscribe", func(c *client) { same(tr, "existed", c.unsubscribe(filter), []bool{true}) }},
		{"close", func(c *client) { c.close(inbox.ExpiryAtOnce) }},
		{"fresh", func(c *client) { tr.connectFresh(c.receiver, lasting) }},
	}
	for _, first := range ends {
		for _, last := range ends {
			x, y := tr.member("x", lasting, filter), tr.member("y", lasting, filter)
			same(tr, "existed", x.add(inbox.Subscription{Filter: filter, QoS: 2}), []bool{true})
			tr.publish("a", "one")
			first.do(x)
			tr.publish("a", "two")
			g := tr.group(filter)
			g.only("one", "two")
			ended := tr.blockNext(g)
			last.do(y)
			if err := <-ended; !errors.Is(err, inbox.ErrFenced) {
				tr.Fatalf("a blocked Next of a group that ended returned %v", err)
			}
			tr.noGroup(first.name+", "+last.name, filter)
			matched(tr, tr.publish("a", "for nobody")[0], 0)
			tr.restart()
			tr.noGroup("after a restart", filter)
		}
	}
	// A group that comes again is new.
	tr.member("x", lasting, filter)
	tr.group(filter).only()
	for _, r := range []inbox.Receiver{"x", "y"} {
		tr.connect(r, inbox.ExpiryAtOnce).close(inbox.ExpiryAtOnce)
	}
	tr.noGroup("closed", filter)

	// A member that ends with its link, and with the process.
	tr.member("z", inbox.ExpiryAtOnce, filter).close(inbox.ExpiryAtOnce)
	tr.noGroup("with its link", filter)
	tr.member("z", inbox.ExpiryAtOnce, filter)
	tr.connect("z", inbox.ExpiryAtOnce)
	tr.noGroup("taken over", filter)
	tr.member("z", inbox.ExpiryAtOnce, filter)
	tr.publish("a", "m")
	tr.restart()
	tr.noGroup("with the process", filter)
}

func sharedExpires(tr *trial) {
	const filter = "$share/g/a"
	begin := time.Now()
	tr.member("x", lasting, filter).close(3)
	tr.member("y", lasting, filter).close(1)
	tr.ends("y", begin, 1)
	tr.publish("a", "m")
	tr.restart()
	tr.group(filter).only("m")
	tr.ends("x", begin, 3)
	tr.noGroup("expired", filter)
	tr.restart()
	tr.noGroup("expired and restarted", filter)
}

// A group is a name and a filter together.
func sharedApart(tr *trial) {
	tr.member("x", lasting, "$share/g/a/+", "$share/g/#", "$share/h/a/+")
	tr.member("y", lasting, "$share/g/a/+", "$share/g/a/b")
	tr.connect("g", lasting).subscribe("a/+", 1)
	matched(tr, tr.publish("a/b", "one")[0], 5)
	tr.publish("b", "two")
	tr.group("$share/g/a/+").only("one")
	tr.group("$share/g/a/b").only("one")
	tr.group("$share/h/a/+").only("one")
	tr.group("$share/g/#").only("one", "two")
	tr.connect("x", lasting).unsubscribe("$share/g/a/+", "$share/h/a/+")
	tr.noGroup("left by its only member", "$share/h/a/+")
	tr.group("$share/g/a/+").only("one")
	tr.connect("g", lasting).only("one")
}

func sharedBesidePlain(tr *trial) {
	x := tr.member("x", lasting, "$share/g/a", "a")
	x.add(inbox.Subscription{Filter: "#", QoS: 1, Identifier: 3})
	y := tr.member("y", lasting, "$share/g/a")
	matchedBetween(tr, tr.publish("a", "m")[0], 2, 3)
	sameGrant(tr, x.only("m")[0], inbox.Grant{QoS: 1, Identifiers: []uint32{3}})
	y.only()
	tr.group("$share/g/a").only("m")
	subs, err := x.Subscriptions(tr.ctx)
	if err != nil || len(subs) != 3 {
		tr.Fatalf("subscriptions %+v, %v", subs, err)
	}
}

func sharedRestarted(tr *trial) {
	const filter = "$share/g/a"
	tr.member("x", lasting, filter)
	tr.publish("a", "one", "two")
	g := tr.group(filter)
	g.finish(g.take(1)...)
	g.save()
	tr.restart()
	tr.publish("a", "three")
	tr.restart()
	if got := tr.sessions(); len(got) != 1 {
		tr.Fatalf("sessions: %+v", got)
	}
	tr.group(filter).only("two", "three")
	x := tr.connect("x", lasting)
	x.only()
	same(tr, "existed", x.unsubscribe(filter), []bool{true})
	tr.noGroup("unsubscribed", filter)
	tr.restart()
	tr.noGroup("unsubscribed and restarted", filter)
}

// Whoever opens and closes a group's inbox, however, does not end the group.
func sharedLives(tr *trial) {
	const filter = "$share/g/a"
	tr.member("x", lasting, filter)
	tr.publish("a", "one")
	r := inbox.GroupReceiver(filter)
	tr.connectWith(r, inbox.OpenOptions{Resume: true, Expiry: inbox.ExpiryAtOnce}).close(inbox.ExpiryAtOnce)
	tr.connectWith(r, inbox.OpenOptions{Resume: true, Expiry: 1}).close(1)
	begin := time.Now()
	tr.connect("clock", lasting).close(1)
	tr.ends("clock", begin, 1)
	tr.connectWith(r, inbox.OpenOptions{Resume: true, Expiry: inbox.ExpiryAtOnce})
	tr.connectWith(r, inbox.OpenOptions{Resume: true, Expiry: inbox.ExpiryAtOnce})
	tr.restart()
	tr.publish("a", "two")
	tr.group(filter).only("one", "two")
}

func sharedNoRetained(tr *trial) {
	tr.append(retain("a", 1, "m"))
	c := tr.member("c", lasting, "$share/g/a", "$share/g/#")
	c.only()
	tr.group("$share/g/a").only()
	tr.group("$share/g/#").only()
}

// Members come and go and one stays: the group misses nothing and gets nothing
// twice, whoever reads its inbox.
func sharedChurn(tr *trial) {
	const filter = "$share/g/count"
	tr.member("stays", lasting, filter).close(lasting)
	counter := tr.startCounter("count")
	stop := make(chan struct{})
	var members sync.WaitGroup
	for i := range 3 {
		members.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				expiry := lasting * inbox.Expiry(n%2)
				c, err := tr.tryConnect(inbox.Receiver(fmt.Sprint("m", i)), inbox.OpenOptions{Expiry: expiry, Fresh: n%3 == 0})
				if err == nil {
					_, err = c.Subscribe(tr.ctx, inbox.Subscription{Filter: filter, QoS: 1})
				}
				if err == nil && n%4 == 0 {
					_, err = c.Unsubscribe(tr.ctx, filter)
				}
				if err == nil && n%5 == 0 {
					err = c.Close(tr.ctx, inbox.Ending{Expiry: expiry})
				}
				if err != nil {
					tr.Errorf("member %d: %v", i, err)
					return
				}
			}
		})
	}
	var got []inbox.Entry
	for range 10 {
		counter.further(tr, 50)
		g := tr.group(filter)
		page := g.take(30)
		got = append(got, page...)
		g.finish(page...)
		g.save()
	}
	close(stop)
	members.Wait()
	end := counter.end(tr)
	tr.restart()
	got = append(got, tr.group(filter).rest()...)
	if first, last := contiguous(tr, got); first != 0 || last != end-1 {
		tr.Fatalf("from %d to %d, want 0 to %d", first, last, end-1)
	}
}
