package broker

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenTCPNamesWhatIsInTheWay(t *testing.T) {
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tests := []struct{ name, address, want string }{
		{"port in use", l.Addr().String(), "the port is in use"},
		{"foreign address", "192.0.2.1:0", "does not have the address"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if l, err := listenTCP(test.address); err == nil {
				l.Close()
				t.Error("it listens")
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }

	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	live, err := net.Listen("unix", path("live"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	dead, err := net.Listen("unix", path("dead"))
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()

	tests := []struct{ name, want string }{
		{"new", ""},
		{"dead", ""},
		{"file", "is not a socket"},
		{"live", "another program listens on it"},
		{"none/such", "no such file or directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := listenUnix(path(test.name))
			if err == nil {
				l.Close()
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("error: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error: %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := os.Stat(path("file")); err != nil {
		t.Errorf("the file in the way: %v", err)
	}
	if _, err := os.Stat(path("live")); err != nil {
		t.Errorf("the live socket: %v", err)
	}
}
