package hooks

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// steps is a connection that keeps what is written, and lets a write begin when it is told.
type steps struct {
	net.Conn
	sent []byte
	next chan struct{}
}

func (s *steps) Write(p []byte) (int, error) {
	s.sent = append(s.sent, p...) // from here on it is on its way
	<-s.next
	return len(p), nil
}

func (s *steps) Close() error { return nil }

// Of what is taken away at any moment nothing is written any more of which no write has
// begun. Everything else is, once and in order, with its topic.
func TestFlushLeavesOut(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // any will do
				v5 := r.IntN(4) > 0
				o := opened(t, 1<<30, v5)
				if v5 {
					o.alias(uint16(r.IntN(20)), 0)
				}
				taken := map[inbox.Position]int{} // how much was on its way when it was taken away
				var count uint64
				o.onWithdrawal(func() uint64 { return count }, func(waiting []unwritten) map[inbox.Position]struct{} {
					gone := map[inbox.Position]struct{}{}
					for i := range waiting {
						if _, ok := taken[waiting[i].position]; ok {
							gone[waiting[i].position] = struct{}{}
						}
					}
					return gone
				})
				conn := &steps{next: make(chan struct{})}
				flushed := make(chan error, 1)
				go func() { flushed <- o.flush(conn) }()
				synctest.Wait() // CONNACK

				topics := map[int]string{}
				var last inbox.Position
				for range 300 {
					switch n := r.IntN(10); {
					case n < 6:
						last++
						payload := strconv.Itoa(int(last)) + " " + strings.Repeat("x", r.IntN(2)*r.IntN(2)*r.IntN(60_000))
						p := &publication{
							Envelope: &inbox.Envelope{Topic: fmt.Sprint("topic/", r.IntN(25)), Payload: []byte(payload), ContentType: randomText(r, 130)},
							grant:    inbox.Grant{QoS: byte(r.IntN(3))}, packetID: uint16(last),
						}
						topics[int(last)] = p.Topic
						switch {
						case p.grant.QoS > 0:
							p.position, p.seen = last, count
							if err := o.publish(p); err != nil {
								t.Fatal(err)
							}
						case v5:
							writes(t, o, p)
						default:
							o.offer(p)
						}
					case n < 8:
						select {
						case conn.next <- struct{}{}:
						default: // nothing waits to be written
						}
					default:
						count++
						for range 5 {
							p := last - inbox.Position(r.IntN(40))
							if _, ok := taken[p]; !ok {
								taken[p] = len(conn.sent)
							}
						}
					}
					synctest.Wait()
				}
				o.close()
				close(conn.next)
				if err := <-flushed; err != nil {
					t.Fatal(err)
				}
				n := checkSent(t, conn.sent, v5, topics, taken)
				if got := o.info.MessagesSent; got != n {
					t.Errorf("%d messages are counted, want %d", got, n)
				}
			})
		})
	}
}

// checkSent checks what was sent after CONNACK, and returns how many messages the MQTT
// library has not counted.
func checkSent(t *testing.T, sent []byte, v5 bool, topics map[int]string, taken map[inbox.Position]int) (n int64) {
	t.Helper()
	version := byte(4)
	if v5 {
		version = 5
	}
	told, arrived := resolver{}, map[int]bool{}
	last := 0
	for at := 4; at < len(sent); {
		size := frameSize(sent[at:])
		pk := decodeFrame(t, sent[at:at+size], version)
		text, _, _ := strings.Cut(string(pk.Payload), " ")
		p, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if topic := told.resolve(t, pk); topic != topics[p] {
			t.Errorf("message %d has topic %q, want %q", p, topic, topics[p])
		}
		if begun, ok := taken[inbox.Position(p)]; ok && pk.FixedHeader.Qos > 0 && at >= begun {
			t.Errorf("message %d is written from %d on, and was taken away when %d were", p, at, begun)
		}
		if p <= last {
			t.Errorf("message %d is behind %d", p, last)
		}
		if pk.FixedHeader.Qos > 0 || !v5 {
			n++
		}
		arrived[p], last = true, p
		at += size
	}
	for p := range topics {
		if _, gone := taken[inbox.Position(p)]; !gone && !arrived[p] {
			t.Errorf("message %d is missing", p)
		}
	}
	return n
}

// A message that is left out would have told an alias, on which those rely that wait behind
// the batch.
func TestFlushLeavesOutAnAlias(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opened(t, 1<<30, true)
		o.alias(10, 0)
		taken := map[inbox.Position]int{}
		o.onWithdrawal(func() uint64 { return uint64(len(taken)) }, func([]unwritten) map[inbox.Position]struct{} {
			return map[inbox.Position]struct{}{2: {}}
		})
		conn := &steps{next: make(chan struct{})}
		flushed := make(chan error, 1)
		go func() { flushed <- o.flush(conn) }()
		topics := map[int]string{1: "first", 2: "second", 3: "second", 4: "second", 5: "second"}
		publish := func(n, size int) {
			payload := strconv.Itoa(n) + " " + strings.Repeat("x", size)
			err := o.publish(&publication{
				Envelope: &inbox.Envelope{Topic: topics[n], Payload: []byte(payload)},
				grant:    inbox.Grant{QoS: 1}, position: inbox.Position(n), packetID: uint16(n),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // CONNACK
		publish(1, writeChunk)
		publish(2, 0)
		conn.next <- struct{}{} // the first chunk
		synctest.Wait()
		publish(3, 0)
		taken[2] = len(conn.sent)
		conn.next <- struct{}{}
		synctest.Wait()
		publish(4, 0)
		publish(5, 0)
		o.close()
		close(conn.next)
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		checkSent(t, conn.sent, true, topics, taken)
		if n := strings.Count(string(conn.sent), "second"); n != 2 {
			t.Errorf("the topic is told %d times, want once without an alias and once with it", n)
		}
	})
}
