package hooks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks"
	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// What was acknowledged by another way, or deleted, while it waited to be written is not
// written once that is answered, and makes room; what was not is written in order. So it
// is after the connection too, and after its broker has crashed.
func TestWithdrawnIsNotWritten(t *testing.T) {
	all := numbers(0, 7)
	gone := []string{"0", "2", "3", "7"}
	ids := func(b *broker) (ids []inbox.MessageID) {
		for _, e := range b.inboxOf("r") {
			if slices.Contains(gone, string(e.Envelope.Payload)) {
				ids = append(ids, e.Envelope.ID)
			}
		}
		return ids
	}
	for door, take := range map[string]func(*broker, *mqtttest.Client) error{
		"acknowledged": func(b *broker, _ *mqtttest.Client) error { return b.acknowledge(ids(b)...) },
		"request": func(b *broker, c *mqtttest.Client) error {
			var texts []string
			for _, id := range ids(b) {
				texts = append(texts, `"`+id.String()+`"`)
			}
			c.Publish("$inbox/ack", `{"ids":[`+strings.Join(texts, ",")+`]}`, 0)
			mqtttest.Eventually(b.t, func() bool { return len(b.inboxOf("r")) == len(all)-len(gone) }, "acknowledged")
			return nil
		},
		"deleted": func(b *broker, _ *mqtttest.Client) error {
			for _, id := range ids(b) {
				if err := b.store.Delete(b.t.Context(), id, ""); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		for _, o := range []mqtttest.Options{v3("r"), v5("r"), saying(v5("r"), "inbox-mode", "pull")} {
			for _, qos := range []byte{1, 2} {
				t.Run(fmt.Sprint(door, " v", o.Version, o.UserProperties, " QoS ", qos), func(t *testing.T) {
					v, p := new(valves), &pumps{r: "r"}
					b := start(t, setting{
						Options: hooks.Options{Window: len(all) + 1}, Wrap: p.wrap, Listen: v.listen,
						Keep: keeping{History: []inbox.Kept{{Filter: "#"}}},
					})
					c := b.dial(manual(o))
					c.Subscribe("topic", qos)
					valve := v.last()
					valve.stop(c)
					tellAll(b, "topic", all, qos)
					p.await(t, len(all))
					if err := take(b, c); err != nil {
						t.Fatal(err)
					}
					valve.open()
					rest := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, s) })
					got := c.Collect(len(rest))
					wantPayloads(t, payloads(got), rest)
					if door == "request" {
						c.NextOn("$inbox/ack/answer") // behind what it has not acknowledged
					}

					tellAll(b, "topic", []string{"a", "b", "c", "d"}, qos) // there is as much room again
					more := c.Collect(len(gone))
					wantPayloads(t, payloads(more), []string{"a", "b", "c", "d"})
					b.crash("r") // nothing but what is stored
					c.Cut()
					b.awaitAway("r")
					back := o
					back.UserProperties = nil
					d := b.device(saying(back, "inbox-mode", "push")) // what is not stored as sent would wait
					for _, pk := range append(got, more...) {
						d.take(pk)
					}
					again := append(slices.Clone(rest), "a", "b", "c", "d")
					if qos == 2 {
						d.connect()
						d.until("d")
						wantPayloads(t, d.atOnce, again)
						return
					}
					d.o.ManualAck = false
					d.connect()
					wantPayloads(t, d.c.Payloads(len(again)), again)
					d.c.Ping()
					d.c.Silent(0)
				})
			}
		}
	}
}

// tellAll publishes messages, and returns when they are stored.
func tellAll(b *broker, topic string, texts []string, qos byte) {
	b.t.Helper()
	p := b.dial(clean("publisher"))
	for _, text := range texts {
		p.PublishAndWait(topic, text, qos)
	}
	p.Disconnect()
}

// inboxOf returns what is unread.
func (b *broker) inboxOf(r inbox.Receiver) []inbox.Entry {
	b.t.Helper()
	page, err := b.store.Pull(b.t.Context(), r, inbox.Query{Max: 1000, MaxBytes: 1 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	return page.Entries
}

// acknowledge makes messages of r read, as HTTP does.
func (b *broker) acknowledge(ids ...inbox.MessageID) error {
	_, err := b.store.Acknowledge(b.t.Context(), "r", inbox.Acknowledgement{IDs: ids})
	return err
}

// crash takes an inbox away from its connection, so that what was not stored by now
// never will be.
func (b *broker) crash(r inbox.Receiver) {
	b.t.Helper()
	in, resumed, err := b.store.Open(b.t.Context(), r, inbox.OpenOptions{Expiry: 3600, Resume: true})
	if err != nil || !resumed {
		b.t.Fatalf("resumed: %t, %v", resumed, err)
	}
	if err := in.Close(b.t.Context(), inbox.Ending{Expiry: 3600}); err != nil {
		b.t.Fatal(err)
	}
}

// What an earlier connection was sent, and waits to be written again: at QoS 2 its receiver
// may hold the packet id, and gets PUBREL in the place of the message.
func TestWithdrawnIsNotWrittenAgain(t *testing.T) {
	for _, o := range []mqtttest.Options{v3("r"), v5("r")} {
		for _, qos := range []byte{1, 2} {
			t.Run(fmt.Sprint("v", o.Version, " QoS ", qos), func(t *testing.T) {
				v, p := new(valves), &pumps{r: "r"}
				b := start(t, setting{Wrap: p.wrap, Listen: v.listen})
				d := b.device(o)
				d.connect()
				d.c.Subscribe("topic", qos)
				tellAll(b, "topic", numbers(0, 5), qos)
				sent := d.c.Collect(6)
				for _, pk := range sent {
					d.take(pk)
				}
				d.cut()

				release := p.holdReads()
				d.connect()
				valve := v.last()
				valve.stop(d.c)
				release()
				p.await(t, 6)
				var ids []inbox.MessageID
				for _, e := range b.inboxOf("r")[1:4] {
					ids = append(ids, e.Envelope.ID)
				}
				if err := b.acknowledge(ids...); err != nil {
					t.Fatal(err)
				}
				valve.open()

				var repeated []string
				var released []uint16
				for len(repeated) < 3 || qos == 2 && len(released) < 3 {
					pk, ok := d.c.Next(mqtttest.Deadline)
					if !ok {
						t.Fatalf("%q came again, %d were released", repeated, released)
					}
					switch pk.FixedHeader.Type {
					case packets.Publish:
						repeated = append(repeated, string(pk.Payload))
					case packets.Pubrel:
						released = append(released, pk.PacketID)
					}
				}
				wantPayloads(t, repeated, []string{"0", "4", "5"})
				if want := []uint16{sent[1].PacketID, sent[2].PacketID, sent[3].PacketID}; qos == 2 && !slices.Equal(released, want) {
					t.Errorf("released are %d, want %d", released, want)
				}
				d.c.Ping()
				d.c.Silent(0)
				b.crash("r")
				d.cut()
				d.connect() // nothing is known but that PUBREL was sent
				tellAll(b, "topic", []string{"last"}, 2)
				if qos == 2 {
					d.until("last")
					wantPayloads(t, d.atOnce, append(numbers(0, 5), "last"))
					return
				}
				wantPayloads(t, d.c.Payloads(4), []string{"0", "4", "5", "last"})
			})
		}
	}
}

// If it cannot be found out what was taken away, nothing of it is written: the connection
// ends, and the next one has what is left.
func TestWithdrawnCannotBeFoundOut(t *testing.T) {
	v, p := new(valves), &pumps{r: "r"}
	b := start(t, setting{Wrap: p.wrap, Listen: v.listen})
	c := b.dial(manual(v5("r")))
	c.Subscribe("topic", 2)
	valve := v.last()
	valve.stop(c)
	tellAll(b, "topic", numbers(0, 3), 2)
	p.await(t, 4)
	id := b.inboxOf("r")[0].Envelope.ID
	if err := b.acknowledge(id); err != nil {
		t.Fatal(err)
	}
	p.failReads(errors.New("disk gone"))
	valve.open()
	if code := c.WaitDisconnect(); code != packets.ErrUnspecifiedError.Code {
		t.Errorf("DISCONNECT %#x", code)
	}
	if pk, ok := c.Next(0); ok && pk.FixedHeader.Type == packets.Publish {
		t.Errorf("got %s", mqtttest.Describe(pk))
	}
	p.failReads(nil)
	b.awaitAway("r")
	d := b.device(v5("r"))
	d.connect()
	d.until("3")
	wantPayloads(t, d.atOnce, []string{"1", "2", "3"})
}

// A gap that was to be told with a message that is not written is told with the next one.
func TestGapOfWithdrawnIsToldWithTheNext(t *testing.T) {
	v, p := new(valves), &pumps{r: "r"}
	b := start(t, setting{Wrap: p.wrap, Listen: v.listen})
	c := b.dial(manual(saying(v5("r"), "inbox-metadata", "on")))
	c.Subscribe("topic", 1)
	valve := v.last()
	valve.stop(c)
	b.fill(1, func(int) *inbox.Envelope {
		return &inbox.Envelope{Topic: "topic", QoS: 1, Payload: []byte("lost"), Expiry: 1}
	})
	tellAll(b, "topic", numbers(0, 1), 1)
	p.await(t, 2)
	for _, e := range b.inboxOf("r") {
		if string(e.Envelope.Payload) != "0" {
			continue
		}
		if err := b.acknowledge(e.Envelope.ID); err != nil {
			t.Fatal(err)
		}
	}
	valve.open()
	wantPayloads(t, c.Payloads(1), []string{"1"})
	tellAll(b, "topic", []string{"2"}, 1)
	if pk := c.NextPublish(); !strings.HasPrefix(told(pk.Properties, "inbox-gap"), "1 expired ") {
		t.Errorf("got %s with the gap %q", mqtttest.Describe(pk), told(pk.Properties, "inbox-gap"))
	}
}
