package hooks

import "sync"

// places holds one for each that is taken.
type places chan struct{}

// take takes a place if there is one, and returns what gives it back, any number of
// times; nil if there is none.
func (p places) take() (giveBack func()) {
	select {
	case p <- struct{}{}:
		return sync.OnceFunc(func() { <-p })
	default:
		return nil
	}
}
