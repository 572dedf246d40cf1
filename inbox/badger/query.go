package badger

import (
	"context"
	"errors"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Mode implements [inbox.Inbox].
func (h *handle) Mode() inbox.Mode { return inbox.ModePush }

// Pull implements [inbox.Puller].
func (s *Store) Pull(context.Context, inbox.Receiver, inbox.Query) (inbox.Page, error) {
	return inbox.Page{}, errors.ErrUnsupported
}

// Summarize implements [inbox.Puller].
func (s *Store) Summarize(context.Context, inbox.Receiver, inbox.SummaryQuery) (inbox.Summary, error) {
	return inbox.Summary{}, errors.ErrUnsupported
}

// Acknowledge implements [inbox.Puller].
func (s *Store) Acknowledge(context.Context, inbox.Receiver, inbox.Acknowledgement) (int, error) {
	return 0, errors.ErrUnsupported
}

// SetMode implements [inbox.Puller].
func (s *Store) SetMode(context.Context, inbox.Receiver, inbox.Mode) error {
	return errors.ErrUnsupported
}
