package inbox

import (
	"context"
	"errors"
	"iter"
)

// Errors of a store. Engines translate their library's errors to these at the
// edge and wrap them with what they were doing.
var (
	// At opening.
	ErrInUse   = errors.New("data directory is used by another process")
	ErrDamaged = errors.New("stored data is damaged")
	ErrNewer   = errors.New("stored data was written by a newer version")

	// At appending.
	ErrFull      = errors.New("disk reserve reached")                   // not stored; may succeed once space is freed
	ErrTooLarge  = errors.New("message is larger than the store takes") // not stored; will never succeed
	ErrUncertain = errors.New("unknown whether stored")                 // may be stored; may be appended again

	// At opening an inbox.
	ErrNoSession = errors.New("there is no session to resume")

	// At asking.
	ErrUnknownID = errors.New("no such message")
	ErrNotSender = errors.New("message was sent by somebody else")

	// At using an inbox.
	ErrFenced = errors.New("inbox was opened by a newer connection")

	// At any time.
	ErrClosed = errors.New("store is closed")
)

// Receipt says what became of an appended message.
type Receipt struct {
	ID        MessageID // of a duplicate, that of the message that was stored, if it is known
	Duplicate bool      // nothing was stored: it had been before (see Append and Inbox.Publish)

	// Matched is how many receivers have a matching subscription, -1 if the engine
	// does not know. Engines may leave out those that get nothing, and count a
	// receiver once for each of its subscriptions that match.
	Matched int
}

// Store keeps messages until their receivers have acknowledged them.
//
// All methods may be called concurrently. A cancelled context ends the wait,
// not the operation: what was handed over may still happen.
//
// What it keeps can also be asked for, see [Puller] and [Archive].
type Store interface {
	Puller
	Archive

	// Append stores one message for every receiver whose subscriptions match
	// its topic, and then calls done exactly once.
	//
	// Durability: when done gets a nil error, the message is on stable storage
	// for every session that outlives its link. Sessions that end with their
	// link get it from memory, and a message for nobody else costs no sync.
	//
	// Order: messages that one goroutine appends are stored, become visible and
	// have done called in the order of the calls. A message that becomes
	// visible never gets a position below one that was visible before.
	//
	// Once: a message of QoS 1 or 2 to which its publisher gave a name
	// ([Envelope.MessageID]), and that the same client has published under that
	// name before, is not stored again, and its Receipt says so. A name is
	// remembered as long as its message could be kept, whether it still is or
	// not, but of one that never expires it may be for 7 days only; a message
	// that nobody was to get may be forgotten at once.
	//
	// Append blocks while the engine's queue is full; that is the back-pressure.
	// done runs on a goroutine of the engine: it must not block, write to a
	// socket or call the store. Errors: ErrFull, ErrTooLarge, ErrUncertain,
	// ErrClosed, or the context's if it ended before the message was taken.
	Append(ctx context.Context, e *Envelope, done func(Receipt, error))

	// Open gives the caller the inbox of a receiver and reports whether there
	// was a session to resume. It creates the session if there is none, or if
	// the one there was ends: because of o.Fresh, because its time was over, or
	// because it ends with its link. When Open returns, the session is on
	// stable storage (unless o.Expiry is ExpiryAtOnce), and an earlier owner of
	// the inbox is fenced: its calls return ErrFenced and change nothing.
	Open(ctx context.Context, r Receiver, o OpenOptions) (in Inbox, resumed bool, err error)

	// Retained yields the retained messages whose topics match a filter, in no
	// particular order. A message with Retain becomes the retained one of its
	// topic in the same step in which it is stored, and one with an empty
	// payload removes it; that an Append with QoS 0 does so is all that is
	// kept of it. Expired ones may be yielded.
	Retained(ctx context.Context, filter string) iter.Seq2[*Envelope, error]

	// Sessions yields every session, connected or not, in no particular order.
	Sessions(ctx context.Context) iter.Seq2[Session, error]

	// ID returns what the ids of the store's messages have as [MessageID.Store]. It stays, over
	// restarts too.
	ID() uint32

	// Close waits for what was handed over, stores it, and releases everything.
	// Operations that come later get ErrClosed.
	Close() error
}

// Expiry is how long a session outlives its link, in seconds.
type Expiry uint32

// The two ends of [Expiry].
const (
	ExpiryAtOnce Expiry = 0          // the session ends with its link
	ExpiryNever  Expiry = 0xFFFFFFFF // the session does not expire
)

// Session describes one session.
type Session struct {
	Receiver  Receiver
	Expiry    Expiry
	Connected bool  // an owner has its inbox open
	Mode      Mode  // how its receiver is served from its next connection on
	Ended     int64 // when the last link ended, Unix milliseconds; 0 while connected
}

// OpenOptions say how an inbox is opened.
type OpenOptions struct {
	Fresh  bool   // end the session there was
	Resume bool   // create no session: without one to resume, ErrNoSession
	Expiry Expiry // from now on; ExpiryAtOnce keeps the session in memory

	// Will is published when the session ends, or Will.Delay after it was
	// closed without a goodbye, whichever comes first; it takes the place of
	// the will there was. Nil for none. A will is on stable storage before Open returns,
	// for sessions that end with their link too.
	Will *Will

	// Mode is how the receiver is served, from now on. In pull mode Next begins
	// behind what is stored when the inbox is opened, and that waits for
	// [Puller.Pull]; in push mode Next has that too, but for what was acknowledged
	// meanwhile. If any of it is left, and something is open, Next waits until a state is
	// saved in which nothing is, and goes back to positions before State().Sent. A state
	// that still has that Sent and the packet id given last finishes nothing of what Next
	// returned since.
	Mode Mode

	// From has everything behind it that is still kept be unread again, and
	// delivered again: for a receiver that has lost its memory. What was on
	// its way to it is forgotten, but for packet ids: see [State.Withdraw]. What is
	// unread in front of it stays so. Position 0 without anything else, in a Bound that is
	// not nil, is for everything. Open returns ErrUnknownID, and changes nothing, for an id
	// that no message of the store has had.
	From *Bound

	// State returns what [Inbox.Save] stores. The engine calls it on its own
	// goroutine when it writes; it must be quick and must not call the store.
	// Nil for a reader that delivers nothing.
	State func() State

	// Live takes a message whose grant has QoS 0: it is delivered at once or
	// not at all, and never kept. The engine calls it in the order of storing on its own goroutine;
	// it must not block. Nil drops such messages.
	Live func(Entry)
}

// Will is what is published in a client's name when it is gone. Its envelope's
// Expiry counts from when it is published, so it holds an interval: milliseconds, 0
// for never.
type Will struct {
	Envelope *Envelope
	Delay    uint32 // seconds
}

// Ending says how an inbox is closed.
type Ending struct {
	Expiry  Expiry // how long the session is kept; ExpiryAtOnce ends it
	Goodbye bool   // the client took its leave: its will is not published [MQTT-3.1.2-10]
}

// Inbox is one receiver's messages, held by one owner at a time. Next may be
// called by one goroutine at a time, everything else concurrently.
type Inbox interface {
	// State returns the delivery state as it was when the inbox was opened: as it was saved,
	// but that the engine may have withdrawn deliveries whose messages are gone, see
	// [State.Withdraw]. No packet id that the receiver may hold is lost.
	State() State

	// Mode returns how the receiver is served: never ModeKept.
	Mode() Mode

	// Subscriptions returns the session's subscriptions, in no particular order.
	// Retain handling, which counts only in Subscribe, may be missing.
	Subscriptions(ctx context.Context) ([]Subscription, error)

	// Subscribe adds subscriptions, or replaces those of the same filter, and
	// reports for each whether there was one. When it returns, they are stored
	// (as the session is), and every message whose Append is called later, by
	// anyone, is matched against them; messages stored before are not.
	//
	// Retained messages that match are put into the inbox as entries of their
	// own, with Grant.Retain, as RetainHandling says; those of QoS 0 go to
	// OpenOptions.Live. They are put in before Subscribe returns, and none is
	// older than what the subscription brought before it.
	//
	// With Last, the last messages in history that match come next, oldest first, as entries of
	// their own; the messages that come by the subscription follow them without
	// one missing or coming twice. One that is unread in the inbox already is not
	// put in again.
	//
	// Errors: ErrFull without a report if there is no room; then nothing is
	// stored. After any other error, and ErrFull with a report, some may be.
	//
	// A filter of a shared subscription (see [Shared]) makes the receiver a
	// member: messages for the inner filter go once into the inbox of
	// [GroupReceiver], which exists as long as it has members.
	Subscribe(ctx context.Context, subs ...Subscription) (existed []bool, err error)

	// Unsubscribe removes subscriptions and reports for each whether there was
	// one. Messages that were stored by them, that no other subscription matches
	// and that Next has not returned yet are given up. What it has returned is not,
	// after a crash neither if the state says that it was sent: an engine may
	// store the state for that. Nor is what Give has moved here. Durability as for Subscribe.
	Unsubscribe(ctx context.Context, filters ...string) (existed []bool, err error)

	// Next returns the entries after the last one it returned (at first: after
	// State().Sent), in order, each once: at least one, at most max (which is
	// at least 1), and no more than maxBytes in all ([Envelope.Size]) unless
	// the first alone is larger. It waits until there is one. A context that has
	// ended keeps it from waiting, not from returning what there is. Expired entries
	// are returned too, unless they have been for so long that the engine has forgotten
	// them.
	// Errors: the context's, ErrFenced, ErrClosed, ErrDamaged.
	//
	// The slice is the caller's; the envelopes are shared.
	Next(ctx context.Context, max, maxBytes int) ([]Entry, error)

	// Read returns the entries at the given ascending positions, without those
	// that no longer exist. It does not move Next. Of a session that ends with
	// its link, which is never resumed, it need not find any.
	Read(ctx context.Context, at []Position) ([]Entry, error)

	// Withdrawn returns a number that has grown when [Puller.Acknowledge], [Archive.Delete] or
	// [Archive.Erase] returns and has taken away something that Next may have returned. A
	// Next or Read that is called after the number was read does not return what was taken
	// away by then. It may grow for less, and need not for a session that ends with its
	// link. Any goroutine may call it. Cost: two atomic loads at most.
	Withdrawn() uint64

	// Save stores the delivery state; with it goes the permission to forget
	// every entry that is neither open nor after State.Sent. Without done it is
	// lazy: coalesced, stored within 100 ms or so, and lost with the process
	// before that (entries then come again). With done it is stored at once
	// and done is called after, under the rules of Append's.
	Save(done func(error))

	// Publish is Append for a QoS 2 message that the receiver of this inbox
	// publishes under packet id: the id is recorded with the message, and while
	// it is, Publish stores nothing and gives a Receipt that says so. So a
	// publisher that resends over a crash has its message stored once
	// [MQTT-4.3.3-10].
	Publish(ctx context.Context, id uint16, e *Envelope, done func(Receipt, error))

	// Received returns the ids that Publish had recorded when the inbox was
	// opened, in no particular order.
	Received() []uint16

	// Complete forgets an id that Publish recorded (PUBREL), and calls done,
	// under the rules of Append's, when that is stored and PUBCOMP may be sent.
	Complete(id uint16, done func(known bool, err error))

	// Give moves entries of this inbox, the one of a group, to the end of the inbox
	// of a member, which must be of the same store: for each, unless its message was
	// deleted meanwhile, there is a new entry with the same message and the grant given
	// here. They must be open in the state of this inbox, ascending, and their messages
	// unchanged. When done gets nil, called under the rules of Append's, that is on
	// stable storage as one step, and the entries are gone from this inbox, though Read
	// may find them for a while: a state that is saved later is stored as if they were
	// not open.
	//
	// Errors: ErrFenced if one of the inboxes is no more its owner's, ErrFull,
	// ErrClosed. Then all entries are where they were.
	Give(to Inbox, entries []Entry, done func(error))

	// Close gives the inbox back: the state is saved as by Save(nil), the
	// session gets the expiry that counts from now, and the owner is fenced.
	// ExpiryAtOnce removes the session and everything in its inbox.
	Close(ctx context.Context, end Ending) error
}

// Entry is one message in one inbox.
type Entry struct {
	Position Position // 0 for a live message that is not kept
	Envelope *Envelope
	Grant
	Lost *Gap // what the receiver has lost before this message since it got the one before; nil for nothing
}
