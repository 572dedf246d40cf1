package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// commands is the command line.
type commands struct {
	Serve       serveCommand   `cmd:"" help:"Run the broker."`
	Health      healthCommand  `cmd:"" help:"Check that a broker accepts clients."`
	Inbox       inboxCommand   `cmd:"" help:"Look into what is stored."`
	Bench       benchCommand   `cmd:"" help:"Measure a broker, and check every message while doing so."`
	Version     versionCommand `cmd:"" help:"Print the version."`
	StockBroker stockCommand   `cmd:"" hidden:"" help:"Run the mochi broker as it comes, as a baseline of bench."`
}

// environment is what commands use of the world. Commands take it as an
// argument of Run.
type environment struct {
	ctx    context.Context // ends with the first signal to stop
	stdout io.Writer
	stderr io.Writer
}

// usageError is a request that cannot be right.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release) // a second signal ends the process at once
	os.Exit(run(environment{ctx: ctx, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:]))
}

// run carries out a command line and returns the exit code. Asked for help, it
// prints it and exits.
func run(env environment, args []string) int {
	var c commands
	parser, err := kong.New(&c,
		kong.Name("mqtt-inbox"),
		kong.Description("An MQTT broker that keeps every acknowledged message for receivers who are away."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(env.stdout, env.stderr),
		kong.Vars(defaults),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(mapTime)),
	)
	if err != nil {
		return report(env, fmt.Errorf("command line: %w", err))
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	selected, err := parser.Parse(args)
	if err != nil {
		return report(env, usageError{fmt.Errorf("%w; see %s --help", err, understood(err))})
	}
	return report(env, selected.Run(&env))
}

// understood returns the command line up to the last command that it names.
func understood(err error) string {
	failed := new(kong.ParseError)
	if errors.As(err, &failed) && failed.Context.Selected() != nil {
		return failed.Context.Selected().FullPath()
	}
	return "mqtt-inbox"
}

// report prints an error in one line and returns its exit code.
func report(env environment, err error) int {
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(env.stderr, "mqtt-inbox: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}
