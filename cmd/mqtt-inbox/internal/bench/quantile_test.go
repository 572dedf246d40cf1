package bench

import (
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // unsorted: 100 to 1
	}
	tests := []struct {
		name    string
		samples []time.Duration
		want    Quantiles
	}{
		{"none", nil, Quantiles{}},
		{"one", []time.Duration{7}, Quantiles{7, 7, 7}},
		{"two", []time.Duration{9, 1}, Quantiles{1, 9, 9}},
		{"a hundred", hundred, Quantiles{50, 99, 100}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := quantiles(test.samples); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	tests := []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{4}, 4},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 6}, 5.5},
	}
	for _, test := range tests {
		if got := median(test.values); got != test.want {
			t.Errorf("median of %v: %v, want %v", test.values, got, test.want)
		}
	}
}

func TestPagesCompareStartAndEnd(t *testing.T) {
	var gaps []time.Duration
	for i := range 100 {
		gaps = append(gaps, time.Duration(i))
	}
	p := newPages(gaps)
	if p.Start != 4 || p.End != 94 || p.Max != 99 {
		t.Errorf("start %d, end %d, max %d; want 4, 94, 99", p.Start, p.End, p.Max)
	}
	if p := newPages(nil); p != (Pages{}) {
		t.Errorf("without pages: %v", p)
	}
}
