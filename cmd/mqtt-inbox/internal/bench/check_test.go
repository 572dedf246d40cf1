package bench

import "testing"

func TestCheckerFindsFaults(t *testing.T) {
	type message struct {
		publisher int
		number    uint64
	}
	var both []message
	for n := range uint64(3) {
		both = append(both, message{0, n}, message{1, n})
	}
	tests := []struct {
		name    string
		acked   []uint64
		arrived []message
		want    Faults
	}{
		{"everything in order", []uint64{3, 3}, both, Faults{}},
		{"nothing was sent", []uint64{0, 0}, nil, Faults{}},
		{"more than was acknowledged", []uint64{2, 2}, both, Faults{}},
		{"publishers interleave differently", []uint64{2, 1}, []message{{1, 0}, {0, 0}, {0, 1}}, Faults{}},
		{"a publisher is missing", []uint64{2, 3}, []message{{0, 0}, {0, 1}}, Faults{Lost: 3}},
		{"the last is lost", []uint64{3}, []message{{0, 0}, {0, 1}}, Faults{Lost: 1}},
		{"one in between is lost", []uint64{3}, []message{{0, 0}, {0, 2}}, Faults{Lost: 1}},
		{"one comes twice", []uint64{2}, []message{{0, 0}, {0, 1}, {0, 1}}, Faults{Repeated: 1}},
		{"an old one comes again", []uint64{3}, []message{{0, 0}, {0, 1}, {0, 2}, {0, 0}}, Faults{Repeated: 1}},
		{"two change places", []uint64{3}, []message{{0, 1}, {0, 0}, {0, 2}}, Faults{Misordered: 1}},
		{"late and then again", []uint64{2}, []message{{0, 1}, {0, 0}, {0, 0}}, Faults{Misordered: 1, Repeated: 1}},
		{"all at once", []uint64{4}, []message{{0, 2}, {0, 1}, {0, 2}}, Faults{Lost: 2, Repeated: 1, Misordered: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newChecker()
			for _, m := range test.arrived {
				c.take(m.publisher, m.number)
			}
			if got := c.result(test.acked); got != test.want {
				t.Errorf("faults: %v, want %v", got, test.want)
			}
			if got, want := c.complete(test.acked), test.want.Lost == 0; got != want {
				t.Errorf("complete: %v, want %v", got, want)
			}
		})
	}
}

func BenchmarkCheckerInOrder(b *testing.B) {
	c := newChecker()
	var n uint64
	for b.Loop() {
		c.take(0, n)
		n++
	}
}
