package client_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

// children are what the test binary does when a test has started it to kill it: with a
// path, and the number to begin at. Each line that one prints is something that must
// last.
var children = map[string]func(path string, begin int) error{
	"seen":   seenChild,
	"outbox": outboxChild,
}

// ahead is how many lines a child may print before any is read: few enough that an outbox has
// room for what they stand for, however seldom the test gets to read.
const ahead = 500

// goesOn returns what a child calls before each line. It waits while the child is too far ahead.
func goesOn() func() error {
	leave := bufio.NewReader(os.Stdin)
	return func() error {
		_, err := leave.ReadByte()
		return err
	}
}

// What a child is told, in its environment.
const childName, childPath, childBegin = "INBOX_CLIENT_CHILD", "INBOX_CLIENT_PATH", "INBOX_CLIENT_BEGIN"

func TestMain(m *testing.M) {
	if name := os.Getenv(childName); name != "" {
		begin, err := strconv.Atoi(os.Getenv(childBegin))
		if err == nil {
			err = children[name](os.Getenv(childPath), begin)
		}
		fmt.Fprintln(os.Stderr, "the child ends:", err)
		os.Exit(1)
	}
	leaktest.Main(m)
}

// killed runs a child, kills it at some moment after some line of its first lines, and
// returns all that it has printed.
func killed(t *testing.T, name, path string, begin, lines int) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childName+"="+name, childPath+"="+path, childBegin+"="+strconv.Itoa(begin))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, ahead)); err != nil {
		t.Fatal(err)
	}
	stop := 1 + rand.IntN(lines)
	var all []string
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil { // the end; of a line that is not complete nothing was promised
			break
		}
		all = append(all, line[:len(line)-1])
		_, _ = in.Write([]byte{0}) // it may be dead
		if len(all) == stop {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return all
}
