package broker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	mqtt "github.com/mochi-mqtt/server/v2"
)

func TestMochiLogHasNoPayloads(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := mochiLog(log).With("packet", "SECRET", "hook", "h").WithGroup("g")
	m.Warn("error processing packet", "pk", "SECRET", "client", "alice")
	m.Debug("packet rejected", "packet", "SECRET")
	m.Error("failed to upsert client data", "data", "SECRET")
	if got := out.String(); strings.Contains(got, "SECRET") || !strings.Contains(got, "client=alice") || !strings.Contains(got, "hook=h") {
		t.Errorf("logged:\n%s", got)
	}
}

func TestMochiChatterIsForDebugging(t *testing.T) {
	var out bytes.Buffer
	m := mochiLog(slog.New(slog.NewTextHandler(&out, nil))) // info and above
	m.Info("mochi mqtt starting")
	m.Warn(mqtt.ErrMinimumKeepalive.Error(), "keepalive", 0)
	if out.Len() > 0 {
		t.Errorf("logged at info: %s", out.String())
	}
	m.Warn("packet ids exhausted")
	if !strings.Contains(out.String(), "packet ids exhausted") {
		t.Error("a warning is missing")
	}
}
