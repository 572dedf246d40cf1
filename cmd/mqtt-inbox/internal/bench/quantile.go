package bench

import (
	"math"
	"slices"
	"time"
)

// Quantiles sum up durations.
type Quantiles struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// quantiles sorts the samples.
func quantiles(samples []time.Duration) Quantiles {
	slices.Sort(samples)
	return Quantiles{quantile(samples, 0.5), quantile(samples, 0.99), quantile(samples, 1)}
}

// quantile returns the smallest sample that at least the share q of all do not
// exceed; 0 without samples. They must be sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// median returns the middle of the values, or the mean of the middle two; 0
// without values. It leaves them as they are.
func median[T ~int | ~int64 | ~uint64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// medianOf returns the median of what f says of each run.
func medianOf[R any, T ~int | ~int64 | ~uint64 | ~float64](runs []R, f func(R) T) T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = f(r)
	}
	return median(values)
}

// medianQuantiles returns the median of each quantile of the runs.
func medianQuantiles[R any](runs []R, f func(R) Quantiles) Quantiles {
	return Quantiles{
		P50: medianOf(runs, func(r R) time.Duration { return f(r).P50 }),
		P99: medianOf(runs, func(r R) time.Duration { return f(r).P99 }),
		Max: medianOf(runs, func(r R) time.Duration { return f(r).Max }),
	}
}
