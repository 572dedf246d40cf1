package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// broker is a running broker, usually a child process.
type broker struct {
	address string
	cmd     *exec.Cmd     // nil if it is not ours to stop
	output  *bytes.Buffer // to be read after ended
	ended   chan struct{} // closed when the process is gone
	counts  bool          // it publishes topicCommits
	ready   time.Duration // from the start of the process to the first CONNACK
}

// startProcess returns once the broker answers on the address.
func startProcess(ctx context.Context, cmd *exec.Cmd, address string) (*broker, error) {
	b := &broker{address: address, cmd: cmd, output: new(bytes.Buffer), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = b.output, b.output
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(b.ended)
		_ = cmd.Wait() // it is stopped by a signal
	}()
	if err := b.waitReady(ctx); err != nil {
		b.kill()
		return nil, fmt.Errorf("%w\n%s", err, bytes.TrimSpace(b.output.Bytes()))
	}
	b.ready = time.Since(start)
	return b, nil
}

// waitReady connects until the broker accepts a client.
func (b *broker) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := dial(ctx, b.address, "bench-ready", true)
		if err == nil {
			c.leave()
			return nil
		}
		if b.cmd == nil {
			return err
		}
		select {
		case <-again.C:
		case <-b.ended:
			return errors.New("the broker ended")
		case <-ctx.Done():
			return fmt.Errorf("the broker does not answer: %w", err)
		}
	}
}

// stop ends the process as an operator would.
func (b *broker) stop() error {
	if b.cmd == nil {
		return nil
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop broker: %w", err)
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(stopTimeout):
		b.kill()
		return fmt.Errorf("the broker did not stop within %v", stopTimeout)
	}
}

// kill ends the process as a power cut would end it, as far as a process can.
func (b *broker) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill() // fails only if it is gone
	<-b.ended
}

// Memory is what a broker process holds, in bytes; 0 if it cannot be known.
type Memory struct {
	Anonymous uint64 `json:"anonymous_bytes"` // RssAnon
	Resident  uint64 `json:"resident_bytes"`  // VmRSS, with pages of files
	Heap      uint64 `json:"heap_bytes"`      // as the broker itself reports it
}

func (b *broker) memory(ctx context.Context) (Memory, error) {
	var m Memory
	if b.cmd == nil {
		return m, nil
	}
	file, err := os.Open("/proc/" + strconv.Itoa(b.cmd.Process.Pid) + "/status")
	if err != nil {
		return m, fmt.Errorf("read memory: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "RssAnon":
			m.Anonymous = kib << 10
		case name == "VmRSS":
			m.Resident = kib << 10
		}
	}
	if err := lines.Err(); err != nil {
		return m, fmt.Errorf("read memory: %w", err)
	}
	m.Heap, _ = b.counter(ctx, "$SYS/broker/system/memory", "$SYS/broker/heap/current")
	return m, nil
}

// counterWait bounds how long a counter is waited for; brokers send theirs
// every second.
const counterWait = 2500 * time.Millisecond

// counter returns the number that the broker publishes under one of the topics,
// as it is after the call began: the retained one may be a second old, so the
// next is awaited. It reports false if none comes.
func (b *broker) counter(ctx context.Context, topics ...string) (uint64, bool) {
	c, err := dial(ctx, b.address, "bench-counter", true)
	if err != nil {
		return 0, false
	}
	defer c.leave()
	c.idle = counterWait
	for _, topic := range topics {
		if _, err := c.Write(subscribeFrame(topic, 0)); err != nil {
			return 0, false
		}
	}
	for {
		first, body, err := c.next()
		if err != nil {
			return 0, false
		}
		if first&0xF0 != kindPublish || first&1 == 1 { // a retained one is from before
			continue
		}
		d, err := parsePublish(first, body)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(string(d.payload), 10, 64)
		return n, err == nil
	}
}

// freePort returns a port that nobody uses at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
