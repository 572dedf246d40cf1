package badger

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Bounds of what is read ahead: batches of so many bytes, and how many of them
// wait.
const (
	aheadBytes   = 256 << 10
	aheadBatches = 64
)

// ahead reads every key and value of a prefix on a goroutine of its own, before
// they are asked for.
type ahead struct {
	batches chan batch
	stop    chan struct{} // closed by close
	err     error         // set before batches is closed
}

// batch is some keys and values, one after the other.
type batch struct {
	bytes []byte
	ends  []uint32 // of each key and each value
}

func (b *batch) add(part []byte) {
	b.bytes = append(b.bytes, part...)
	b.ends = append(b.ends, uint32(len(b.bytes)))
}

// startAhead begins to read; close must be called in the end.
func startAhead(db *badger.DB, prefix []byte) *ahead {
	a := &ahead{batches: make(chan batch, aheadBatches), stop: make(chan struct{})}
	go func() {
		defer close(a.batches)
		a.err = db.View(func(txn *badger.Txn) error { return a.read(txn, prefix) })
	}()
	return a
}

// read sends what there is until the reader is closed.
func (a *ahead) read(txn *badger.Txn, prefix []byte) error {
	var b batch
	err := each(txn, prefix, func(k, v []byte) error {
		if len(b.bytes) > 0 && len(b.bytes)+len(k)+len(v) > aheadBytes {
			if !a.send(b) {
				return inbox.ErrClosed
			}
			b = batch{bytes: make([]byte, 0, aheadBytes), ends: make([]uint32, 0, len(b.ends)+len(b.ends)/8)}
		}
		b.add(k)
		b.add(v)
		return nil
	})
	if err == nil {
		a.send(b)
	}
	return err
}

// send reports whether the batch will be taken.
func (a *ahead) send(b batch) bool {
	select {
	case a.batches <- b:
		return true
	case <-a.stop:
		return false
	}
}

// each calls f with every key and value; they are valid only during the call.
func (a *ahead) each(f func(k, v []byte) error) error {
	for b := range a.batches {
		from := uint32(0)
		for i := 0; i < len(b.ends); i += 2 {
			key, value := b.ends[i], b.ends[i+1]
			if err := f(b.bytes[from:key], b.bytes[key:value]); err != nil {
				return err
			}
			from = value
		}
	}
	return a.err
}

// close ends the reading, however far it has come, and waits for it.
func (a *ahead) close() {
	close(a.stop)
	for range a.batches {
	}
}
