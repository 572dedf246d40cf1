package hooks_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

// BenchmarkFanout is the rate at which messages of 256 bytes reach a thousand
// connected members of one group, who acknowledge at once: an operation is one
// delivery. The publisher has ten on their way, and waits every so often until
// everyone has everything, so that nobody has to read from disk.
func BenchmarkFanout(b *testing.B) {
	const members, burst = 1000, 100
	for _, c := range []struct {
		name    string
		options badger.Options
	}{
		{"references", badger.Options{StreamFrom: -1}},
		{"stream", badger.Options{Pull: []string{"a"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			br := startOnDisk(b, c.options)
			var sinks []*sink
			for i := range members {
				s, err := openSink(br.addr, fmt.Sprint("member-", i))
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				sinks = append(sinks, s)
			}
			publisher := br.conn(clean("publisher"))
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent*members < b.N; {
				n := min(burst, (b.N+members-1)/members-sent)
				errs := make(chan error, members)
				for _, s := range sinks {
					go func() { errs <- s.take(n) }()
				}
				publishMany(b, publisher, n)
				for range sinks {
					if err := <-errs; err != nil {
						b.Fatal(err)
					}
				}
				sent += n
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// sink is a subscriber that looks at nothing but packet ids, and allocates nothing.
type sink struct {
	net.Conn
	r    *bufio.Reader
	acks []byte
}

// openSink makes a session that is subscribed to a with QoS 1.
func openSink(addr, id string) (*sink, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &sink{Conn: conn, r: bufio.NewReader(conn)}
	connect := append([]byte{packets.Connect << 4, byte(12 + len(id)), 0, 4, 'M', 'Q', 'T', 'T', 4, 0, 0, 0, 0, byte(len(id))}, id...)
	subscribe := []byte{packets.Subscribe<<4 | 2, 6, 0, 1, 0, 1, 'a', 1}
	if _, err := conn.Write(append(connect, subscribe...)); err != nil {
		return nil, err
	}
	_, err = s.r.Discard(4 + 5) // CONNACK and SUBACK
	return s, err
}

// take reads and acknowledges n messages.
func (s *sink) take(n int) error {
	for n > 0 {
		header, err := s.r.ReadByte()
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(s.r) // as MQTT has it
		if err != nil {
			return err
		}
		if header>>4 != packets.Publish || length < 5 {
			return fmt.Errorf("%#x with %d bytes: %w", header, length, io.ErrUnexpectedEOF)
		}
		body, err := s.r.Peek(5)
		if err != nil {
			return err
		}
		s.acks = append(s.acks, packets.Puback<<4, 2, body[3], body[4])
		if _, err := s.r.Discard(int(length)); err != nil {
			return err
		}
		n--
		if n == 0 || s.r.Buffered() == 0 {
			if _, err := s.Write(s.acks); err != nil {
				return err
			}
			s.acks = s.acks[:0]
		}
	}
	return nil
}
