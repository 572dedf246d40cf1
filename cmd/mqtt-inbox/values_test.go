package main

import (
	"math"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
)

func TestParseTime(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"90s", 90 * time.Second, true},
		{"1h30m", 90 * time.Minute, true},
		{"7d", 7 * day, true},
		{"1d12h", 36 * time.Hour, true},
		{"0d", 0, true},
		{"0", 0, true},
		{"-1s", -time.Second, true}, // for whoever takes the value to refuse
		{"106751d", 106751 * day, true},
		{"106752d", 0, false}, // more than fits
		{"106751d24h", 0, false},
		{"99999999999999999999d", 0, false},
		{"", 0, false},
		{"d", 0, false},
		{"7", 0, false},
		{"7dd", 0, false},
		{"7d1d", 0, false},
		{"-7d", 0, false},
		{"7d-1h", 0, false},
		{"1.5d", 0, false},
		{"12h7d", 0, false},
		{"soon", 0, false},
	}
	for _, test := range tests {
		if got, err := parseTime(test.text); got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: %v, error %v, want %v", test.text, got, err, test.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	tests := []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"1000000", 1e6, true},
		{"12B", 12, true},
		{"500MB", 500e6, true},
		{"10GiB", 10 << 30, true},
		{"8388607TiB", 8388607 << 40, true},
		{"8388608TiB", 0, false}, // more than fits
		{"9223372036854775807", math.MaxInt64, true},
		{"9223372036854775808", 0, false},
		{"", 0, false},
		{"GB", 0, false},
		{"-1", 0, false},
		{"1.5GB", 0, false},
		{"5XB", 0, false},
		{"5GBB", 0, false},
		{"5 GB", 0, false},
	}
	for _, test := range tests {
		if got, err := parseBytes(test.text); got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: %v, error %v, want %v", test.text, got, err, test.want)
		}
	}
}

func TestKept(t *testing.T) {
	tests := []struct {
		text string
		want kept
		ok   bool
	}{
		{"chat/#", kept{Filter: "chat/#", Keep: broker.DefaultKeep.Milliseconds()}, true},
		{"chat/#=", kept{Filter: "chat/#", Keep: broker.DefaultKeep.Milliseconds()}, true},
		{"chat/#=30d", kept{Filter: "chat/#", Keep: 30 * 24 * 3600 * 1000}, true},
		{"chat/#=0s", kept{Filter: "chat/#"}, true},
		{"chat/#=1d,10GiB", kept{Filter: "chat/#", Keep: 24 * 3600 * 1000, Bytes: 10 << 30}, true},
		{"chat/#=,1000", kept{Filter: "chat/#", Keep: broker.DefaultKeep.Milliseconds(), Bytes: 1000}, true},
		{"a=b,c/#=1s", kept{Filter: "a=b,c/#", Keep: 1000}, true},
		{"a,b", kept{Filter: "a,b", Keep: broker.DefaultKeep.Milliseconds()}, true},
		{"a=1ns", kept{Filter: "a", Keep: 1}, true}, // for ever is not meant
		{"a=b", kept{}, false},
		{"a=1s,", kept{}, false},
		{"a=1s,5,6", kept{}, false},
	}
	for _, test := range tests {
		var got kept
		err := got.UnmarshalText([]byte(test.text))
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%q: %+v, error %v, want %+v", test.text, got, err, test.want)
		}
	}
}
