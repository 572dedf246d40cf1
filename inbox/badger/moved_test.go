package badger

import (
	"reflect"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A state that is moved for a receiver who is away keeps the packet ids that it may hold.
func TestMovedStateKeepsPacketIDs(t *testing.T) {
	open := func() []inbox.Delivery {
		return []inbox.Delivery{
			{Position: 2, PacketID: 12, QoS: 1},
			{Position: 3, PacketID: 13, QoS: 2},
			{Position: 4, PacketID: 14, QoS: 2, Released: true},
			{Position: 5, PacketID: 15}, // stored by an earlier version
			{Position: 7, PacketID: 17, QoS: 2},
		}
	}
	was := progressRecord{
		State:   inbox.State{Sent: 8, LastID: 18, Open: open(), Releasing: []uint16{9}},
		waiting: inbox.Spans{{After: 4, Through: 6}, {After: 7, Through: 8}},
	}
	for away, want := range map[bool]inbox.State{
		true:  {Sent: 8, LastID: 18, Open: open()[4:], Releasing: []uint16{9, 13, 14, 15}},
		false: was.State, // what is on its way is the owner's
	} {
		got := was.moved(6, away)
		if !reflect.DeepEqual(got.State, want) || !reflect.DeepEqual(got.waiting, was.waiting[1:]) {
			t.Errorf("away %t: got %+v, want %+v", away, got, want)
		}
		if !reflect.DeepEqual(was.Open, open()) {
			t.Errorf("away %t: the state that was moved has changed: %+v", away, was.Open)
		}
	}
}
