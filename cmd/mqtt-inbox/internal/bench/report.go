package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Results are what a benchmark found. Tables name their units.
type Results struct {
	Acks    []AckResult    `json:"acks,omitempty"`
	Replays []ReplayResult `json:"replays,omitempty"`
	Starts  []StartResult  `json:"starts,omitempty"`
	Groups  *GroupResults  `json:"groups,omitempty"`
}

// PrintJSON writes the results as one JSON object.
func (r Results) PrintJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("print results: %w", err)
	}
	return nil
}

// Print writes the results as tables.
func (r Results) Print(w io.Writer) error {
	for _, print := range []func(io.Writer) error{r.printAcks, r.printReplays, r.printStarts, r.printGroups} {
		if err := print(w); err != nil {
			return fmt.Errorf("print results: %w", err)
		}
	}
	return nil
}

func (r Results) printAcks(w io.Writer) error {
	if len(r.Acks) == 0 {
		return nil
	}
	a := r.Acks[0]
	how := "each message to one of the receivers in turn"
	if a.Fanout {
		how = "each message to all receivers"
	}
	t := newTable(w, fmt.Sprintf("Acknowledging messages of %d bytes for absent receivers, %s; medians of %d runs", a.Size, how, a.Runs),
		"target", "receivers", "publishers×in flight", "msg/s", "ack p50 ms", "ack p99 ms", "syncs/msg", "faults")
	for _, a := range r.Acks {
		faults := "not checked"
		if a.Verified {
			faults = a.Faults.String()
		}
		syncs := "unknown"
		if a.Syncs >= 0 {
			syncs = fmt.Sprintf("%.4f", a.Syncs)
		}
		t.row(a.Target, a.Receivers, a.Shape, rate(a.Rate), ms(a.Ack.P50), ms(a.Ack.P99), syncs, faults)
	}
	return t.end()
}

func (r Results) printReplays(w io.Writer) error {
	if len(r.Replays) == 0 {
		return nil
	}
	title := fmt.Sprintf("Replaying messages of %d bytes to receivers that come back at once", r.Replays[0].Size)
	t := newTable(w, title, "target", "receivers", "messages", "filled msg/s", "first p50 ms", "first max ms", "replayed msg/s", "faults")
	for _, p := range r.Replays {
		t.row(p.Target, p.Receivers, p.Messages, rate(p.FillRate), ms(p.First.P50), ms(p.First.Max), rate(p.Rate), p.Faults)
	}
	if err := t.end(); err != nil {
		return err
	}
	t = newTable(w, fmt.Sprintf("Pages of %d messages to the first receiver", pageSize),
		"target", "receivers", "start ms", "end ms", "p50 ms", "p99 ms", "max ms")
	for _, p := range r.Replays {
		t.row(p.Target, p.Receivers, ms(p.Pages.Start), ms(p.Pages.End), ms(p.Pages.P50), ms(p.Pages.P99), ms(p.Pages.Max))
	}
	if err := t.end(); err != nil {
		return err
	}
	t = newTable(w, "Memory of the broker while the messages wait, and afterwards",
		"target", "receivers", "messages", "anonymous MiB", "resident MiB", "heap MiB", "anonymous after", "resident after", "heap after")
	for _, p := range r.Replays {
		t.row(p.Target, p.Receivers, p.Messages, mib(p.Waiting.Anonymous), mib(p.Waiting.Resident), mib(p.Waiting.Heap),
			mib(p.After.Anonymous), mib(p.After.Resident), mib(p.After.Heap))
	}
	return t.end()
}

func (r Results) printStarts(w io.Writer) error {
	if len(r.Starts) == 0 {
		return nil
	}
	t := newTable(w, "From the start of the process to the first CONNACK",
		"target", "sessions", "messages", "after kill ms", "after stop ms", "anonymous MiB", "resident MiB")
	for _, s := range r.Starts {
		t.row(s.Target, s.Sessions, s.Messages, ms(s.AfterKill), ms(s.AfterStop), mib(s.Memory.Anonymous), mib(s.Memory.Resident))
	}
	return t.end()
}

// table is aligned text with a title.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, title string, columns ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintf(t.w, "\n%s\n\n%s\t\n", title, strings.Join(columns, "\t")) // end reports errors
	return t
}

func (t table) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "%v\t", c)
	}
	fmt.Fprintln(t.w)
}

func (t table) end() error { return t.w.Flush() }

func rate(perSecond float64) string { return fmt.Sprintf("%.0f", perSecond) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }

// mib returns "unknown" for nothing: a process holds more.
func mib(bytes uint64) string {
	if bytes == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.0f", float64(bytes)/(1<<20))
}
