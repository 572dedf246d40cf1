package inbox

import "context"

// Puller answers receivers who ask for what is in their inboxes, whether they are
// connected or not. It neither waits for delivery nor holds it up.
//
// A message is unread until its receiver has acknowledged it, by whatever way: by
// PUBACK or PUBCOMP when it was delivered, or by [Puller.Acknowledge]. What is
// expired, given up or deleted is not unread either.
//
// Errors of all methods: ErrNoSession if r has no session, ErrClosed, ErrDamaged, or
// the context's.
type Puller interface {
	// Pull returns unread messages of r's inbox, in the order of their positions
	// or the reverse. It changes nothing: who asks again gets the same again.
	// Error: ErrUnknownID.
	Pull(ctx context.Context, r Receiver, q Query) (Page, error)

	// Summarize counts the unread messages of r's inbox by sender and by topic, as
	// they are at one position.
	Summarize(ctx context.Context, r Receiver, q SummaryQuery) (Summary, error)

	// Acknowledge makes messages of r's inbox read, and returns how many were unread.
	// When it returns, that is on stable storage. To acknowledge what is read
	// already changes nothing. A message that is on its way to a connected receiver
	// is read from then on all the same: it is not sent again, and its PUBACK
	// changes nothing. Errors: ErrUnknownID, and then nothing is acknowledged; ErrFull.
	Acknowledge(ctx context.Context, r Receiver, a Acknowledgement) (int, error)

	// SetMode says how r is served from its next connection on, which is kept with the
	// session, and returns that. ModeKept only asks.
	SetMode(ctx context.Context, r Receiver, m Mode) (Mode, error)
}

// Archive is the history: messages of the filters that the operator has named,
// kept for a time, whoever has read them. Those of QoS 0 need not be.
type Archive interface {
	// History returns kept messages of all topics that match q.Filter, in the order
	// of their positions or the reverse. Positions of history are those of message
	// ids. A message is in history from the step on in which it is stored. One that
	// was deleted is there as a mark, see [Envelope.Deleted]. Error: ErrUnknownID.
	History(ctx context.Context, q Query) (Page, error)

	// Delete takes the content of one message away: from history, and from the
	// inboxes where it is unread. What is left in history says only that there was one.
	// by is who may delete it: its sender, or "" for an operator. When it returns,
	// that is on stable storage. Errors: ErrUnknownID if history does not have it,
	// ErrNotSender.
	Delete(ctx context.Context, id MessageID, by string) error

	// Erase takes away everything that a sender has published, as Delete does, and
	// the sender's name from the marks that are left. It returns how many messages
	// that were. What history had, and what is there still though its time is over, goes too,
	// uncounted: a delivery that has begun would send it again. Once it is begun it is
	// completed, whatever it returns: by the store, or by the next process that opens it.
	Erase(ctx context.Context, sender string) (int, error)
}

// Kept is one filter whose messages are kept in history.
type Kept struct {
	Filter string // no shared subscription
	Keep   int64  // milliseconds; 0 for ever
	Bytes  int64  // the oldest go when there are more, by [Envelope.Size]; 0 for no limit
}

// Mode is how a receiver is served.
type Mode byte

// The modes. In pull mode, what was stored while the receiver was away waits until
// it is asked for, and what is stored while it is connected is delivered.
const (
	ModeKept Mode = iota // as the session has it; a new one is in push mode
	ModePush             // everything is delivered, as MQTT has it
	ModePull
)

// Selection is which messages are meant. The zero value means all.
type Selection struct {
	Sender string // those of one sender, see [Envelope.Sender]
	Filter string // those whose topics match; a valid topic filter
}

// Matches reports whether a message is meant.
func (s Selection) Matches(e *Envelope) bool {
	return (s.Sender == "" || s.Sender == e.Sender()) && (s.Filter == "" || MatchTopic(s.Filter, e.Topic))
}

// Bound is a place in the order of messages. One of its fields is set, or none.
type Bound struct {
	Position Position  // that of an entry
	ID       MessageID // that of a message, which need not be kept any more
	Time     int64     // between what was stored before this time, Unix milliseconds, and the rest
}

// Query asks for a page of messages.
type Query struct {
	Selection
	After       Bound // only those behind it
	Before      Bound // only those in front of it
	NewestFirst bool
	Max         int // messages, at least 1
	MaxBytes    int // in all, by [Envelope.Size], unless the first alone is larger; at least 1

	// Read asks for what was acknowledged too, as far as the store keeps that for
	// receivers who start again. It is for Pull; history has it in any case.
	Read bool
}

// Page is an answer to a [Query].
type Page struct {
	Entries []Entry // the grants are those of delivery; in history there are none

	// More tells that others follow, which the next page has if it is bounded by
	// the position of the last entry. A page may be short, or even empty, though there
	// are more: then Next is where to go on, in the place of the last entry's.
	More bool
	Next Position // the last place that was looked at, also where nothing follows; 0 if that is the last entry's

	Remaining Count // those that match and follow, of a Pull
	Gaps      []Gap // what would have matched, between the bounds and up to Next, and is lost
}

// Count is a number of messages.
type Count struct {
	Messages int64
	Bytes    int64 // by [Envelope.Size] less what an envelope takes itself: payload, texts and user properties
	AtLeast  bool  // there may be more: counting was given up
}

// Gap is messages that a receiver has lost. What an engine has forgotten by the time of
// asking it need not tell: there are at least so many.
type Gap struct {
	From, To int64 // when the first and the last of them were stored, Unix milliseconds
	Messages int64
	Reason   GapReason
}

// GapReason is why messages were lost.
type GapReason string

// The reasons.
const (
	GapExpired GapReason = "expired" // their time was over
	GapLimit   GapReason = "limit"   // the inbox was full

	// Not of a store: messages that stay in it are acknowledged for a receiver that
	// cannot take them.
	GapOversize GapReason = "oversize" // larger than the receiver takes
)

// SummaryQuery asks for a part of a [Summary].
type SummaryQuery struct {
	Max    int      // tallies in one answer, at least 1
	Next   string   // where the answer before has ended, "" for the first
	UpTo   Position // count nothing behind it; 0 for no bound
	Except string   // messages of this sender are not counted, "" for none
}

// Summary is what is unread.
type Summary struct {
	Position Position // everything up to here is counted, and nothing behind it
	Total    Count
	Senders  []Tally
	Topics   []Tally
	Next     string // asks for the tallies that follow, 64 bytes at most; "" at the end
}

// Tally is what is unread of one sender, or in one topic.
type Tally struct {
	Name           string
	Count          Count
	Oldest, Newest Mark
}

// Mark is one message among others.
type Mark struct {
	ID   MessageID
	Time int64 // Unix milliseconds
}

// Acknowledgement is what a receiver has read: messages by their ids, or
// everything that matches within bounds.
type Acknowledgement struct {
	IDs []MessageID // if there are any, what follows is not looked at

	Selection
	After   Position // only what is behind it
	Through Position // and no further than this; 0 for everything there is

	// ThroughID is Through by a message, and is looked at in its place: to where the
	// message is, or was stored, see [Bound]. The zero value is none.
	ThroughID MessageID
}
