package hooks

import (
	"testing"
	"testing/synctest"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// A publisher that does not read its acknowledgements is made to wait, in every
// version, and one that has too many messages on their way before MQTT 5.
func TestAdmitBoundsAcks(t *testing.T) {
	for _, v5 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := opened(t, 100, v5)
			for len(o.buf) <= 100 {
				if !o.admit(packets.Puback, 1, 5) {
					t.Fatal("not admitted")
				}
				o.settle(packets.Puback, 1, 0, inbox.MessageID{})
			}
			admitted := make(chan bool, 1)
			go func() { admitted <- o.admit(packets.Puback, 1, 5) }()
			synctest.Wait()
			if len(admitted) > 0 {
				t.Fatal("admitted although acknowledgements pile up")
			}
			o.take(batch{})
			if !<-admitted {
				t.Error("not admitted although there is room")
			}
			for range 4 {
				o.admit(packets.Puback, 1, 5)
			}
			go func() { admitted <- o.admit(packets.Puback, 1, 5) }()
			synctest.Wait()
			if v5 {
				if <-admitted {
					t.Error("a sixth message is admitted")
				}
				return
			}
			if len(admitted) > 0 {
				t.Fatal("a sixth message did not wait")
			}
			o.settle(packets.Puback, 1, 0, inbox.MessageID{})
			<-admitted
		})
	}
}

// A QoS 2 message counts once, from its first PUBLISH to PUBCOMP or a refusal.
func TestAdmitCountsQoS2Once(t *testing.T) {
	o := opened(t, 1000, true)
	admit := func(id uint16) bool {
		admitted := o.admit(packets.Pubrec, id, 2)
		if admitted {
			o.settle(packets.Pubrec, id, 0, inbox.MessageID{})
		}
		return admitted
	}
	for _, id := range []uint16{1, 1, 2, 1} {
		if !admit(id) {
			t.Errorf("message %d is not admitted", id)
		}
	}
	if admit(3) || o.admit(packets.Puback, 1, 2) {
		t.Error("a third message is admitted")
	}
	o.complete(1, 0)
	o.complete(7, 0x92) // of an earlier connection
	if !o.admit(packets.Pubrec, 3, 2) || o.admit(packets.Pubrec, 4, 2) {
		t.Error("PUBCOMP does not make room for one")
	}
	o.settle(packets.Pubrec, 3, 0x97, inbox.MessageID{})
	if !admit(4) {
		t.Error("a refusal does not make room")
	}
}

// A client that sends what is to be answered, and does not read, is made to wait.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opened(t, 100, false)
		for len(o.buf) <= 100 {
			o.drain()
			o.complete(1, 0)
		}
		drained := make(chan struct{})
		go func() { o.drain(); close(drained) }()
		synctest.Wait()
		select {
		case <-drained:
			t.Fatal("did not wait although answers pile up")
		default:
		}
		o.take(batch{})
		<-drained
	})
}
