//go:build linux

package killtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mqtt-inbox/mqtt-inbox/broker/brokertest"
)

const (
	diskSize = 512 << 20

	// The ext4 request that ends a file system at once, and its flag for doing so
	// without writing the journal out: what was not synced is gone, as when the
	// power fails.
	ext4Shutdown   = 0x8004587d
	noJournalFlush = 2
)

// A disk that loses power keeps what was synced and nothing else. The broker
// must have synced everything that it acknowledged.
func TestPowerLossLosesNothing(t *testing.T) {
	d := newDisk(t)
	all := storings(2)
	how := all[len(all)-1]
	o := how.options()
	o.Data = filepath.Join(d.dir, "data")
	b := brokertest.Start(t, o)
	c := load(2)
	if *qos != 0 {
		c.QoS = byte(*qos) //nolint:gosec // 1 or 2
	}
	c.Address = b.Address
	c.Kills = min(c.Kills, 2)
	c.History, c.Rewind, c.HTTP = how.history, how.rewind, b.HTTP
	c.Crash = d.losePower
	c.Recover = func() {
		b.Kill()
		d.remount()
		b.Restart()
	}
	Run(t, c).Check(t)
	b.Kill() // before the disk goes
}

// disk is a file system of its own on a loop device.
type disk struct {
	t           *testing.T
	device, dir string
	root        *os.File // the mounted directory, for the request
}

// newDisk makes a disk that goes with the test, or skips the test with the
// reason where the machine does not permit one.
func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own can be mounted by root only")
	}
	brokertest.NeedTools(t, "mkfs.ext4", "losetup", "mount", "umount")
	image := filepath.Join(t.TempDir(), "disk")
	d := &disk{t: t, dir: t.TempDir()}
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := execute("mkfs.ext4", "-q", image); err != nil {
		t.Fatal(err)
	}
	device, err := execute("losetup", "--find", "--show", image)
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	d.device = strings.TrimSpace(device)
	t.Cleanup(func() { d.must("losetup", "--detach", d.device) })
	if _, err := execute("mount", d.device, d.dir); err != nil {
		t.Skipf("no mounting here: %v", err)
	}
	t.Cleanup(func() { d.unmount() })
	d.open()
	return d
}

// losePower ends the file system at once.
func (d *disk) losePower() {
	flag := uint32(noJournalFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.root.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag)))
	if errno != 0 {
		d.t.Errorf("end the file system: %v", errno)
	}
}

// remount brings the file system back as the journal left it.
func (d *disk) remount() {
	d.t.Helper()
	d.unmount()
	d.must("mount", d.device, d.dir)
	d.open()
}

func (d *disk) open() {
	d.t.Helper()
	root, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	d.root = root
}

func (d *disk) unmount() {
	d.t.Helper()
	if d.root != nil {
		_ = d.root.Close() // read only
	}
	d.must("umount", d.dir)
}

func (d *disk) must(name string, args ...string) {
	d.t.Helper()
	if _, err := execute(name, args...); err != nil {
		d.t.Error(err)
	}
}

// execute runs a command and returns what it printed.
func execute(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput() //nolint:gosec // the test's own words
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
