package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. What takes so long on a busy
// machine does not end.
const patience = time.Minute

// Find returns an error that names the goroutines that do not end, but for those that the
// options leave out. It returns as soon as there are none.
func Find(options ...goleak.Option) error {
	for over := time.Now().Add(patience); ; {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(over) {
			return err
		}
	}
}

// Main runs the tests of a package, and fails if they pass and leave goroutines behind.
// It is the whole of a TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
