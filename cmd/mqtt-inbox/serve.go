package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
)

// defaults are shown in the help, so that they are written down once.
var defaults = map[string]string{
	"address":         broker.DefaultAddress,
	"max_packet_size": fmt.Sprint(broker.DefaultMaxPacketSize),
	"window":          fmt.Sprint(broker.DefaultWindow),
	"connect_timeout": broker.DefaultConnectTimeout.String(),
	"stop_timeout":    broker.DefaultStopTimeout.String(),
}

type serveCommand struct {
	Listen []string `group:"Listening" sep:"none" placeholder:"HOST:PORT" help:"TCP address to listen on; may be repeated (default: ${address}, if there is no --ws and no --unix)."`
	WS     []string `group:"Listening" name:"ws" sep:"none" placeholder:"HOST:PORT" help:"Address to listen on for MQTT over WebSocket; may be repeated."`
	Origin []string `group:"Listening" sep:"none" placeholder:"URL" help:"Web site whose pages may use --ws, as in https://example.org, or * for all; may be repeated."`
	Unix   []string `group:"Listening" sep:"none" placeholder:"PATH" help:"Unix socket to listen on; may be repeated."`

	AllowAnonymous bool `group:"Listening" help:"Let everyone in on any address. Without it, only addresses of this machine can be listened on."`

	Data string `group:"Storing" default:"data" placeholder:"DIR" help:"Directory of everything that is stored; created if missing (default: ${default})."`

	Window         int           `group:"Limits" default:"${window}" placeholder:"N" help:"Messages that a receiver may have and not have acknowledged, 1 to 65535 (default: ${default})."`
	MaxPacketSize  int           `group:"Limits" default:"${max_packet_size}" placeholder:"BYTES" help:"Largest packet that a client may send (default: ${default})."`
	ConnectTimeout time.Duration `group:"Limits" default:"${connect_timeout}" placeholder:"TIME" help:"Longest time from a connection to its CONNECT packet (default: ${default})."`
	StopTimeout    time.Duration `group:"Limits" default:"${stop_timeout}" placeholder:"TIME" help:"Longest time that stopping may take (default: ${default})."`

	LogLevel  slog.Level `group:"Logging" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error (default: ${default})."`
	LogFormat string     `group:"Logging" default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json (default: ${default})."`
}

// Run serves until the process is told to stop.
func (c *serveCommand) Run(env *environment) error {
	options := c.options(env)
	if err := options.Validate(); err != nil {
		return usageError{err}
	}
	b, err := broker.New(options)
	if err != nil {
		return err
	}
	return b.Serve(env.ctx)
}

func (c *serveCommand) options(env *environment) broker.Options {
	handler := slog.Handler(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(env.stderr, &slog.HandlerOptions{Level: c.LogLevel})
	}
	return broker.Options{
		TCP:            c.Listen,
		WebSocket:      c.WS,
		Origins:        c.Origin,
		Unix:           c.Unix,
		AllowAnonymous: c.AllowAnonymous,
		Dir:            c.Data,
		Window:         c.Window,
		MaxPacketSize:  c.MaxPacketSize,
		ConnectTimeout: c.ConnectTimeout,
		StopTimeout:    c.StopTimeout,
		Log:            slog.New(handler),
	}
}
