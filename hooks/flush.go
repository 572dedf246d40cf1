package hooks

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// keptUnwritten is the number of messages above which what notes them is given back when
// all is quiet.
const keptUnwritten = 512

// batch is what is written with one call, or a few: whole frames. It belongs to the flusher.
type batch struct {
	bytes     []byte
	done      int         // so many of them are written
	aliased   bool        // there may be topic aliases in it
	unwritten []unwritten // the messages of the inbox in it, in order
	written   []func()    // called when all of it is written, or cannot be
}

// flush writes what gathers until the outbound is closed and empty, or a write
// fails. It is a goroutine of the connection. A write that takes too long is
// ended by closing conn: a write deadline would do the same on TCP alone, for a
// WebSocket sets its own.
//
// What was taken away by then is not written: the last look is before each chunk.
func (o *outbound) flush(conn net.Conn) error {
	late := time.AfterFunc(o.timeout, func() { conn.Close() })
	defer late.Stop()
	late.Stop()
	var b batch
	defer func() {
		for _, f := range append(b.written, o.end()...) {
			f()
		}
	}()
	for {
		for _, f := range b.written {
			f()
		}
		if b = o.take(b); len(b.bytes) == 0 {
			return nil
		}
		o.relieve()
		for o.leaveOut(&b); b.done < len(b.bytes); o.leaveOut(&b) {
			n := min(len(b.bytes)-b.done, writeChunk)
			late.Reset(o.timeout)
			if _, err := conn.Write(b.bytes[b.done : b.done+n]); err != nil {
				return err
			}
			late.Stop()
			b.done += n
		}
	}
}

// take waits for something to write and swaps it for the buffers of what was
// written. It returns nothing at the end.
func (o *outbound) take(last batch) (b batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 && !o.closed {
		if cap(o.buf) > keptBuffer {
			o.buf = nil
		}
		if cap(last.bytes) > keptBuffer {
			last.bytes = nil
		}
		if cap(o.unwritten) > keptUnwritten {
			o.unwritten = nil
		}
		if cap(last.unwritten) > keptUnwritten {
			last.unwritten = nil
		}
		o.ready.Wait()
	}
	b.bytes, o.buf = o.buf, last.bytes[:0]
	b.unwritten, o.unwritten = o.unwritten, last.unwritten[:0]
	b.written, o.written = o.written, nil
	b.aliased = o.aliases.maximum > 0
	o.countLocked()
	o.room.Broadcast()
	return b
}

// countLocked has the server count what was appended since the last time, less what
// was left out.
func (o *outbound) countLocked() {
	atomic.AddInt64(&o.info.PacketsSent, o.packets)
	atomic.AddInt64(&o.info.MessagesSent, o.messages)
	atomic.AddInt64(&o.info.BytesSent, o.bytes)
	o.packets, o.messages, o.bytes = 0, 0, 0
}

// leaveOut takes out of a batch what was taken away from the inbox, of which nothing is
// written yet. Runs on the flusher, no lock held. Cost: two atomic loads at most; if
// something was taken away, reading the messages of the batch, and a copy of it if one of
// them is gone.
func (o *outbound) leaveOut(b *batch) {
	if len(b.unwritten) == 0 {
		return
	}
	seen := o.withdrawn()
	if b.unwritten[0].seen == seen { // none was looked at before it
		return
	}
	b.unwritten = slices.DeleteFunc(b.unwritten, func(u unwritten) bool { return int(u.at) < b.done })
	if len(b.unwritten) == 0 || b.unwritten[0].seen == seen {
		return
	}
	gone := o.withdraw(b.unwritten)
	for i := range b.unwritten {
		b.unwritten[i].seen = seen
	}
	if len(gone) == 0 {
		return
	}
	e := edit{gone: gone, aliased: b.aliased}
	b.bytes, b.unwritten = e.apply(b.bytes, int(b.unwritten[0].at), b.unwritten)
	o.leftOut(&e)
}

// leftOut counts what was left out of a batch, and has its topic aliases told by what
// waits behind it, which relies on them. Cost: a copy of that, if there are any.
func (o *outbound) leftOut(e *edit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(e.untold) > 0 {
		o.buf, o.unwritten = e.apply(o.buf, 0, o.unwritten)
		o.aliases.forget(e.untold)
	}
	o.packets -= e.packets
	o.messages -= e.packets
	o.bytes -= e.bytes
	o.countLocked()
}

// end takes nothing more to be written, and returns what is to be called since it never will be.
func (o *outbound) end() (written []func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written, o.written, o.flushed = o.written, nil, true
	return written
}
