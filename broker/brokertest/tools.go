package brokertest

import (
	"os"
	"os/exec"
	"testing"
)

// NeedTools skips the test if one of the commands is not installed, and fails it
// instead where CI is set: there a skipped test would go unnoticed.
func NeedTools(t testing.TB, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := exec.LookPath(command); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", command)
		}
		t.Skipf("%s is not installed", command)
	}
}
