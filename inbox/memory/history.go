package memory

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// History implements [inbox.Archive].
func (s *Store) History(context.Context, inbox.Query) (inbox.Page, error) {
	return inbox.Page{}, errors.ErrUnsupported
}

// Delete implements [inbox.Archive].
func (s *Store) Delete(context.Context, inbox.MessageID, string) error { return errors.ErrUnsupported }

// Erase implements [inbox.Archive].
func (s *Store) Erase(context.Context, string) (int, error) { return 0, errors.ErrUnsupported }
