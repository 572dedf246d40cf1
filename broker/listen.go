package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// listenTCP binds a TCP address. Errors say what is in the way.
func listenTCP(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: the port is in use; stop the other program or choose another port: %w", address, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("listen on %s: not permitted; choose a port above 1023: %w", address, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("listen on %s: this machine does not have the address: %w", address, err)
	}
	return nil, fmt.Errorf("listen on %s: %w", address, err)
}

// listenUnix binds a unix socket. The socket that a dead broker left behind is
// replaced; one that answers, and a file that is no socket, are not touched.
func listenUnix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen on unix socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen on unix socket %s: the file exists and is not a socket; choose another path", path)
	case answers(path):
		return nil, fmt.Errorf("listen on unix socket %s: another program listens on it; stop it or choose another path", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on unix socket: remove the one left behind: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on unix socket %s: %w", path, err)
	}
	return l, nil
}

// answers reports whether somebody listens on a unix socket. Only a refusal
// proves that nobody does.
func answers(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}
