package hooks

import (
	"bufio"
	"io"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// inbound is the reading half of a link: it finds where frames begin and end. It
// belongs to the connection's read goroutine.
type inbound struct {
	buf       *bufio.Reader
	ahead     []byte        // bytes of the frame at hand that came before those in buf
	seen      propertySet   // properties of the PUBLISH at hand, or of the will at CONNECT
	pass      int           // bytes of the frame at hand that still go to the MQTT library
	connected bool          // CONNECT has gone to the library
	old       bool          // it was of MQTT 3.1
	idle      time.Duration // the most between two packets of the client; 0 for no limit
	armed     time.Time     // the deadline that is set
	maxPacket int           // bytes, 0 for no limit
	acked     bool          // acknowledgements have come that are not saved yet
}

// peekHeader returns the fixed header of the next frame and the length of the
// whole frame. It waits for it.
func (in *inbound) peekHeader() (header []byte, frame int, err error) {
	remaining := 0
	for n := 2; n <= 5; n++ {
		header, err = in.buf.Peek(n)
		if err != nil {
			return nil, 0, err
		}
		last := header[n-1]
		remaining |= int(last&0x7F) << (7 * (n - 2))
		if last&0x80 == 0 {
			return header, n + remaining, nil
		}
	}
	return nil, 0, packets.ErrMalformedVariableByteInteger
}

// look returns as much of a frame as its inspection needs. It waits for it. What
// is more than the buffer holds, which neither small messages nor payloads are,
// is kept beside it.
func (in *inbound) look(header, frame int, v5 bool) ([]byte, error) {
	b, err := in.buf.Peek(min(frame, readBuffer))
	for err == nil {
		n := reach(b, header, frame, v5)
		if n <= len(b) {
			return b, nil
		}
		// Memory grows with what has come, not with what is announced.
		var more []byte
		more, err = io.ReadAll(io.LimitReader(in.buf, int64(n-len(in.ahead))))
		in.ahead = append(in.ahead, more...)
		if err == nil && len(in.ahead) < n {
			err = io.ErrUnexpectedEOF
		}
		b = in.ahead
	}
	return nil, err
}

// Read reads on in the frame at hand.
func (in *inbound) Read(p []byte) (int, error) {
	if len(in.ahead) > 0 {
		n := copy(p, in.ahead)
		if in.ahead = in.ahead[n:]; len(in.ahead) == 0 {
			in.ahead = nil
		}
		return n, nil
	}
	return in.buf.Read(p)
}

// skip leaves out a frame that has been looked at as a whole.
func (in *inbound) skip(frame int) error {
	if in.ahead != nil {
		in.ahead = nil
		return nil
	}
	_, err := in.buf.Discard(frame)
	return err
}
