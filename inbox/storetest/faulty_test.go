package storetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/memory"
	"github.com/mqtt-inbox/mqtt-inbox/inbox/storetest"
)

var errFault = errors.New("a fault on purpose")

func openFaulty(t *testing.T) (*storetest.Faulty, inbox.Inbox) {
	t.Helper()
	f := storetest.NewFaulty(memory.New(memory.Options{}))
	t.Cleanup(func() { f.Close() })
	state := func() inbox.State { return inbox.State{Sent: 1000} }
	in, _, err := f.Open(t.Context(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever, State: state})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "#", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	return f, in
}

// appendAll appends n messages and returns what each done got, in order.
func appendAll(t *testing.T, f *storetest.Faulty, n int) []error {
	t.Helper()
	type result struct {
		n   int
		err error
	}
	results := make(chan result, n)
	for i := range n {
		e := &inbox.Envelope{Topic: "t", QoS: 1, Payload: fmt.Append(nil, i+1)}
		f.Append(t.Context(), e, func(_ inbox.Receipt, err error) { results <- result{i, err} })
	}
	errs := make([]error, n)
	for i := range n {
		r := <-results
		if r.n != i {
			t.Fatalf("done of message %d came as number %d", r.n+1, i+1)
		}
		errs[i] = r.err
	}
	return errs
}

func readAll(t *testing.T, in inbox.Inbox, n int) string {
	t.Helper()
	var got []byte
	for len(got) < n {
		page, err := in.Next(t.Context(), n-len(got), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got = append(got, e.Envelope.Payload...)
		}
	}
	return string(got)
}

func TestFaultyAppend(t *testing.T) {
	f, in := openFaulty(t)
	f.Fail(storetest.AtAppend, 2, errFault)
	f.Fail(storetest.AtAppend, 4, inbox.ErrFull)
	f.Fail(storetest.AtDone, 5, inbox.ErrUncertain)
	errs := appendAll(t, f, 6)
	for i, want := range []error{nil, errFault, nil, inbox.ErrFull, inbox.ErrUncertain, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("message %d: %v, want %v", i+1, errs[i], want)
		}
	}
	if got, want := readAll(t, in, 4), "1356"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	f.Fail(storetest.AtAppend, 1, errFault) // counts from now
	if errs := appendAll(t, f, 2); !errors.Is(errs[0], errFault) || errs[1] != nil {
		t.Errorf("errors %v, want a fault and none", errs)
	}
	if got := f.Calls(storetest.AtAppend); got != 8 {
		t.Errorf("%d calls, want 8", got)
	}
}

func TestFaultyOpen(t *testing.T) {
	f, in := openFaulty(t)
	f.Fail(storetest.AtOpen, 1, errFault)
	if _, _, err := f.Open(t.Context(), "c", inbox.OpenOptions{Fresh: true}); !errors.Is(err, errFault) {
		t.Fatalf("open: %v", err)
	}
	if subs, err := in.Subscriptions(t.Context()); err != nil || len(subs) != 1 {
		t.Fatalf("an open that failed changed the session: subscriptions %v, %v", subs, err)
	}
	if _, resumed, err := f.Open(t.Context(), "c", inbox.OpenOptions{}); err != nil || !resumed {
		t.Fatalf("the next open: resumed %v, %v", resumed, err)
	}
}

func TestFaultyInbox(t *testing.T) {
	f, in := openFaulty(t)
	f.Fail(storetest.AtSubscribe, 1, errFault)
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "a"}); !errors.Is(err, errFault) {
		t.Fatalf("subscribe: %v", err)
	}
	if subs, err := in.Subscriptions(t.Context()); err != nil || len(subs) != 1 {
		t.Fatalf("a subscribe that failed changed the session: subscriptions %v, %v", subs, err)
	}

	appendAll(t, f, 1)
	f.Fail(storetest.AtNext, 1, inbox.ErrDamaged)
	if _, err := in.Next(t.Context(), 1, 1); !errors.Is(err, inbox.ErrDamaged) {
		t.Fatalf("next: %v", err)
	}
	if got := readAll(t, in, 1); got != "1" {
		t.Fatalf("a next that failed moved: read %s", got)
	}
}

func TestFaultyGive(t *testing.T) {
	f, member := openFaulty(t)
	const filter = "$share/g/a"
	if _, err := member.Subscribe(t.Context(), inbox.Subscription{Filter: filter, QoS: 1}); err != nil {
		t.Fatal(err)
	}
	e := &inbox.Envelope{Topic: "a", QoS: 1, Payload: []byte("1")}
	f.Append(t.Context(), e, func(inbox.Receipt, error) {})
	group, _, err := f.Open(t.Context(), inbox.GroupReceiver(filter), inbox.OpenOptions{Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	page, err := group.Next(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Fail(storetest.AtGive, 1, errFault)
	for _, want := range []error{errFault, nil} {
		given := make(chan error, 1)
		group.Give(member, page, func(err error) { given <- err })
		if err := <-given; !errors.Is(err, want) {
			t.Fatalf("give: %v, want %v", err, want)
		}
	}
	if got := readAll(t, member, 2); got != "11" {
		t.Errorf("the member has %s, want its own and the one given", got)
	}
}

func TestFaultySave(t *testing.T) {
	f, in := openFaulty(t)
	f.Fail(storetest.AtSave, 1, errFault)
	for _, want := range []struct {
		err  error
		sent inbox.Position
	}{{errFault, 0}, {nil, 1000}} {
		saved := make(chan error, 1)
		in.Save(func(err error) { saved <- err })
		if err := <-saved; !errors.Is(err, want.err) {
			t.Fatalf("save: %v, want %v", err, want.err)
		}
		again, _, err := f.Open(t.Context(), "c", inbox.OpenOptions{
			Expiry: inbox.ExpiryNever,
			State:  func() inbox.State { return inbox.State{Sent: 1000} },
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := again.State().Sent; got != want.sent {
			t.Fatalf("stored state is %d, want %d", got, want.sent)
		}
		in = again
	}
}

func TestFaultyPublish(t *testing.T) {
	f, in := openFaulty(t)
	publish := func(id uint16) error {
		done := make(chan error, 1)
		in.Publish(t.Context(), id, &inbox.Envelope{Topic: "t", QoS: 2, Payload: fmt.Append(nil, id)},
			func(_ inbox.Receipt, err error) { done <- err })
		return <-done
	}
	complete := func(id uint16) (known bool, err error) {
		done := make(chan struct{})
		in.Complete(id, func(k bool, e error) { known, err = k, e; close(done) })
		<-done
		return known, err
	}
	f.Fail(storetest.AtAppend, 1, errFault)
	f.Fail(storetest.AtDone, 2, inbox.ErrUncertain)
	f.Fail(storetest.AtComplete, 3, errFault)
	for i, want := range []error{errFault, inbox.ErrUncertain, nil} {
		if err := publish(uint16(i + 1)); !errors.Is(err, want) {
			t.Errorf("publish %d: %v, want %v", i+1, err, want)
		}
	}
	if got := readAll(t, in, 2); got != "23" {
		t.Errorf("stored %s, want 23", got)
	}
	for i, want := range []struct {
		known bool
		err   error
	}{{false, nil}, {true, nil}, {false, errFault}} {
		if known, err := complete(uint16(i + 1)); known != want.known || !errors.Is(err, want.err) {
			t.Errorf("complete %d: %v, %v, want %v, %v", i+1, known, err, want.known, want.err)
		}
	}
	if known, err := complete(3); !known || err != nil {
		t.Errorf("a complete that failed changed something: %v, %v", known, err)
	}
}

func TestFaultyAsking(t *testing.T) {
	f := storetest.NewFaulty(memory.New(memory.Options{History: []inbox.Kept{{Filter: "#"}}}))
	t.Cleanup(func() { f.Close() })
	in, _, err := f.Open(t.Context(), "c", inbox.OpenOptions{Expiry: inbox.ExpiryNever})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Subscribe(t.Context(), inbox.Subscription{Filter: "#", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	appendAll(t, f, 2)
	page, err := f.History(t.Context(), inbox.Query{Max: 1, MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	id := page.Entries[0].Envelope.ID

	query := inbox.Query{Max: 10, MaxBytes: 1000}
	pull := func() error { _, err := f.Pull(t.Context(), "c", query); return err }
	summarize := func() error { _, err := f.Summarize(t.Context(), "c", inbox.SummaryQuery{Max: 1}); return err }
	history := func() error { _, err := f.History(t.Context(), query); return err }
	setMode := func() error {
		_, err := f.SetMode(t.Context(), "c", inbox.ModePull)
		return err
	}
	remove := func() error { return f.Delete(t.Context(), id, "") }
	erase := func() error { _, err := f.Erase(t.Context(), "nobody"); return err }
	acknowledge := func() error {
		_, err := f.Acknowledge(t.Context(), "c", inbox.Acknowledgement{IDs: []inbox.MessageID{id}})
		return err
	}
	points := []struct {
		at  storetest.Point
		ask func() error
	}{
		{storetest.AtPull, pull}, {storetest.AtSummarize, summarize}, {storetest.AtHistory, history},
		{storetest.AtSetMode, setMode}, {storetest.AtDelete, remove}, {storetest.AtDelete, erase}, {storetest.AtAcknowledge, acknowledge},
	}
	for _, p := range points {
		f.Fail(p.at, 1, errFault)
		if err := p.ask(); !errors.Is(err, errFault) {
			t.Errorf("%s: %v, want a fault", p.at, err)
		}
	}
	if page, err := f.Pull(t.Context(), "c", query); err != nil || len(page.Entries) != 2 || in.Mode() != inbox.ModePush {
		t.Fatalf("what failed changed something: %d unread, %v", len(page.Entries), err)
	}
	for _, p := range points {
		if err := p.ask(); err != nil {
			t.Errorf("%s: %v", p.at, err)
		}
	}
	if page, err := f.Pull(t.Context(), "c", query); err != nil || len(page.Entries) != 1 {
		t.Fatalf("%d unread, want 1: %v", len(page.Entries), err)
	}
}
