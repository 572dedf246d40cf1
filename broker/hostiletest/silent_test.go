package hostiletest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// silence opens links on which no whole CONNECT, or no WebSocket request, ever
// comes. The broker closes all of them.
func silence(t *testing.T, p *patient) {
	connect := encode(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect},
		Connect:     packets.ConnectParams{ProtocolName: []byte("MQTT"), ClientIdentifier: "half", Clean: true},
	}, 4)
	openings := []struct {
		address string
		first   []byte
	}{
		{p.Address, nil},
		{p.Address, connect[:1]},
		{p.Address, connect[:len(connect)-1]},
		{p.WebSocket, nil},
		{p.WebSocket, []byte("GET / HTTP/1.1\r\n")},
	}
	var all []net.Conn
	for range 40 {
		for _, o := range openings {
			all = append(all, open(t, o.address, o.first))
		}
	}
	for i, link := range all {
		if err := awaitEnd(link, connectTimeout+recovery); err != nil {
			t.Errorf("link %d (%q): %v", i, openings[i%len(openings)].first, err)
		}
	}
}

// halfOpen connects clients that then say nothing, or close their half of the
// link. Those with a keep alive lose their link; the others are taken over.
func halfOpen(t *testing.T, p *patient) {
	var silent []*mqtttest.Client
	for i := range 20 {
		silent = append(silent, mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: fmt.Sprintf("silent-%d", i), KeepAlive: 1, Clean: true}))
	}
	for i := range 20 {
		id := fmt.Sprintf("patient-%d", i)
		silent = append(silent, mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: id, Clean: true}))
		p.clean(t, id)
	}
	for range 20 {
		link := open(t, p.Address, encode(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Connect},
			Connect:     packets.ConnectParams{ProtocolName: []byte("MQTT"), ClientIdentifier: "half-closed", Clean: true},
		}, 4))
		if err := link.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := awaitEnd(link, recovery); err != nil {
			t.Errorf("half-closed: %v", err)
		}
	}
	for _, c := range silent {
		c.WaitClosed()
	}
}

// absurdLengths announces packets that are larger than the broker takes, or than
// the protocol knows, before and after CONNECT. The broker ends the link without
// waiting for the rest.
func absurdLengths(t *testing.T, p *patient) {
	for _, length := range [][]byte{
		{0xFF, 0xFF, 0xFF, 0x7F}, // the longest there is
		{0x81, 0x80, 0x80, 0x01}, // 2 MiB and 1
		{0xFF, 0xFF, 0xFF, 0xFF, 0x7F},
		{0x80, 0x80, 0x80, 0x80, 0x01},
	} {
		for _, first := range []byte{packets.Connect << 4, packets.Publish << 4, packets.Publish<<4 | 2, packets.Subscribe<<4 | 2, packets.Puback << 4} {
			start := append([]byte{first}, length...)
			if err := awaitEnd(open(t, p.Address, start), recovery); err != nil {
				t.Errorf("%x before CONNECT: %v", start, err)
			}
			c := mqtttest.Dial(t, p.Address, mqtttest.Options{ClientID: "absurd", Version: 5, Clean: true})
			c.SendRaw(start)
			c.WaitClosed()
		}
	}
}

// secondConnect is a violation [MQTT-3.1.0-2]. The session stays.
func secondConnect(t *testing.T, p *patient) {
	for version := byte(3); version <= 5; version++ {
		o := mqtttest.Options{ClientID: "twice", Version: version, SessionExpiry: 60}
		c := mqtttest.Dial(t, p.Address, o)
		c.Subscribe("twice", 1)
		c.Send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Connect},
			Connect:     packets.ConnectParams{ProtocolName: []byte("MQTT"), ClientIdentifier: "twice", Clean: true},
		})
		c.WaitClosed()
		again := mqtttest.Dial(t, p.Address, o)
		if version > 3 && !again.SessionPresent { // MQTT 3.1 does not tell
			t.Errorf("version %d: the session is gone", version)
		}
		again.Disconnect()
	}
	p.clean(t, "twice")
}

// open makes a link and sends its first bytes.
func open(t *testing.T, address string, first []byte) net.Conn {
	t.Helper()
	link, err := net.DialTimeout("tcp", address, mqtttest.Deadline)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	if _, err := link.Write(first); err != nil {
		t.Fatal(err)
	}
	return link
}

// awaitEnd reads until the broker has ended the link.
func awaitEnd(link net.Conn, within time.Duration) error {
	defer link.Close()
	if err := link.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, link); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("still open after %s", within)
	}
	return nil // closed or reset
}
