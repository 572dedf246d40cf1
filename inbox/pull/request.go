package pull

// The operations, as [Service.Do] knows them.
const (
	OpSummary = "summary"
	OpPull    = "pull"
	OpAck     = "ack"
	OpHistory = "history"
	OpMode    = "mode"
	OpDelete  = "delete"
)

// Bounds of requests. A number beyond them is brought within them.
const (
	MaxRequest = 64 << 10 // bytes of a request that Do takes
	MaxLimit   = 1000     // messages or tallies in one answer, and ids in one acknowledgement
	MaxBytes   = 8 << 20  // of the messages in one answer, if they are more than one

	DefaultLimit        = 200     // of summary and pull
	DefaultHistoryLimit = 20      // of history
	DefaultBytes        = 1 << 20 // of the messages in one answer
)

// SummaryRequest asks what is unread.
type SummaryRequest struct {
	Limit int    `json:"limit,omitempty" msgpack:"limit,omitempty"` // tallies in the answer; 0 for DefaultLimit
	Next  string `json:"next,omitempty" msgpack:"next,omitempty"`   // that of the answer before
}

// The orders of messages.
const (
	OldestFirst = "asc"
	NewestFirst = "desc"
)

// PullRequest asks for a page of unread messages.
type PullRequest struct { //nolint:revive // all requests are named after their operations, and so is this
	Limit    int    `json:"limit,omitempty" msgpack:"limit,omitempty"`         // messages; 0 for DefaultLimit
	MaxBytes int    `json:"max_bytes,omitempty" msgpack:"max_bytes,omitempty"` // of the messages in the answer, see DefaultBytes
	Order    string `json:"order,omitempty" msgpack:"order,omitempty"`         // OldestFirst, which is the default, or NewestFirst
	Sender   string `json:"sender,omitempty" msgpack:"sender,omitempty"`       // only messages of this sender
	Topic    string `json:"topic,omitempty" msgpack:"topic,omitempty"`         // only messages whose topics match this filter

	// After and Before bound the page: cursors, message ids or times, see
	// [ParsePlace]. The cursor of a page stands where the walk goes on: in After when it is
	// oldest first, in Before when it is newest first.
	After  string `json:"after,omitempty" msgpack:"after,omitempty"`
	Before string `json:"before,omitempty" msgpack:"before,omitempty"`

	// Ack false does not acknowledge the page that the cursor has come with. Nil means true.
	Ack *bool `json:"ack,omitempty" msgpack:"ack,omitempty"`
}

// AckRequest acknowledges messages: those with IDs, or those that match Sender and
// Topic, up to Through. To mean all, All says so.
type AckRequest struct {
	IDs     []string `json:"ids,omitempty" msgpack:"ids,omitempty"`         // at most MaxLimit
	Through string   `json:"through,omitempty" msgpack:"through,omitempty"` // a cursor of Pull, the position of a summary, or a message id
	Sender  string   `json:"sender,omitempty" msgpack:"sender,omitempty"`
	Topic   string   `json:"topic,omitempty" msgpack:"topic,omitempty"` // a filter
	All     bool     `json:"all,omitempty" msgpack:"all,omitempty"`
}

// HistoryRequest asks for a page of kept messages. Its fields are those of
// [PullRequest]; the order is NewestFirst unless it says otherwise.
type HistoryRequest struct {
	Limit    int    `json:"limit,omitempty" msgpack:"limit,omitempty"` // messages; 0 for DefaultHistoryLimit
	MaxBytes int    `json:"max_bytes,omitempty" msgpack:"max_bytes,omitempty"`
	Order    string `json:"order,omitempty" msgpack:"order,omitempty"`
	Sender   string `json:"sender,omitempty" msgpack:"sender,omitempty"`
	Topic    string `json:"topic,omitempty" msgpack:"topic,omitempty"`
	After    string `json:"after,omitempty" msgpack:"after,omitempty"`
	Before   string `json:"before,omitempty" msgpack:"before,omitempty"`
}

// ModeRequest says, or without a mode asks, how the session is served from its next
// connection on.
type ModeRequest struct {
	Mode string `json:"mode,omitempty" msgpack:"mode,omitempty"` // ModePush or ModePull
}

// DeleteRequest takes the content of messages away: that of one, or, for an operator,
// of everything that a sender has published.
type DeleteRequest struct {
	ID     string `json:"id,omitempty" msgpack:"id,omitempty"`
	Sender string `json:"sender,omitempty" msgpack:"sender,omitempty"`
}
