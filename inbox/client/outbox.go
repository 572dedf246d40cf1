package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// What an [Outbox] takes if nothing else is said.
const (
	DefaultOutboxMessages = 10_000
	DefaultOutboxBytes    = 64 << 20
	DefaultMaxPacket      = 880 << 10 // the longest packet that a broker takes, unless it was told otherwise
)

// OutboxOptions say how an [Outbox] is opened. The zero value is good.
type OutboxOptions struct {
	MaxMessages int   // messages that wait; 0 for DefaultOutboxMessages
	MaxBytes    int64 // that they take in files; 0 for DefaultOutboxBytes
	MaxPacket   int   // bytes of one message as a packet; 0 for DefaultMaxPacket

	// Lost is told of each message that leaves the outbox without having been
	// acknowledged. It is called by the goroutine that sends, which waits for it. Nil
	// leaves it at the log.
	Lost func(Lost)

	Log *slog.Logger // nil for slog.Default()
}

// Lost is a message that will not be sent any more.
type Lost struct {
	Name    string        // empty if the file is damaged
	Message *paho.Publish // nil if the file is damaged
	File    string        // where a damaged file is now

	// Err is why: a RefusedError that is final, paho.ErrInvalidArguments, ErrExpired or
	// ErrDamaged.
	Err error
}

// Outbox is a directory of messages that wait to be sent. A message is on stable
// storage when [Outbox.Add] returns, and stays until the broker has acknowledged it,
// over crashes of the program, of its machine and of the broker.
//
// A message has a name, which goes with it as the user property [PropertyName]. It is
// sent again under that name, and the broker stores it once, so long as the client
// keeps its client id and nobody else may use that, see [inbox.Store].
//
// Messages are sent in the order in which they were added, one after the other: the
// next when the one before is acknowledged. One that the broker will never take, or
// that has expired, makes way for the next, see [OutboxOptions.Lost]. The message expiry
// interval of a message counts from when it was added.
//
// [Outbox.Run] does the sending, on the caller's goroutine. All methods may be called
// concurrently.
type Outbox struct {
	dir  string
	o    OutboxOptions
	lock lock

	wake   chan struct{} // holds one: there may be more to send
	closed chan struct{}

	mu      sync.Mutex // guards what follows
	waiting []*waiting // in the order of their numbers, but for calls that were made at the same time
	count   int        // messages that are kept, those that are being written among them
	bytes   int64
	last    uint64                  // the number of the last file
	cancel  context.CancelCauseFunc // of Run; nil while there is none
	ended   bool

	users sync.WaitGroup // Run, and messages that are being added; none is added after ended
}

// waiting is one message in the outbox.
type waiting struct {
	number uint64
	size   int64
	told   chan outcome // holds one; nil if nobody waits for it
}

// outcome is what became of a message.
type outcome struct {
	receipt Receipt
	err     error
}

// OpenOutbox opens the outbox in a directory, and makes that if there is none. Files of
// messages that a crash has left incomplete, and that were promised to nobody, are
// removed. Error: ErrInUse while another process has it open.
func OpenOutbox(dir string, o OutboxOptions) (*Outbox, error) {
	if o.MaxMessages < 0 || o.MaxBytes < 0 || o.MaxPacket < 0 {
		return nil, errors.New("open the outbox: a limit is below 0")
	}
	if o.MaxMessages == 0 {
		o.MaxMessages = DefaultOutboxMessages
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultOutboxBytes
	}
	if o.MaxPacket == 0 {
		o.MaxPacket = DefaultMaxPacket
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	held, all, last, err := openOutboxDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	b := &Outbox{
		dir: dir, o: o, lock: held, waiting: all, count: len(all), last: last,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	for _, w := range all {
		b.bytes += w.size
	}
	return b, nil
}

// Add keeps a message until it is sent, and returns its name. When it returns, the
// message is on stable storage; it costs two syncs of the disk. The message is a copy.
//
// It gets a name, unless it has one: then who is not sure whether a message was added
// may add it again. It must be of QoS 1 or 2; a topic alias does not outlive a
// connection. Errors: ErrFull, ErrTooLarge, ErrInvalid, ErrClosed, and then the message will
// not be sent; or those of the file system, and then it may be sent after all by who opens
// the outbox next: its file may be there, and not have been removed either.
func (b *Outbox) Add(p *paho.Publish) (name string, err error) {
	return b.add(p, nil)
}

// Publish adds a message and returns when the broker has acknowledged it, which takes
// somebody who calls Run. If ctx ends before, the message stays and will be sent all the
// same; the receipt has its name, as always after it was added. Errors: those of Add,
// of Lost, ErrClosed, or the context's.
func (b *Outbox) Publish(ctx context.Context, p *paho.Publish) (Receipt, error) {
	told := make(chan outcome, 1)
	name, err := b.add(p, told)
	if err != nil {
		return Receipt{}, err
	}
	select {
	case end := <-told:
		return end.receipt, end.err
	case <-ctx.Done():
		return Receipt{Name: name}, fmt.Errorf("wait for the acknowledgement: %w", ctx.Err())
	case <-b.closed:
		return Receipt{Name: name}, fmt.Errorf("wait for the acknowledgement: %w", ErrClosed)
	}
}

func (b *Outbox) add(p *paho.Publish, told chan outcome) (name string, err error) {
	q, name := named(p)
	data, err := encodeWaiting(q, time.Now())
	if err != nil {
		return "", fmt.Errorf("keep a message: %w", err)
	}
	w := &waiting{size: int64(len(data)), told: told}
	if err := b.reserve(w, len(data)-waitingHeader); err != nil {
		return "", fmt.Errorf("keep a message: %w", err)
	}
	defer b.users.Done()
	if err := writeFile(b.path(w), data); err != nil {
		b.forget(w)
		_ = os.Remove(b.path(w)) // it may be there, and only its name not synced
		return "", fmt.Errorf("keep a message: %w", err)
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return name, nil
}

// reserve takes a number and room for a message.
func (b *Outbox) reserve(w *waiting, packet int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return ErrClosed
	case packet > b.o.MaxPacket:
		return fmt.Errorf("%w: its packet has %d bytes, and may have %d", ErrTooLarge, packet, b.o.MaxPacket)
	case w.size > b.o.MaxBytes:
		return fmt.Errorf("%w: it takes %d bytes, and the outbox has room for %d", ErrTooLarge, w.size, b.o.MaxBytes)
	case b.count >= b.o.MaxMessages || b.bytes+w.size > b.o.MaxBytes:
		return fmt.Errorf("%w: %d messages of %d bytes wait", ErrFull, b.count, b.bytes)
	}
	b.users.Add(1)
	b.last++
	w.number = b.last
	b.count++
	b.bytes += w.size
	return nil
}

// forget gives the room of a message back.
func (b *Outbox) forget(w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	b.bytes -= w.size
}

// Len returns how many messages wait.
func (b *Outbox) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

func (b *Outbox) path(w *waiting) string {
	return filepath.Join(b.dir, waitingName(w.number))
}
