package hooks

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		holds, most := 0, 0 // guarded by the turn
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := turns.take(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				holds++
				most = max(most, holds)
				<-time.After(time.Second) // the others come meanwhile
				holds--
				turns.give("x")
			})
		}
		synctest.Wait()
		if err := turns.take(t.Context(), "y"); err != nil {
			t.Error(err)
		}
		turns.give("y")

		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := turns.take(impatient, "x"); err == nil {
			t.Error("took a turn that another has")
		}
		wg.Wait()
		if most != 1 || len(turns.queues) != 0 {
			t.Errorf("%d had the turn at once, %d queues are left", most, len(turns.queues))
		}
	})
}
