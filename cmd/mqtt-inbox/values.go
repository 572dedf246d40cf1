package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// mapTime lets every flag that is a time have days, too.
func mapTime(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	d, err := parseTime(text)
	if err != nil {
		return err
	}
	target.SetInt(int64(d))
	return nil
}

const day = 24 * time.Hour

// parseTime is [time.ParseDuration], but for days, which may come first: 7d, 1d12h.
func parseTime(text string) (time.Duration, error) {
	days, rest := uint64(0), text
	var err error
	if digits, behind, ok := strings.Cut(text, "d"); ok {
		days, err = strconv.ParseUint(digits, 10, 32)
		rest = behind
	}
	var d time.Duration
	if err == nil && (rest != "" || text == "") {
		d, err = time.ParseDuration(rest)
	}
	if err != nil || days > 0 && (d < 0 || time.Duration(days) > (math.MaxInt64-d)/day) {
		return 0, fmt.Errorf("%q is no time, as in 90s, 12h, 7d or 1d12h", text)
	}
	return time.Duration(days)*day + d, nil
}

// units are what the number of bytes can be followed by.
var units = map[string]int64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// parseBytes reads a number of bytes with or without a unit.
func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "kKMGTiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit := units[text[len(digits):]]
	if err != nil || unit == 0 || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no number of bytes, as in 1000000, 500MB or 10GiB", text)
	}
	return n * unit, nil
}

// kept is a value of --history: FILTER[=KEEP[,BYTES]]. A filter may have = itself;
// then the last one counts.
type kept inbox.Kept

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *kept) UnmarshalText(text []byte) error {
	*k = kept{Filter: string(text), Keep: broker.DefaultKeep.Milliseconds()}
	i := strings.LastIndex(k.Filter, "=")
	if i < 0 {
		return nil
	}
	limits := k.Filter[i+1:]
	k.Filter = k.Filter[:i]
	keep, bytes, limited := strings.Cut(limits, ",")
	var errs [2]error
	if keep != "" {
		var d time.Duration
		d, errs[0] = parseTime(keep)
		k.Keep = d.Milliseconds()
		if d > 0 && k.Keep == 0 {
			k.Keep = 1 // which is too short, where 0 is for ever
		}
	}
	if limited {
		k.Bytes, errs[1] = parseBytes(bytes)
	}
	return errors.Join(errs[:]...)
}
