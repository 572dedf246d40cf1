package hooks

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// opened is an outbound after CONNACK, of an MQTT 5 client or an older one.
func opened(t testing.TB, limit int, v5 bool) *outbound {
	t.Helper()
	o := newOutbound(limit, time.Second, new(system.Info))
	o.speak(v5)
	if _, err := o.write([]byte{0x20, 2, 0, 0}); err != nil {
		t.Fatal(err)
	}
	return o
}

func sized(n int) *publication {
	return &publication{Envelope: &inbox.Envelope{Topic: "t", Payload: make([]byte, n)}}
}

func TestOutboundTakesNothingBeforeConnack(t *testing.T) {
	o := newOutbound(1000, time.Second, new(system.Info))
	o.speak(true)
	o.ack(packets.Puback, 1, 0)
	o.farewell(0x8E)
	if o.offer(sized(1)) {
		t.Error("a message is taken before CONNACK")
	}
	for _, p := range [][]byte{{0x30, 3, 0, 1, 't'}, {0xE0, 0}, {0x20, 3, 0, 0x87, 0}, {0xD0, 0}} {
		if _, err := o.write(p); err != nil {
			t.Fatal(err)
		}
	}
	if want := []byte{0x20, 3, 0, 0x87, 0}; string(o.buf) != string(want) {
		t.Errorf("%x is sent before an accepting CONNACK, want %x alone", o.buf, want)
	}
	if _, err := o.write([]byte{0x20, 3, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if !o.offer(sized(1)) {
		t.Error("no message is taken after CONNACK")
	}
}

func TestOutboundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opened(t, 1000, false)
		for o.offer(sized(100)) {
			if len(o.buf) > 1000 {
				t.Fatalf("%d bytes wait, the limit is 1000", len(o.buf))
			}
		}

		sent := make(chan error, 2)
		go func() { sent <- o.publish(sized(100)) }()
		go func() { _, err := o.write(make([]byte, 100)); sent <- err }()
		synctest.Wait()
		if len(sent) > 0 {
			t.Fatal("a writer did not wait for room")
		}
		o.take(batch{})
		synctest.Wait()
		if len(sent) != 2 {
			t.Fatal("a writer waits although there is room")
		}

		o.take(batch{})
		if err := o.publish(sized(5000)); err != nil || len(o.buf) < 5000 {
			t.Errorf("a large message does not pass alone: %v", err)
		}
		go func() { sent <- o.publish(sized(1)) }()
		synctest.Wait()
		o.close()
		synctest.Wait()
		<-sent
		<-sent
		if err := <-sent; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a writer got %v from a closed outbound", err)
		}
	})
}

// Between hold and SUBACK the pump waits, what is offered is kept aside, and
// everything else goes on.
func TestOutboundHoldsMessagesUntilSuback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opened(t, 1000, false)
		o.take(batch{})
		o.hold()
		published := make(chan error)
		go func() { published <- o.publish(sized(1)) }()
		for n := 0; o.offer(sized(100)); n += 100 {
			if n > 1000 {
				t.Fatal("more than the limit is kept aside")
			}
		}
		o.ack(packets.Puback, 1, 0)
		synctest.Wait()
		if len(o.buf) != 4 {
			t.Fatalf("%x waits to be written, want PUBACK alone", o.buf)
		}
		if _, err := o.write([]byte{0x90, 3, 0, 1, 0}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := o.buf[4:]; got[0] != 0x90 || got[5] != 0x30 {
			t.Errorf("%x waits to be written, want SUBACK and then messages", got)
		}
		o.take(batch{})
		if err := <-published; err != nil {
			t.Error(err)
		}

		o.hold() // and no SUBACK comes
		go func() { published <- o.publish(sized(1)) }()
		synctest.Wait()
		o.release()
		if err := <-published; err != nil {
			t.Error(err)
		}
		o.hold()
		go func() { published <- o.publish(sized(1)) }()
		synctest.Wait()
		o.close()
		if err := <-published; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a writer got %v from a closed outbound", err)
		}
	})
}

// Whoever was refused room and wants to come again is told once when there is.
func TestOutboundRelief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opened(t, 1000, false)
		relief := make(chan struct{}, 10)
		o.onRelief(func() { relief <- struct{}{} })
		o.relieve()
		for o.offer(sized(100)) {
		}
		o.take(batch{})
		o.relieve()
		if len(relief) > 0 {
			t.Fatal("relief without a refusal, or for one who does not come again")
		}
		for o.offerLater(sized(100)) {
		}
		o.offerLater(sized(100))
		writer, reader := net.Pipe()
		flushed := make(chan error, 1)
		go func() { flushed <- o.flush(writer) }()
		go io.Copy(io.Discard, reader)
		<-relief
		o.close()
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		writer.Close()
		if len(relief) > 0 {
			t.Error("told more than once")
		}
		if o.offerLater(sized(1)) {
			t.Error("a closed outbound takes a message")
		}
	})
}

// Whoever wants to know when a message is written is told once: then, or when it
// never will be.
func TestOutboundTellsWhenItIsWritten(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			o := opened(t, 1000, false)
			o.take(batch{})
			told := make(chan struct{}, 10)
			tell := func() { told <- struct{}{} }
			writer, reader := net.Pipe()
			flushed := make(chan error, 1)
			go func() { flushed <- o.flush(writer) }()
			if err := o.publishThen(sized(100), tell); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := o.publishThen(sized(100), tell); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(told) > 0 {
				t.Fatal("told before anybody has read")
			}
			if reads {
				go io.Copy(io.Discard, reader)
				<-told
				<-told
				o.close()
			} else {
				reader.Close()
			}
			if err := <-flushed; (err == nil) != reads {
				t.Error(err)
			}
			if want := map[bool]int{true: 0, false: 2}[reads]; len(told) != want {
				t.Errorf("told %d times at the end, want %d", len(told), want)
			}
			writer.Close()
			if o.publishThen(sized(1), tell) == nil {
				t.Error("a message is taken that will never be written")
			}
		})
	}
}

// flush ends a connection that takes nothing, and gathers what comes meanwhile.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		o := opened(t, 1000, true)
		ended := make(chan error, 1)
		go func() { ended <- o.flush(near) }()
		synctest.Wait() // the flusher writes CONNACK and waits
		o.ack(packets.Puback, 1, 0)
		o.ack(packets.Puback, 2, 0)

		b := make([]byte, 100)
		if n, err := far.Read(b); err != nil || n != 4 {
			t.Errorf("read %x, %v, want CONNACK", b[:n], err)
		}
		if n, err := far.Read(b); err != nil || n != 8 {
			t.Errorf("read %x, %v, want two acknowledgements at once", b[:n], err)
		}
		synctest.Wait()
		o.ack(packets.Puback, 3, 0)
		before := time.Now()
		if err := <-ended; err == nil || time.Since(before) != time.Second {
			t.Errorf("ended with %v after %s, want a timeout after 1 s", err, time.Since(before))
		}
		if sent := o.info.PacketsSent; sent != 3 {
			t.Errorf("%d packets counted, want 3", sent)
		}
	})
}

// Large buffers are given back when all is quiet.
func TestFlushKeepsNoLargeBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			b := make([]byte, 64<<10)
			for {
				if _, err := far.Read(b); err != nil {
					return
				}
			}
		}()
		o := opened(t, 1<<20, true)
		ended := make(chan error, 1)
		go func() { ended <- o.flush(near) }()
		for range 2 {
			if err := o.publish(sized(100 << 10)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if c := cap(o.buf); c > keptBuffer {
				t.Errorf("%d bytes are kept", c)
			}
		}
		o.close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		near.Close()
	})
}
