package pull

import (
	"context"
	"log/slog"
	"strings"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Rules say who may read which topic in history. What is in an inbox is there
// because its receiver was subscribed to it, and is not asked about again.
type Rules interface {
	// MayRead is called often, from many goroutines, and must be quick.
	MayRead(a Asker, topic string) bool
}

// Options are the options of a service. The zero value is good.
type Options struct {
	Rules Rules // nil: everybody may read everything

	// Rewind tells that the store keeps for a while what was acknowledged. A pull
	// after an id or a time then gives that too.
	Rewind bool

	Log *slog.Logger // nil: slog.Default()
}

// Service answers askers.
type Service struct {
	store  inbox.Store
	rules  Rules
	rewind bool
	log    *slog.Logger
}

// New returns a service that answers from store.
func New(store inbox.Store, o Options) *Service {
	s := &Service{store: store, rules: o.Rules, rewind: o.Rewind, log: o.Log}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s
}

// Do carries out an operation. The request is JSON, or msgpack if its content type
// says so or, without a content type, its first byte; an empty one stands for an object
// without fields. The answer has the encoding of the request, and is never longer than
// a.MaxAnswer unless that is below MinAnswer. It does not fail: an error is an [ErrorAnswer].
func (s *Service) Do(ctx context.Context, a Asker, operation string, request []byte, contentType string) (answer []byte, answerType string) {
	answer, answerType, failed := s.Try(ctx, a, operation, request, contentType)
	if failed != nil {
		answer = encodingOf(contentType, request).encodeError(failed)
	}
	return answer, answerType
}

// Try is Do for callers who tell of errors in their own way: it returns either an
// answer or an error.
func (s *Service) Try(ctx context.Context, a Asker, operation string, request []byte, contentType string) (answer []byte, answerType string, failed *Error) {
	enc := encodingOf(contentType, request)
	content, err := s.do(ctx, a, operation, request, enc)
	if err == nil {
		answer, err = enc.encode(content)
	}
	if err == nil && a.MaxAnswer > 0 && len(answer) > a.MaxAnswer {
		err = &Error{CodeTooLarge, "the answer is larger than the asker takes"}
	}
	if err != nil {
		return nil, enc.contentType(), s.told(err, operation, a)
	}
	return answer, enc.contentType(), nil
}

// Refuse is the answer to a request that is not given to [Service.Do]: an
// [ErrorAnswer] in the encoding of the request.
func Refuse(told *Error, request []byte, contentType string) (answer []byte, answerType string) {
	enc := encodingOf(contentType, request)
	return enc.encodeError(told), enc.contentType()
}

// told is ErrorOf that logs what the asker is not told.
func (s *Service) told(err error, operation string, a Asker) *Error {
	told := ErrorOf(err)
	if told.Code == CodeInternal {
		s.log.Error("a request has failed", "operation", operation, "client", string(a.Receiver), "error", err)
	}
	return told
}

// inboxOf is what cursors of an asker have for its inbox.
func (s *Service) inboxOf(a Asker) [8]byte { return inboxHash(s.store.ID(), a.Receiver) }

// operations are the operations by their names.
var operations = map[string]func(s *Service, ctx context.Context, a Asker, f *fields, enc encoding) (any, error){
	OpSummary: operation(readSummary, (*Service).summary),
	OpPull:    operation(readPull, (*Service).pull),
	OpAck:     operation(readAck, (*Service).ack),
	OpHistory: operation(readHistory, (*Service).history),
	OpMode:    operation(readMode, (*Service).mode),
	OpDelete:  operation(readDelete, (*Service).delete),
}

// operation makes one function of what reads a request and what answers it.
func operation[R, A any](read func(*fields) R, answer func(*Service, context.Context, Asker, R, encoding) (A, error),

) func(*Service, context.Context, Asker, *fields, encoding) (any, error) {
	return func(s *Service, ctx context.Context, a Asker, f *fields, enc encoding) (any, error) {
		r := read(f)
		if err := f.end(); err != nil {
			return nil, err
		}
		return answer(s, ctx, a, r, enc)
	}
}

func (s *Service) do(ctx context.Context, a Asker, operation string, request []byte, enc encoding) (any, error) {
	do, ok := operations[operation]
	if !ok {
		return nil, &Error{CodeUnknownOperation, "the operations are " + strings.Join(Operations(), ", ")}
	}
	if len(request) > MaxRequest {
		return nil, &Error{CodeTooLarge, "a request has 64 KiB at most"}
	}
	f, err := enc.decode(request)
	if err != nil {
		return nil, err
	}
	return do(s, ctx, a, f, enc)
}

// Operations returns the names of the operations, sorted.
func Operations() []string {
	return []string{OpAck, OpDelete, OpHistory, OpMode, OpPull, OpSummary}
}

// Summary counts what is unread. Its errors, and those of the other methods, are those
// of the store and [Error]; [ErrorOf] tells what an asker is told of them. Answers
// fit a.MaxAnswer when they are encoded as JSON without escaping of HTML.
func (s *Service) Summary(ctx context.Context, a Asker, r SummaryRequest) (SummaryAnswer, error) {
	return s.summary(ctx, a, r, asJSON)
}

// Pull returns a page of what is unread, and acknowledges the page whose cursor the
// request has, unless it asks not to.
func (s *Service) Pull(ctx context.Context, a Asker, r PullRequest) (MessagesAnswer, error) {
	return s.pull(ctx, a, r, asJSON)
}

// Ack acknowledges messages.
func (s *Service) Ack(ctx context.Context, a Asker, r AckRequest) (AckAnswer, error) {
	return s.ack(ctx, a, r, asJSON)
}

// History returns a page of kept messages: those that the asker may read, and those
// that it has sent itself.
func (s *Service) History(ctx context.Context, a Asker, r HistoryRequest) (MessagesAnswer, error) {
	return s.history(ctx, a, r, asJSON)
}

// Mode says, or asks, how the asker is served from its next connection on.
func (s *Service) Mode(ctx context.Context, a Asker, r ModeRequest) (ModeAnswer, error) {
	return s.mode(ctx, a, r, asJSON)
}

// Delete takes the content of a message of the asker's own away.
func (s *Service) Delete(ctx context.Context, a Asker, r DeleteRequest) (DeleteAnswer, error) {
	return s.delete(ctx, a, r, asJSON)
}
