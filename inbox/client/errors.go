package client

import "errors"

// Errors of this package. Those of the broker are an [Error] or a [RefusedError].
var (
	// At opening an outbox or a filter.
	ErrInUse   = errors.New("used by another process")
	ErrDamaged = errors.New("file is damaged")
	ErrNewer   = errors.New("file was written by a newer version")

	// At keeping a message.
	ErrFull     = errors.New("outbox is full")                    // may succeed once something was sent
	ErrTooLarge = errors.New("message is too large")              // will never succeed
	ErrInvalid  = errors.New("message cannot be kept until sent") // will never succeed

	// At sending.
	ErrExpired        = errors.New("message expired before it was sent")
	ErrConnectionOver = errors.New("connection is over")
	ErrRunning        = errors.New("outbox is being sent already")

	// At asking.
	ErrNotConnected = errors.New("client has no connection yet, see Use")
	ErrNoAnswer     = errors.New("no answer came in time; is Received in OnPublishReceived?")

	// At any time.
	ErrClosed = errors.New("closed")
)
