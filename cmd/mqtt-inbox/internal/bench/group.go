package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Way is how the messages for a group, the sessions subscribed to one filter,
// are kept.
type Way string

// The ways. A broker that is not this one has its own.
const (
	Copies     Way = "copies"     // no group: the publisher sends each member a message of its own
	References Way = "references" // stored once, and a reference for each member
	Stream     Way = "stream"     // stored once, each member has its position
	Own        Way = "its own"
)

// groupPattern matches the filters of groups, and no others.
const groupPattern = "+/group/#"

// GroupOptions say what [Group] measures, against each target; against this
// broker, in each way. Zero members, or groups, leave the part out.
type GroupOptions struct {
	Targets  []Target
	Ways     []Way
	Sizes    []int // of payloads, in bytes, at least 12
	Runs     int   // results are medians of so many
	Patience time.Duration
	Dir      string
	Log      *slog.Logger

	// Publishing to groups: each combination of a shape and a number of members.
	Members  []int
	Shapes   []Shape
	Duration time.Duration // of one run; what is unacknowledged then is waited for
	Count    int           // messages of one run, instead of Duration
	Verify   bool          // let a few members take everything afterwards, and check it

	// The members of one group are connected; publishers as in Shapes.
	Live      int
	LiveCount int // messages of one run

	// The members of one group return at once.
	Returning int
	Waiting   int // messages for each of them

	// One member of many groups returns, again and again.
	Groups  int
	News    int // groups that have messages for it each time
	Few     int // messages in each of these
	Returns int // how often, in each run
}

// GroupResults are what [Group] found.
type GroupResults struct {
	Publishes []GroupPublishResult `json:"publishes,omitempty"`
	Lives     []GroupLiveResult    `json:"lives,omitempty"`
	Drains    []GroupDrainResult   `json:"drains,omitempty"`
	Returns   []GroupReturnResult  `json:"returns,omitempty"`
}

// Group measures what a group costs: to publish to it while its members are away,
// and while they are connected, to have them return at once, and to be a member of
// many. Each run has
// a broker of its own with an empty data directory, and targets and ways take
// turns. The results that there are come with the error.
func Group(ctx context.Context, o GroupOptions) (GroupResults, error) {
	var results GroupResults
	for _, size := range o.Sizes {
		if err := checkSize(size); err != nil {
			return results, err
		}
	}
	variants := o.variants()
	faulty := false
	for _, part := range []func(context.Context, []variant, *GroupResults) (bool, error){o.publishes, o.lives, o.drains, o.returns} {
		hasFaults, err := part(ctx, variants, &results)
		if err != nil {
			return results, err
		}
		faulty = faulty || hasFaults
	}
	if faulty {
		return results, ErrFaults
	}
	return results, nil
}

// variant is a target that keeps messages in one way.
type variant struct {
	Target
	way Way
}

func (v variant) String() string { return fmt.Sprintf("%s, %s", v.Name, v.way) }

// variants returns what takes turns. A broker that runs already keeps messages
// as it was told to.
func (o GroupOptions) variants() []variant {
	flags := map[Way][]string{
		Copies:     {"--group-stream-from=-1"},
		References: {"--group-push=" + groupPattern},
		Stream:     {"--group-pull=" + groupPattern},
	}
	var variants []variant
	for _, t := range o.Targets {
		switch {
		case t.isDisk: // a file has no members
		case t.ours && t.command != nil:
			for _, way := range o.Ways {
				variants = append(variants, variant{t.with(flags[way]...), way})
			}
		default:
			variants = append(variants, variant{t, Own})
		}
	}
	return variants
}

// onBroker calls f with the variant started on a directory of its own.
func (o GroupOptions) onBroker(ctx context.Context, v variant, f func(b *broker, dir string) error) error {
	return withDir(o.Dir, func(dir string) error {
		b, err := v.start(ctx, dir)
		if err != nil {
			return err
		}
		return errors.Join(f(b, dir), b.stop())
	})
}

// newMembers returns the members of a group, and the topics that a message for
// all of them is published to: the one of the group, or those of the members.
func (v variant) newMembers(address string, members int) (fleet, []string) {
	f, topics := newFleet(address, newPrefix(), members, false)
	if v.way == Copies {
		return f, topics
	}
	topic := f.prefix + "/group/all"
	for i := range f.filters {
		f.filters[i] = []string{topic}
	}
	return f, []string{topic}
}

// settle waits until the broker has done what it does in the background, as far
// as its files show, and returns what they occupy. Of a broker that runs already
// it is not known where they are.
func (b *broker) settle(ctx context.Context, dir string) (bytes int64, known bool, err error) {
	const (
		quiet = 500 * time.Millisecond
		limit = 20 * time.Second
		step  = 50 * time.Millisecond
	)
	if b.cmd == nil {
		return 0, false, nil
	}
	start, changed := time.Now(), time.Now()
	bytes, known = allocated(dir)
	for known && time.Since(changed) < quiet && time.Since(start) < limit {
		if err := wait(ctx, step); err != nil {
			return 0, false, err
		}
		now, ok := allocated(dir)
		if now != bytes {
			changed = time.Now()
		}
		bytes, known = now, ok
	}
	return bytes, known, nil
}
