package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/cmd/mqtt-inbox/internal/bench"
)

type benchCommand struct {
	Ack    benchAckCommand    `cmd:"" help:"How fast messages for absent receivers are acknowledged."`
	Replay benchReplayCommand `cmd:"" help:"How fast receivers that come back get what has waited, and what waiting costs."`
}

// benchTarget is what both benchmarks have in common.
type benchTarget struct {
	Address  string        `placeholder:"HOST:PORT" help:"Measure a broker that runs already, instead of this one started afresh. It must let everyone in."`
	With     []string      `placeholder:"NAME" enum:"raw,mochi,mochi-badger,mosquitto" help:"Measure also, in turn with the broker: raw (append to a file and sync), mochi (as it comes), mochi-badger (with its own storage, synced), mosquitto (must be installed)."`
	Size     int           `default:"256" placeholder:"BYTES" help:"Size of a payload (default: ${default})."`
	Patience time.Duration `default:"5s" placeholder:"TIME" help:"How long a receiver waits before what is missing counts as lost (default: ${default})."`
	Dir      string        `placeholder:"DIR" help:"Where to make temporary data directories: on the disk to be measured (default: the system's)."`
	JSON     bool          `name:"json" help:"Print JSON, with durations in nanoseconds."`
}

// targets returns what is to be measured, the broker under test first.
func (c *benchTarget) targets() ([]bench.Target, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if c.Address == "" {
		return bench.Targets(executable, append([]string{bench.Inbox}, c.With...)...)
	}
	targets, err := bench.Targets(executable, c.With...)
	return append([]bench.Target{bench.Running(c.Address)}, targets...), err
}

// prepare returns where data goes and where progress is told.
func (c *benchTarget) prepare(env *environment) (dir string, log *slog.Logger) {
	log = slog.New(slog.NewTextHandler(env.stderr, nil))
	if dir = c.Dir; dir == "" {
		dir = os.TempDir()
	}
	if bench.InMemory(dir) {
		log.Warn("the data directory is in memory, where syncing is free; choose one on a disk with --dir", "dir", dir)
	}
	return dir, log
}

// print prints what was found, also if measuring ended early.
func (c *benchTarget) print(env *environment, r bench.Results, err error) error {
	if c.JSON {
		return errors.Join(r.PrintJSON(env.stdout), err)
	}
	return errors.Join(r.Print(env.stdout), err)
}

type benchAckCommand struct {
	benchTarget

	Shapes    []bench.Shape `default:"1x1,1x100,4x100,8x100,64x20" placeholder:"PxN" help:"Publishers by unacknowledged messages of each (default: ${default})."`
	Receivers []int         `default:"1,100,1000" placeholder:"N" help:"Absent receivers (default: ${default})."`
	Fanout    bool          `help:"Every message to every receiver, instead of to one in turn."`
	Duration  time.Duration `default:"3s" placeholder:"TIME" help:"How long one run takes (default: ${default})."`
	Count     int           `placeholder:"N" help:"Messages of one run, instead of --duration."`
	Runs      int           `default:"5" placeholder:"N" help:"Runs of which the median is taken (default: ${default})."`
	Verify    bool          `negatable:"" default:"true" help:"Let the receivers take everything after each run and check it (default: yes)."`
}

// Run measures and prints.
func (c *benchAckCommand) Run(env *environment) error {
	targets, err := c.targets()
	if err != nil {
		return err
	}
	dir, log := c.prepare(env)
	acks, err := bench.Ack(env.ctx, bench.AckOptions{
		Targets:   targets,
		Shapes:    c.Shapes,
		Receivers: c.Receivers,
		Fanout:    c.Fanout,
		Size:      c.Size,
		Duration:  c.Duration,
		Count:     c.Count,
		Runs:      max(c.Runs, 1),
		Verify:    c.Verify,
		Patience:  c.Patience,
		Dir:       dir,
		Log:       log,
	})
	return c.print(env, bench.Results{Acks: acks}, err)
}

type benchReplayCommand struct {
	benchTarget

	Receivers []int         `default:"1,100,1000" placeholder:"N" help:"Receivers that come back at once (default: ${default})."`
	Messages  int           `default:"1000000" placeholder:"N" help:"Messages that wait, for all receivers together (default: ${default})."`
	Sessions  int           `default:"100000" placeholder:"N" help:"Sessions for measuring the start of the broker; 0 leaves that out (default: ${default})."`
	Settle    time.Duration `default:"30s" placeholder:"TIME" help:"How long the messages have waited when memory is read and receivers come back (default: ${default})."`
}

// Run measures and prints.
func (c *benchReplayCommand) Run(env *environment) error {
	targets, err := c.targets()
	if err != nil {
		return err
	}
	dir, log := c.prepare(env)
	replays, starts, err := bench.Replay(env.ctx, bench.ReplayOptions{
		Targets:   targets,
		Receivers: c.Receivers,
		Messages:  c.Messages,
		Sessions:  c.Sessions,
		Size:      c.Size,
		Patience:  c.Patience,
		Settle:    c.Settle,
		Dir:       dir,
		Log:       log,
	})
	return c.print(env, bench.Results{Replays: replays, Starts: starts}, err)
}

// stockCommand is started by bench as a child process.
type stockCommand struct {
	Listen string `required:""`
	Data   string `required:""`
	Badger bool
}

// Run serves until the process is told to stop.
func (c *stockCommand) Run(env *environment) error {
	dir := ""
	if c.Badger {
		dir = c.Data
	}
	return bench.ServeStock(env.ctx, c.Listen, dir)
}
