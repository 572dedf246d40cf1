package broker

import (
	"context"
	"log/slog"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// mochiLog returns the logger for the mochi server: its chatter is for
// debugging, and its records lose the attributes that hold whole packets, so
// that no payload reaches a log at any level.
func mochiLog(log *slog.Logger) *slog.Logger {
	return slog.New(mochiHandler{log.Handler()})
}

type mochiHandler struct{ next slog.Handler }

func (h mochiHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, mochiLevel(l))
}

func (h mochiHandler) Handle(ctx context.Context, r slog.Record) error {
	level := mochiLevel(r.Level)
	if r.Message == mqtt.ErrMinimumKeepalive.Error() {
		level = slog.LevelDebug // a client may choose any, and many choose none
	}
	if !h.next.Enabled(ctx, level) {
		return nil
	}
	out := slog.NewRecord(r.Time, level, r.Message, r.PC)
	if r.Message == "" {
		out.Message = "connection ended" // mochi's listeners leave it empty
	}
	wished := false
	r.Attrs(func(a slog.Attr) bool {
		if !holdsPacket(a) {
			out.AddAttrs(a)
		}
		wished = wished || a.Value.Any() == packets.CodeDisconnectWillMessage
		return true
	})
	if wished {
		out.Level = slog.LevelDebug // a client that leaves and wants its will published
		if !h.next.Enabled(ctx, out.Level) {
			return nil
		}
	}
	return h.next.Handle(ctx, out)
}

func (h mochiHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	kept := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		if !holdsPacket(a) {
			kept = append(kept, a)
		}
	}
	return mochiHandler{h.next.WithAttrs(kept)}
}

func (h mochiHandler) WithGroup(name string) slog.Handler {
	return mochiHandler{h.next.WithGroup(name)}
}

func mochiLevel(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

// holdsPacket knows the keys under which mochi logs packets and records.
func holdsPacket(a slog.Attr) bool {
	return a.Key == "pk" || a.Key == "packet" || a.Key == "data"
}
