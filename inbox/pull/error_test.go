package pull

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestWhatAskersAreToldOfErrors(t *testing.T) {
	own := &Error{"some_code", "a sentence"}
	for _, c := range []struct {
		err  error
		code string
	}{
		{own, "some_code"},
		{inbox.ErrUnknownID, CodeUnknownID},
		{inbox.ErrNotSender, CodeForbidden},
		{inbox.ErrNoSession, CodeNoSession},
		{inbox.ErrFull, CodeFull},
		{inbox.ErrTooLarge, CodeTooLarge},
		{inbox.ErrUncertain, CodeUnavailable},
		{inbox.ErrFenced, CodeUnavailable},
		{inbox.ErrClosed, CodeUnavailable},
		{inbox.ErrDamaged, CodeInternal},
		{inbox.ErrNewer, CodeInternal},
		{context.DeadlineExceeded, CodeBusy},
		{context.Canceled, CodeUnavailable},
		{errors.New("secret path /var/x"), CodeInternal},
	} {
		for _, err := range []error{c.err, fmt.Errorf("pull: %w", c.err)} {
			told := ErrorOf(err)
			if told.Code != c.code || told.Message == "" {
				t.Errorf("%v: got %+v, expected %s", err, told, c.code)
			}
			if told.Code == CodeInternal && told.Message != internalMessage {
				t.Errorf("%v is told: %s", err, told.Message)
			}
		}
	}
}
