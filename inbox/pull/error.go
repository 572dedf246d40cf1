package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Error is why a request has failed: a code for programs, and a sentence for people.
type Error struct {
	Code    string `json:"code" msgpack:"code"`
	Message string `json:"message" msgpack:"message"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// The codes of errors. Programs must take one that they do not know for CodeInternal.
const (
	CodeBadRequest       = "bad_request"       // the request is not as it should be; the message says where
	CodeUnknownOperation = "unknown_operation" // there is no such operation
	CodeUnknownID        = "unknown_id"        // there is no such message
	CodeBadCursor        = "bad_cursor"        // damaged, or of another store, inbox, selection or order
	CodeForbidden        = "forbidden"         // the asker may not do that
	CodeNoSession        = "no_session"        // the asker has no session, and so no inbox
	CodeTooLarge         = "too_large"         // the request is, or the asker takes answers that are too small
	CodeBusy             = "busy"              // too many requests at a time; ask again later
	CodeFull             = "full"              // the store has no room; ask again later
	CodeUnavailable      = "unavailable"       // the store is closed or cannot say; ask again later
	CodeInternal         = "internal"          // a fault of the server; its log has more
)

// ErrorOf returns what an asker is told of an error: of an [Error] that itself, of
// the store's errors and the context's a sentence of their own, and of
// all others nothing but that there was one.
func ErrorOf(err error) *Error {
	var told *Error
	if errors.As(err, &told) {
		return told
	}
	for _, known := range storeErrors {
		if errors.Is(err, known.err) {
			return &Error{known.code, known.message}
		}
	}
	return &Error{CodeInternal, internalMessage}
}

const internalMessage = "the server could not do it; its log has more"

// storeErrors are what is told of the errors of a store. What is not here is internal.
var storeErrors = []struct {
	err           error
	code, message string
}{
	{inbox.ErrUnknownID, CodeUnknownID, "there is no such message; ids come from messages, summaries and history"},
	{inbox.ErrNoSession, CodeNoSession, "there is no session under this client id; connect and subscribe first, with a session that lasts"},
	{inbox.ErrNotSender, CodeForbidden, "only its sender may delete a message"},
	{inbox.ErrFull, CodeFull, "the server has no room to store this; ask again later"},
	{inbox.ErrTooLarge, CodeTooLarge, "this is larger than the server takes"},
	{inbox.ErrUncertain, CodeUnavailable, "it is unknown whether this was done; ask again"},
	{inbox.ErrFenced, CodeUnavailable, "another connection has taken the session over; ask again"},
	{inbox.ErrClosed, CodeUnavailable, "the server is stopping; ask again later"},
	{context.DeadlineExceeded, CodeBusy, "the server was too busy to answer in time; ask again later"},
	{context.Canceled, CodeUnavailable, "the request was given up; ask again"},
}

func badRequest(format string, args ...any) *Error {
	return &Error{CodeBadRequest, fmt.Sprintf(format, args...)}
}

func badCursor(format string, args ...any) *Error {
	return &Error{CodeBadCursor, fmt.Sprintf(format, args...)}
}
