package hooks_test

import (
	"net"
	"sync"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/mqtt-inbox/mqtt-inbox/hooks/mqtttest"
)

// valves are the broker's connections, whose writes a test can hold up.
type valves struct {
	mu   sync.Mutex // guards what follows
	all  []*valve
	shut bool // those that come are
}

// shutNew has the connections that come be shut, or open.
func (v *valves) shutNew(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = shut
}

// valve is one connection. What a write has begun with goes out when it is opened.
type valve struct {
	net.Conn
	begun chan struct{} // a write waits
	ended chan struct{} // the broker has closed it
	once  sync.Once

	mu   sync.Mutex    // guards what follows
	shut chan struct{} // closed when it is opened; nil while it is open
}

// valveListener is a listener whose connections have valves.
type valveListener struct {
	net.Listener
	valves *valves
}

func (l valveListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &valve{Conn: conn, begun: make(chan struct{}, 1), ended: make(chan struct{})}
	l.valves.mu.Lock()
	defer l.valves.mu.Unlock()
	if l.valves.shut {
		v.close()
	}
	l.valves.all = append(l.valves.all, v)
	return v, nil
}

func (v *valves) listen(l net.Listener) net.Listener { return valveListener{l, v} }

// last returns the connection that was accepted last.
func (v *valves) last() *valve {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[len(v.all)-1]
}

func (v *valve) Write(p []byte) (int, error) {
	v.mu.Lock()
	shut := v.shut
	v.mu.Unlock()
	if shut != nil {
		select {
		case v.begun <- struct{}{}:
		case <-v.ended:
		}
		select {
		case <-shut:
		case <-v.ended:
			return 0, net.ErrClosed
		}
	}
	return v.Conn.Write(p)
}

func (v *valve) Close() error {
	v.once.Do(func() { close(v.ended) })
	return v.Conn.Close()
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.shut)
	v.shut = nil
}

// fail has what is being written fail, and what follows. What the client sends is read.
func (v *valve) fail() { v.once.Do(func() { close(v.ended) }) }

// stop holds up the writes of a client's connection: the answer to a ping is being written.
func (v *valve) stop(c *mqtttest.Client) {
	v.close()
	c.Send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}})
	<-v.begun
}
