package bench

import (
	"fmt"
	"io"
	"time"
)

func (r Results) printGroups(w io.Writer) error {
	if r.Groups == nil {
		return nil
	}
	for _, print := range []func(io.Writer) error{r.Groups.printPublishes, r.Groups.printLives, r.Groups.printDrains, r.Groups.printReturns} {
		if err := print(w); err != nil {
			return err
		}
	}
	return nil
}

func (r GroupResults) printPublishes(w io.Writer) error {
	if len(r.Publishes) == 0 {
		return nil
	}
	title := fmt.Sprintf("Publishing to a group whose members are away; medians of %d runs\n"+
		"Copies are a message for each member, and what is acknowledged is one of them. Faults are those of all rows with as many members.", r.Publishes[0].Runs)
	t := newTable(w, title, "target", "kept as", "members", "bytes", "publishers×in flight",
		"messages", "msg/s", "ms/msg", "ack p50 ms", "ack p99 ms", "disk bytes/msg", "faults")
	isCut := false
	for _, p := range r.Publishes {
		messages := fmt.Sprintf("%.0f", p.Messages)
		if p.Messages < 1 {
			isCut = true
			messages = fmt.Sprintf("%.2f*", p.Messages)
		}
		faults := "not checked"
		if p.Verified {
			faults = p.Faults.String()
		}
		disk := "unknown"
		if p.Disk >= 0 {
			disk = fmt.Sprintf("%.0f", p.Disk)
		}
		t.row(p.Target, p.Way, p.Members, p.Size, p.Shape, messages, fmt.Sprintf("%.4g", p.Rate), us(p.PerMessage), ms(p.Ack.P50), ms(p.Ack.P99), disk, faults)
	}
	if err := t.end(); err != nil || !isCut {
		return err
	}
	_, err := fmt.Fprintln(w, "\n* The time was over before one message had gone to every member; the rest is reckoned from the copies that were sent.")
	return err
}

func (r GroupResults) printLives(w io.Writer) error {
	if len(r.Lives) == 0 {
		return nil
	}
	title := fmt.Sprintf("Publishing to a group whose members are connected; medians of %d runs", r.Lives[0].Runs)
	t := newTable(w, title, "target", "kept as", "members", "bytes", "publishers×in flight",
		"deliveries", "deliveries/s", "ack p50 ms", "ack p99 ms", "broker µs/delivery", "faults")
	for _, l := range r.Lives {
		cpu := "unknown"
		if l.CPU >= 0 {
			cpu = fmt.Sprintf("%.2f", l.CPU.Seconds()*1e6)
		}
		t.row(l.Target, l.Way, l.Members, l.Size, l.Shape, l.Deliveries, rate(l.Rate), ms(l.Ack.P50), ms(l.Ack.P99), cpu, l.Faults)
	}
	return t.end()
}

func (r GroupResults) printDrains(w io.Writer) error {
	if len(r.Drains) == 0 {
		return nil
	}
	title := fmt.Sprintf("The members of a group return at once; as copies, each has an inbox of its own; medians of %d runs", r.Drains[0].Runs)
	t := newTable(w, title, "target", "kept as", "members", "messages each", "bytes",
		"delivered msg/s", "first p50 ms", "first max ms", "faults")
	for _, d := range r.Drains {
		t.row(d.Target, d.Way, d.Members, d.Waiting, d.Size, rate(d.Rate), ms(d.First.P50), ms(d.First.Max), d.Faults)
	}
	return t.end()
}

func (r GroupResults) printReturns(w io.Writer) error {
	if len(r.Returns) == 0 {
		return nil
	}
	title := fmt.Sprintf("A member of many groups returns, %d times: from CONNECT to the last message, beside the same messages in one inbox", r.Returns[0].Returns)
	t := newTable(w, title, "target", "kept as", "groups", "with messages", "messages", "bytes",
		"member p50 ms", "member p99 ms", "inbox p50 ms", "inbox p99 ms", "member/inbox", "faults")
	for _, m := range r.Returns {
		t.row(m.Target, m.Way, m.Groups, m.News, m.Messages, m.Size,
			ms(m.Member.P50), ms(m.Member.P99), ms(m.Plain.P50), ms(m.Plain.P99), fmt.Sprintf("%.2f", m.Ratio), m.Faults)
	}
	return t.end()
}

// us is milliseconds to the microsecond.
func us(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()*1000) }
