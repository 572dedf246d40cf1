package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/cmd/mqtt-inbox/internal/bench"
)

type benchCommand struct {
	Ack    benchAckCommand    `cmd:"" help:"How fast messages for absent receivers are acknowledged."`
	Replay benchReplayCommand `cmd:"" help:"How fast receivers that come back get what has waited, and what waiting costs."`
	Group  benchGroupCommand  `cmd:"" help:"What a group costs: many sessions with one subscription."`
}

// benchTarget is what the benchmarks have in common.
type benchTarget struct {
	Address  string        `placeholder:"HOST:PORT" help:"Measure a broker that runs already, instead of this one started afresh. It must let everyone in."`
	With     []string      `placeholder:"NAME" enum:"raw,mochi,mochi-badger,mosquitto" help:"Measure also, in turn with the broker: raw (append to a file and sync), mochi (as it comes), mochi-badger (with its own storage, synced), mosquitto (must be installed)."`
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

	Size      int           `default:"256" placeholder:"BYTES" help:"Size of a payload (default: ${default})."`
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
	if slices.Min(append(c.Receivers, c.Runs)) < 1 || c.Count <= 0 && c.Duration <= 0 {
		return usageError{errors.New("nothing to measure: choose at least one receiver and one run, and a duration above 0s")}
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
		Runs:      c.Runs,
		Verify:    c.Verify,
		Patience:  c.Patience,
		Dir:       dir,
		Log:       log,
	})
	return c.print(env, bench.Results{Acks: acks}, err)
}

type benchReplayCommand struct {
	benchTarget

	Size      int           `default:"256" placeholder:"BYTES" help:"Size of a payload (default: ${default})."`
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
	if slices.Min(append(c.Receivers, c.Messages)) < 1 || c.Messages < slices.Max(append(c.Receivers, 1)) {
		return usageError{errors.New("nothing to measure: choose at least one receiver, and a message for each")}
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

type benchGroupCommand struct {
	benchTarget

	Parts []string `default:"publish,live,drain,many" enum:"publish,live,drain,many" placeholder:"NAME" help:"What to measure: publish (to groups whose members are away), live (to one whose members are connected), drain (the members of one return at once), many (one member of many groups returns) (default: ${default})."`
	Keep  []string `default:"copies,references,stream" enum:"copies,references,stream" placeholder:"NAME" help:"How this broker keeps the messages: copies (published to each member by itself), references, stream (default: ${default})."`
	Size  []int    `default:"256,4096" placeholder:"BYTES" help:"Sizes of a payload (default: ${default})."`
	Runs  int      `default:"3" placeholder:"N" help:"Runs of which the median is taken (default: ${default})."`

	Members  []int         `group:"Publishing" default:"10,100,1000,10000,100000" placeholder:"N" help:"Members of a group (default: ${default})."`
	Shapes   []bench.Shape `group:"Publishing" default:"4x100,1x1" placeholder:"PxN" help:"Publishers by unacknowledged messages of each (default: ${default})."`
	Duration time.Duration `group:"Publishing" default:"3s" placeholder:"TIME" help:"How long messages are published in one run; those in flight then are waited for (default: ${default})."`
	Count    int           `group:"Publishing" placeholder:"N" help:"Messages of one run, instead of --duration."`
	Verify   bool          `group:"Publishing" negatable:"" default:"true" help:"Let the first, the last and the middle member take everything afterwards and check it (default: yes)."`

	Live         int `group:"Connected members" default:"1000" placeholder:"N" help:"Members that are connected; shapes are those of publishing (default: ${default})."`
	LiveMessages int `group:"Connected members" default:"1000" placeholder:"N" help:"Messages for each of them (default: ${default})."`

	Returning int `group:"Draining" default:"1000" placeholder:"N" help:"Members that return at once (default: ${default})."`
	Messages  int `group:"Draining" default:"1000" placeholder:"N" help:"Messages for each of them (default: ${default})."`

	Groups  int `group:"A member of many groups" default:"1000" placeholder:"N" help:"Groups (default: ${default})."`
	News    int `group:"A member of many groups" default:"3" placeholder:"N" help:"Groups that have messages when it returns (default: ${default})."`
	Few     int `group:"A member of many groups" default:"5" placeholder:"N" help:"Messages of each of these (default: ${default})."`
	Returns int `group:"A member of many groups" default:"100" placeholder:"N" help:"How often it returns in each run (default: ${default})."`
}

// Run measures and prints.
func (c *benchGroupCommand) Run(env *environment) error {
	targets, err := c.targets()
	if err != nil {
		return err
	}
	if c.News < 1 || c.News > c.Groups || c.Few < 1 || c.Returns < 1 {
		return usageError{fmt.Errorf("%d of %d groups with %d messages, %d times: choose at least one of each, and no more than there are", c.News, c.Groups, c.Few, c.Returns)}
	}
	if slices.Min(append(c.Members, c.Runs, c.Live, c.LiveMessages, c.Returning, c.Messages)) < 1 {
		return usageError{errors.New("a group without members or messages, or no run: choose at least one of each")}
	}
	dir, log := c.prepare(env)
	o := bench.GroupOptions{
		Targets:  targets,
		Sizes:    c.Size,
		Runs:     c.Runs,
		Patience: c.Patience,
		Dir:      dir,
		Log:      log,
		Shapes:   c.Shapes,
		Duration: c.Duration,
		Count:    c.Count,
		Verify:   c.Verify,
		Waiting:  c.Messages,
		News:     c.News,
		Few:      c.Few,
		Returns:  c.Returns,
	}
	for _, name := range c.Keep {
		o.Ways = append(o.Ways, bench.Way(name))
	}
	if slices.Contains(c.Parts, "publish") {
		o.Members = c.Members
	}
	if slices.Contains(c.Parts, "live") {
		o.Live, o.LiveCount = c.Live, c.LiveMessages
	}
	if slices.Contains(c.Parts, "drain") {
		o.Returning = c.Returning
	}
	if slices.Contains(c.Parts, "many") {
		o.Groups = c.Groups
	}
	groups, err := bench.Group(env.ctx, o)
	return c.print(env, bench.Results{Groups: &groups}, err)
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
