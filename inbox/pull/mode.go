package pull

import (
	"context"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// The modes of a session by their names, see [inbox.Mode].
const (
	ModePush = "push"
	ModePull = "pull"
)

// ParseMode returns the mode that has a name, and whether there is one.
func ParseMode(name string) (m inbox.Mode, ok bool) {
	switch name {
	case ModePush:
		return inbox.ModePush, true
	case ModePull:
		return inbox.ModePull, true
	}
	return inbox.ModeKept, false
}

// ModeName is the reverse of [ParseMode]. The name of [inbox.ModeKept] is empty.
func ModeName(m inbox.Mode) string {
	switch m {
	case inbox.ModePush:
		return ModePush
	case inbox.ModePull:
		return ModePull
	}
	return ""
}

func (s *Service) mode(ctx context.Context, a Asker, r ModeRequest, _ encoding) (ModeAnswer, error) {
	m, ok := ParseMode(r.Mode)
	if !ok && r.Mode != "" {
		return ModeAnswer{}, badRequest(`mode must be "push" or "pull"`)
	}
	now, err := s.store.SetMode(ctx, a.Receiver, m)
	return ModeAnswer{ModeName(now)}, err
}
