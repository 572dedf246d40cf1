package brokertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const mainPackage = "github.com/mqtt-inbox/mqtt-inbox/cmd/mqtt-inbox"

// Binary returns the path of the binary under test, which the first call
// builds.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("build the broker: %v", err)
	}
	return path
}

var built = sync.OnceValues(build)

// buildDir holds the binary until Main removes it.
var buildDir string

func build() (string, error) {
	dir, err := os.MkdirTemp("", "mqtt-inbox-test-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	buildDir = dir
	path := filepath.Join(dir, "mqtt-inbox")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, mainPackage)...).CombinedOutput() //nolint:gosec // constant arguments
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Main runs the tests of a package and removes the binary after them. Extra
// checks run when all tests have passed.
func Main(m *testing.M, checks ...func() error) {
	code := m.Run()
	errs := []error{os.RemoveAll(buildDir)}
	if code == 0 {
		for _, check := range checks {
			errs = append(errs, check())
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
