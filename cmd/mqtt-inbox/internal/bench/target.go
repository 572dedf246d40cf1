package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Target is what is measured.
type Target struct {
	// Name is how the target is called in results and on the command line.
	Name string

	// command returns how to start the broker on a port of 127.0.0.1 with its
	// data in dir. Nil for what runs already, and for the bare disk.
	command func(port int, dir string) (*exec.Cmd, error)

	address string // of a broker that runs already
	isDisk  bool   // no broker: append and sync
	ours    bool   // keeps the promises that are checked; a fault of it is a failure
}

// Names of the targets that [Targets] knows.
const (
	Inbox       = "inbox"        // this broker
	Raw         = "raw"          // a file, appended to and synced
	Mochi       = "mochi"        // the mochi broker as it is, in memory
	MochiBadger = "mochi-badger" // the same with its Badger hook and synced writes
	Mosquitto   = "mosquitto"    // from PATH, with persistence and no limits
)

// Targets returns the named targets. Executable is this program: it is started
// again as the brokers that are part of it.
func Targets(executable string, names ...string) ([]Target, error) {
	child := func(args ...string) func(int, string) (*exec.Cmd, error) {
		return func(port int, dir string) (*exec.Cmd, error) {
			address := "127.0.0.1:" + strconv.Itoa(port)
			all := append(slices.Clone(args), "--listen", address, "--data", dir)
			return exec.Command(executable, all...), nil
		}
	}
	known := map[string]Target{
		Inbox:       {Name: Inbox, command: child("serve", "--log-level", "error"), ours: true},
		Raw:         {Name: Raw, isDisk: true},
		Mochi:       {Name: Mochi, command: child("stock-broker")},
		MochiBadger: {Name: MochiBadger, command: child("stock-broker", "--badger")},
		Mosquitto:   {Name: Mosquitto, command: mosquitto},
	}
	targets := make([]Target, 0, len(names))
	for _, name := range names {
		t, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("no target is called %q", name)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// Running is a broker that runs already. It is left as it was found, apart
// from what it counts.
func Running(address string) Target { return Target{Name: address, address: address, ours: true} }

// mosquitto is allowed to queue as much as it likes, and to send as much at
// once as this broker does.
func mosquitto(port int, dir string) (*exec.Cmd, error) {
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		return nil, fmt.Errorf("mosquitto is not installed: %w", err)
	}
	config := fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 200\n"+
		"persistence true\npersistence_location %s/\nsys_interval 1\nuser root\nlog_type error\n", port, dir)
	file := filepath.Join(dir, "mosquitto.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("configure mosquitto: %w", err)
	}
	return exec.Command(path, "-c", file), nil
}

// with returns the target started with further arguments. It must be one that
// is started.
func (t Target) with(args ...string) Target {
	command := t.command
	t.command = func(port int, dir string) (*exec.Cmd, error) {
		cmd, err := command(port, dir)
		if err == nil {
			cmd.Args = append(cmd.Args, args...)
		}
		return cmd, err
	}
	return t
}

// start runs the target on a data directory, or finds it running.
func (t Target) start(ctx context.Context, dir string) (*broker, error) {
	if t.command == nil {
		b := &broker{address: t.address, counts: t.ours}
		return b, b.waitReady(ctx)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd, err := t.command(port, dir)
	if err != nil {
		return nil, err
	}
	b, err := startProcess(ctx, cmd, "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", t.Name, err)
	}
	b.counts = t.ours
	return b, nil
}

// withDir calls f with a directory that exists for its duration.
func withDir(base string, f func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(base, "mqtt-inbox-bench-")
	if err != nil {
		return fmt.Errorf("make temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}
