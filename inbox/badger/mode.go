package badger

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Mode implements [inbox.Inbox].
func (h *handle) Mode() inbox.Mode { return inbox.ModePush }

// SetMode implements [inbox.Puller].
func (s *Store) SetMode(context.Context, inbox.Receiver, inbox.Mode) error {
	return errors.ErrUnsupported
}
