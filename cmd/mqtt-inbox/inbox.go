package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/badger"
)

type inboxCommand struct {
	Verify inboxVerifyCommand `cmd:"" help:"Prove that nothing is missing in a data directory, and nothing left behind, while no broker uses it."`
}

type inboxVerifyCommand struct {
	Data      string        `default:"data" placeholder:"DIR" help:"Directory of everything that is stored; it is not changed (default: ${default})."`
	Retention time.Duration `default:"${retention}" placeholder:"TIME" help:"The --retention that the broker runs with; 0s for ever (default: ${default})."`
}

// Run prints one line for each fault, and one that sums up.
func (c *inboxVerifyCommand) Run(env *environment) error {
	if c.Retention < broker.MinRetention && c.Retention != 0 {
		return usageError{fmt.Errorf("retention %v: choose %v or more, or 0s for ever", c.Retention, broker.MinRetention)}
	}
	options := badger.Options{
		Dir: c.Data, Retention: c.Retention,
		Log: slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if options.Retention == 0 {
		options.Retention = -1 // 0 is the default there
	}
	var unprinted error
	sum, err := badger.Verify(env.ctx, options, func(f badger.Fault) {
		_, err := fmt.Fprintln(env.stdout, f)
		unprinted = cmp.Or(unprinted, err)
	})
	if err := errors.Join(err, unprinted); err != nil {
		return err
	}
	if err := printSummary(env, sum); err != nil {
		return err
	}
	if sum.Faults > 0 {
		return fmt.Errorf("%s has faults: %d", dataPath(c.Data), sum.Faults)
	}
	return nil
}

func printSummary(env *environment, sum badger.Summary) error {
	line := fmt.Sprintf("sessions %d, groups %d, streams %d, subscriptions %d, entries %d, bodies %d, retained %d, bytes %d",
		sum.Sessions, sum.Groups, sum.Streams, sum.Subscriptions, sum.Entries, sum.Bodies, sum.Retained, sum.Bytes)
	for _, more := range []struct {
		what string
		n    int
	}{
		{"filters kept in history", sum.Histories},
		{"blocks that wait to be deleted", sum.Waiting},
		{"entries whose message may have expired", sum.Expired},
		{"entries of a commit that a crash cut off", sum.Torn},
	} {
		if more.n > 0 {
			line += fmt.Sprintf("; %s %d", more.what, more.n)
		}
	}
	_, err := fmt.Fprintln(env.stdout, line)
	return err
}
