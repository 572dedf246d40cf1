package pull

// SummaryAnswer is what is unread, as it is at one position.
type SummaryAnswer struct {
	// Position is a cursor: everything up to it is counted, and nothing behind it. It fits every
	// selection, so that what was counted can be acknowledged, and nothing that came since.
	Position string `json:"position" msgpack:"position"`

	Count           // of all that is unread, in every part of the answer
	Senders []Tally `json:"senders" msgpack:"senders"` // newest first
	Topics  []Tally `json:"topics" msgpack:"topics"`   // newest first
	Next    string  `json:"next,omitempty" msgpack:"next,omitempty"`
	More    bool    `json:"more" msgpack:"more"` // there are more senders or topics; ask with Next
}

// Count is a number of messages.
type Count struct {
	Messages int64 `json:"messages" msgpack:"messages"`
	Bytes    int64 `json:"bytes" msgpack:"bytes"`                           // payload, topic and other texts, see [inbox.Count]
	AtLeast  bool  `json:"at_least,omitempty" msgpack:"at_least,omitempty"` // there may be more: counting was given up
}

// Tally is what is unread of one sender, or in one topic.
type Tally struct {
	Sender string `json:"sender,omitempty" msgpack:"sender,omitempty"`
	Topic  string `json:"topic,omitempty" msgpack:"topic,omitempty"`
	Count
	Oldest Mark `json:"oldest" msgpack:"oldest"`
	Newest Mark `json:"newest" msgpack:"newest"`

	// Truncated tells that the name was left out, because the asker can take no
	// answer that has it.
	Truncated bool `json:"truncated,omitempty" msgpack:"truncated,omitempty"`
}

// Mark is one message among others.
type Mark struct {
	ID   string `json:"id" msgpack:"id"`
	Time Time   `json:"time" msgpack:"time"`
}

// MessagesAnswer is a page of messages.
type MessagesAnswer struct {
	Messages []Message `json:"messages" msgpack:"messages"`
	Gaps     []Gap     `json:"gaps,omitempty" msgpack:"gaps,omitempty"`

	// Next is the cursor of this page, and asks for the one that follows. A page that has nothing, and
	// behind which nothing follows, has none.
	Next string `json:"next,omitempty" msgpack:"next,omitempty"`

	More      bool   `json:"more" msgpack:"more"`                               // others follow
	Remaining *Count `json:"remaining,omitempty" msgpack:"remaining,omitempty"` // those that follow, of Pull; nil of History
}

// Gap is messages that the receiver has lost.
type Gap struct {
	From   Time   `json:"from" msgpack:"from"`
	To     Time   `json:"to" msgpack:"to"`
	Count  int64  `json:"count" msgpack:"count"`
	Reason string `json:"reason" msgpack:"reason"` // see [inbox.GapReason]
}

// AckAnswer tells how many messages were unread and are read now.
type AckAnswer struct {
	Acknowledged int `json:"acknowledged" msgpack:"acknowledged"`
}

// ModeAnswer is the mode that the session has from its next connection on.
type ModeAnswer struct {
	Mode string `json:"mode" msgpack:"mode"`
}

// DeleteAnswer tells how many messages were deleted.
type DeleteAnswer struct {
	Deleted int `json:"deleted" msgpack:"deleted"`
}

// ErrorAnswer is the answer to a request that has failed.
type ErrorAnswer struct {
	Error *Error `json:"error" msgpack:"error"`
}
