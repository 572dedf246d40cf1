package killtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// flights are the messages of one publisher that are on their way, in the order
// of sending. They belong to one goroutine.
type flights struct {
	run       *run
	publisher int
	padding   string
	lastID    uint16
	list      []flight
}

type flight struct {
	message  Message
	id       uint16
	released bool // PUBREC came
}

// nextID returns the next packet id that is not in flight.
func (f *flights) nextID() uint16 {
	for {
		if f.lastID++; f.lastID != 0 && !f.uses(f.lastID) {
			return f.lastID
		}
	}
}

func (f *flights) uses(id uint16) bool { return f.find(id) >= 0 }

func (f *flights) find(id uint16) int {
	return slices.IndexFunc(f.list, func(x flight) bool { return x.id == id })
}

// send buffers the publisher's next message, unless the sending has ended.
func (f *flights) send(c *conn, id uint16) (sent bool, err error) {
	m, ok := f.run.ledger.Send(f.publisher)
	if !ok {
		return false, nil
	}
	x := flight{message: m, id: id}
	f.list = append(f.list, x)
	return true, c.Buffer(f.packet(x))
}

// sendAgain buffers everything that is in flight, as a client does that resumes
// its session [MQTT-4.4.0-1].
func (f *flights) sendAgain(c *conn) error {
	for _, x := range f.list {
		pk := f.packet(x)
		if x.released {
			pk = packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel}, PacketID: x.id}
		} else {
			pk.FixedHeader.Dup = true // [MQTT-3.3.1-1]
			f.run.ledger.SendAgain(x.message)
		}
		if err := c.Buffer(pk); err != nil {
			return err
		}
	}
	return c.Flush()
}

func (f *flights) packet(x flight) packets.Packet {
	return packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: f.run.QoS},
		TopicName:   topic(f.publisher),
		PacketID:    x.id,
		Payload:     fmt.Appendf(nil, "%d %d %s", x.message.Publisher, x.message.Number, f.padding),
	}
}

// forget gives up everything that is in flight.
func (f *flights) forget() {
	for _, x := range f.list {
		f.run.ledger.GiveUp(x.message)
	}
	f.list = nil
}

// answer takes an acknowledgement of the broker and buffers the PUBREL that
// one may need.
func (f *flights) answer(c *conn, pk packets.Packet) error {
	i, kind := f.find(pk.PacketID), pk.FixedHeader.Type
	switch {
	case kind == packets.Pubrec && i >= 0 && pk.ReasonCode < 0x80:
		if j := slices.IndexFunc(f.list, func(x flight) bool { return !x.released }); j >= 0 && j < i {
			f.run.ledger.Violate("p%d: PUBREC out of order", f.publisher) // [MQTT-4.6.0-3]
		}
		if !f.list[i].released {
			f.list[i].released = true
			f.run.ledger.Acknowledged(f.list[i].message) // from here on the broker owes it
		}
		f.run.trigger.passed(pubrec)
		return c.Buffer(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pubrel}, PacketID: pk.PacketID})
	case i < 0:
		f.run.ledger.Violate("p%d: %s for a message that is not in flight", f.publisher, mqtttest.Describe(pk))
		return nil
	case pk.ReasonCode >= 0x80:
		f.run.ledger.GiveUp(f.list[i].message)
		f.list = slices.Delete(f.list, i, i+1)
		return nil
	case kind == packets.Puback && i > 0:
		f.run.ledger.Violate("p%d: PUBACK out of order", f.publisher) // [MQTT-4.6.0-2]
	}
	if kind == packets.Puback {
		f.run.ledger.Acknowledged(f.list[i].message)
	}
	f.list = slices.Delete(f.list, i, i+1)
	f.run.trigger.passed(puback)
	return nil
}

// topic is where a publisher sends.
func topic(publisher int) string { return fmt.Sprintf("load/%d", publisher) }

// parse returns the name of a received message.
func parse(payload []byte) (Message, error) {
	words := strings.SplitN(string(payload), " ", 3)
	if len(words) != 3 {
		return Message{}, fmt.Errorf("payload %.20q is not of this run", payload)
	}
	publisher, err := strconv.Atoi(words[0])
	if err != nil {
		return Message{}, fmt.Errorf("parse publisher: %w", err)
	}
	number, err := strconv.Atoi(words[1])
	if err != nil {
		return Message{}, fmt.Errorf("parse number: %w", err)
	}
	return Message{publisher, number}, nil
}
