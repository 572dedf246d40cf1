package leaktest

import (
	"testing"
	"time"
)

// A goroutine that ends late is waited for.
func TestFindWaits(t *testing.T) {
	go func() { <-time.After(700 * time.Millisecond) }() // longer than goleak waits
	if err := Find(); err != nil {
		t.Error(err)
	}
}
