package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/client"
)

// broker takes what is published, and answers as it is told.
type broker struct {
	mu     sync.Mutex // guards what follows
	got    []*paho.Publish
	answer func(n int, p *paho.Publish) (*paho.PublishResponse, error) // n counts from 0; nil acknowledges
	over   chan struct{}
}

func (b *broker) Publish(_ context.Context, p *paho.Publish) (*paho.PublishResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.got)
	b.got = append(b.got, p)
	if b.answer != nil {
		return b.answer(n, p)
	}
	return acknowledged(fmt.Sprint("id", n)), nil
}

func (b *broker) Done() <-chan struct{} { return b.over }

func acknowledged(id string) *paho.PublishResponse {
	return &paho.PublishResponse{Properties: &paho.PublishResponseProperties{User: paho.UserProperties{{Key: "inbox-id", Value: id}}}}
}

// topics and names of what was published, in this order.
func (b *broker) topics() []string { return b.each(func(p *paho.Publish) string { return p.Topic }) }
func (b *broker) names() []string {
	return b.each(func(p *paho.Publish) string { return p.Properties.User.Get("msg-id") })
}

func (b *broker) each(f func(*paho.Publish) string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, p := range b.got {
		all = append(all, f(p))
	}
	return all
}

func openOutbox(t *testing.T, dir string, o client.OutboxOptions) *client.Outbox {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	b, err := client.OpenOutbox(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func add(t *testing.T, b *client.Outbox, p *paho.Publish) string {
	t.Helper()
	name, err := b.Add(p)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// run sends what waits, in the background. The function that it returns ends it.
func run(t *testing.T, b *client.Outbox, to client.Publisher) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, to) }()
	end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = end() })
	return end
}

func message(topic string) *paho.Publish {
	return &paho.Publish{Topic: topic, QoS: 1, Payload: []byte("of " + topic)}
}

// What was added is sent after a restart, in order, under the names that it got, and
// not again when it was acknowledged.
func TestOutboxSendsAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "outbox")
	b := openOutbox(t, dir, client.OutboxOptions{})
	format, expiry := byte(1), uint32(1000)
	whole := &paho.Publish{Topic: "whole", QoS: 2, Retain: true, Payload: []byte{0, 1, 2}, Properties: &paho.PublishProperties{
		CorrelationData: []byte{3}, ContentType: "text/plain", ResponseTopic: "answer", PayloadFormat: &format, MessageExpiry: &expiry,
		User: paho.UserProperties{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}},
	}}
	want := []string{add(t, b, message("a")), add(t, b, whole), add(t, b, &paho.Publish{
		Topic: "named", QoS: 1, Properties: &paho.PublishProperties{User: paho.UserProperties{{Key: "msg-id", Value: "mine"}}},
	})}
	if want[2] != "mine" || want[0] == want[1] || len(want[0]) < 20 {
		t.Errorf("the names are %q", want)
	}
	if len(whole.Properties.User) != 2 {
		t.Error("the caller's message was changed")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b = openOutbox(t, dir, client.OutboxOptions{})
	if b.Len() != 3 {
		t.Errorf("%d messages wait, want 3", b.Len())
	}
	to := &broker{}
	end := run(t, b, to)
	receipt, err := b.Publish(t.Context(), message("last"))
	if err != nil || receipt.ID != "id3" {
		t.Fatalf("published last: %v, %v", receipt, err)
	}
	if got := to.names(); !slices.Equal(got, append(want, receipt.Name)) {
		t.Errorf("sent %q, want %q and %q", got, want, receipt.Name)
	}
	got := to.got[1]
	wantUser := append(whole.Properties.User, paho.UserProperty{Key: "msg-id", Value: want[1]})
	if got.QoS != 2 || !got.Retain || got.Topic != "whole" || string(got.Payload) != "\x00\x01\x02" || got.Duplicate() ||
		string(got.Properties.CorrelationData) != "\x03" || got.Properties.ContentType != "text/plain" || got.Properties.ResponseTopic != "answer" ||
		*got.Properties.PayloadFormat != 1 || *got.Properties.MessageExpiry > 1000 || !slices.Equal(got.Properties.User, wantUser) {
		t.Errorf("sent %v", got)
	}
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b = openOutbox(t, dir, client.OutboxOptions{}); b.Len() != 0 {
		t.Errorf("%d messages wait that were acknowledged", b.Len())
	}
}

// A message that fails is sent again under its name before those that follow, until it
// is acknowledged.
func TestOutboxInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openOutbox(t, t.TempDir(), client.OutboxOptions{})
		to := &broker{answer: func(n int, _ *paho.Publish) (*paho.PublishResponse, error) {
			switch n {
			case 0:
				return nil, errors.New("no connection")
			case 1:
				return nil, context.DeadlineExceeded
			case 2:
				return &paho.PublishResponse{ReasonCode: packets.PubackQuotaExceeded}, errors.New("refused")
			case 3:
				return &paho.PublishResponse{ReasonCode: packets.PubrecUnspecifiedError}, nil
			}
			return &paho.PublishResponse{ReasonCode: packets.PubackNoMatchingSubscribers}, nil
		}}
		name := add(t, b, message("a"))
		run(t, b, to)
		began := time.Now()
		if _, err := b.Publish(t.Context(), message("b")); err != nil {
			t.Fatal(err)
		}
		if got := to.topics(); !slices.Equal(got, []string{"a", "a", "a", "a", "a", "b"}) {
			t.Errorf("sent %q", got)
		}
		if got := to.names(); !slices.Equal(got[:5], slices.Repeat([]string{name}, 5)) {
			t.Errorf("sent under %q, want %q", got, name)
		}
		if took := time.Since(began); took < 3*time.Second || took > 8*time.Second {
			t.Errorf("took %s: the pauses do not grow", took)
		}
	})
}

// What the broker will never take makes way, and is told.
func TestOutboxTellsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost []client.Lost
		dir := t.TempDir()
		b := openOutbox(t, dir, client.OutboxOptions{Lost: func(l client.Lost) { lost = append(lost, l) }})
		to := &broker{answer: func(n int, p *paho.Publish) (*paho.PublishResponse, error) {
			switch p.Topic {
			case "forbidden":
				return &paho.PublishResponse{ReasonCode: packets.PubackNotAuthorized, Properties: &paho.PublishResponseProperties{ReasonString: "no"}}, errors.New("refused")
			case "argument":
				return nil, fmt.Errorf("%w: QoS", paho.ErrInvalidArguments)
			}
			return acknowledged(""), nil
		}}
		soon, later := uint32(1), uint32(10)
		forbidden := add(t, b, message("forbidden"))
		argument := add(t, b, message("argument"))
		expired := add(t, b, &paho.Publish{Topic: "expired", QoS: 1, Properties: &paho.PublishProperties{MessageExpiry: &soon}})
		add(t, b, &paho.Publish{Topic: "later", QoS: 1, Properties: &paho.PublishProperties{MessageExpiry: &later}})
		add(t, b, message("damaged"))
		damaged := filepath.Join(dir, "0000000000000005.msg")
		content, err := os.ReadFile(damaged)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)-1] ^= 1
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // of the test's clock, so that one expires

		run(t, b, to)
		if _, err := b.Publish(t.Context(), message("good")); err != nil {
			t.Fatal(err)
		}
		if got := to.topics(); !slices.Equal(got, []string{"forbidden", "argument", "later", "good"}) {
			t.Errorf("sent %q", got)
		}
		if left := *to.got[2].Properties.MessageExpiry; left != 7 {
			t.Errorf("after 3 seconds of 10, %d are left", left)
		}
		if len(lost) != 4 {
			t.Fatalf("told of %v", lost)
		}
		var refused *client.RefusedError
		if l := lost[0]; l.Name != forbidden || l.Message.Topic != "forbidden" || !errors.As(l.Err, &refused) || refused.Code != 0x87 || refused.Reason != "no" {
			t.Errorf("told of %v", l)
		}
		if l := lost[1]; l.Name != argument || !errors.Is(l.Err, paho.ErrInvalidArguments) {
			t.Errorf("told of %v", l)
		}
		if l := lost[2]; l.Name != expired || l.Message.Topic != "expired" || !errors.Is(l.Err, client.ErrExpired) {
			t.Errorf("told of %v", l)
		}
		aside, err := os.ReadFile(lost[3].File)
		if l := lost[3]; !errors.Is(l.Err, client.ErrDamaged) || l.Message != nil || err != nil || !slices.Equal(aside, content) {
			t.Errorf("told of %v; set aside: %v", l, err)
		}
		_, err = b.Publish(t.Context(), message("forbidden"))
		if !errors.As(err, &refused) {
			t.Errorf("who waits is told %v", err)
		}
	})
}

func TestOutboxIsBounded(t *testing.T) {
	dir := t.TempDir()
	b := openOutbox(t, dir, client.OutboxOptions{MaxMessages: 3, MaxBytes: 1000, MaxPacket: 500})
	large := func(n int) *paho.Publish { return &paho.Publish{Topic: "large", QoS: 1, Payload: make([]byte, n)} }
	for _, x := range []struct {
		p    *paho.Publish
		want error
	}{
		{large(500), client.ErrTooLarge},
		{large(400), nil},
		{large(400), nil},
		{large(400), client.ErrFull}, // by bytes
		{large(1), nil},
		{large(1), client.ErrFull}, // by count
	} {
		if _, err := b.Add(x.p); !errors.Is(err, x.want) {
			t.Errorf("%d bytes: %v, want %v", len(x.p.Payload), err, x.want)
		}
	}
	if b.Len() != 3 {
		t.Errorf("%d messages wait, want 3", b.Len())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openOutbox(t, dir, client.OutboxOptions{MaxMessages: 3, MaxBytes: 1000})
	if _, err := b.Add(large(1)); !errors.Is(err, client.ErrFull) {
		t.Errorf("after a restart: %v", err)
	}
	to := &broker{answer: func(n int, _ *paho.Publish) (*paho.PublishResponse, error) {
		return acknowledged(""), nil
	}}
	end := run(t, b, to)
	for b.Len() > 0 {
		if _, err := b.Publish(t.Context(), large(1)); err != nil && !errors.Is(err, client.ErrFull) {
			t.Fatal(err)
		}
	}
	_ = end()
	if _, err := b.Add(large(400)); err != nil {
		t.Errorf("after all was sent: %v", err)
	}
}

func TestOutboxTakesOnlyWhatCanBeSent(t *testing.T) {
	b := openOutbox(t, t.TempDir(), client.OutboxOptions{})
	number, alias := 1, uint16(1)
	long := string(make([]byte, 1<<16))
	for name, p := range map[string]*paho.Publish{
		"qos 0":            {Topic: "a"},
		"qos 3":            {Topic: "a", QoS: 3},
		"no topic":         {QoS: 1},
		"wildcard":         {Topic: "a/+", QoS: 1},
		"server's topic":   {Topic: "$SYS/a", QoS: 1},
		"long topic":       {Topic: long, QoS: 1},
		"zero":             {Topic: "a\x00", QoS: 1},
		"control":          {Topic: "a\u0085", QoS: 1},
		"noncharacter":     {Topic: "a\uFFFE", QoS: 1},
		"no UTF-8":         {Topic: "a\xff", QoS: 1},
		"alias":            {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{TopicAlias: &alias}},
		"identifier":       {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{SubscriptionIdentifier: &number}},
		"response topic":   {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{ResponseTopic: "a/#"}},
		"content type":     {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{ContentType: "\xff"}},
		"long correlation": {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{CorrelationData: make([]byte, 1<<16)}},
		"user property":    {Topic: "a", QoS: 1, Properties: &paho.PublishProperties{User: paho.UserProperties{{Key: "k", Value: "\n"}}}},
	} {
		if _, err := b.Add(p); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Add(&paho.Publish{Topic: "a\uFFFD é", QoS: 1}); err != nil {
		t.Errorf("a good topic: %v", err)
	}
}

func TestOutboxIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := openOutbox(t, dir, client.OutboxOptions{})
		if _, err := client.OpenOutbox(dir, client.OutboxOptions{}); !errors.Is(err, client.ErrInUse) {
			t.Errorf("opened twice: %v", err)
		}
		reached, leave := make(chan struct{}), make(chan struct{})
		to := &broker{answer: func(int, *paho.Publish) (*paho.PublishResponse, error) {
			close(reached)
			<-leave
			return nil, errors.New("too late")
		}}
		add(t, b, message("a"))
		end := run(t, b, to)
		<-reached
		if err := b.Run(t.Context(), &broker{}); !errors.Is(err, client.ErrRunning) {
			t.Errorf("run twice: %v", err)
		}
		waits := make(chan error)
		go func() {
			_, err := b.Publish(t.Context(), message("b"))
			waits <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- b.Close() }()
		if err := <-waits; !errors.Is(err, client.ErrClosed) {
			t.Errorf("who waits is told %v", err)
		}
		close(leave)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := end(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Run ends with %v", err)
		}
		if _, err := b.Add(message("c")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("added after Close: %v", err)
		}
		if err := b.Run(t.Context(), to); !errors.Is(err, client.ErrClosed) {
			t.Errorf("run after Close: %v", err)
		}
		if b = openOutbox(t, dir, client.OutboxOptions{}); b.Len() != 2 {
			t.Errorf("%d messages wait, want 2", b.Len())
		}
	})
}

func TestOutboxEndsWithConnection(t *testing.T) {
	b := openOutbox(t, t.TempDir(), client.OutboxOptions{})
	to := &broker{over: make(chan struct{})}
	ended := make(chan error)
	go func() { ended <- b.Run(t.Context(), to) }()
	if _, err := b.Publish(t.Context(), message("a")); err != nil {
		t.Error(err)
	}
	close(to.over)
	if err := <-ended; !errors.Is(err, client.ErrConnectionOver) {
		t.Errorf("Run ends with %v", err)
	}
	// It goes on with the next one.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	receipt, err := b.Publish(ctx, message("b"))
	if !errors.Is(err, context.Canceled) || receipt.Name == "" {
		t.Errorf("who gives up is told %v, %v", receipt, err)
	}
	next := &broker{}
	run(t, b, next)
	if _, err := b.Publish(t.Context(), message("c")); err != nil {
		t.Error(err)
	}
	if got := next.topics(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("sent %q", got)
	}
}

// Files of a newer version stay, and nothing overtakes them.
func TestOutboxOfNewerVersion(t *testing.T) {
	dir := t.TempDir()
	b := openOutbox(t, dir, client.OutboxOptions{})
	add(t, b, message("a"))
	if err := os.WriteFile(filepath.Join(dir, "0000000000000001.msg"), []byte{2, 0, 0}, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context(), &broker{}); !errors.Is(err, client.ErrNewer) || b.Len() != 1 {
		t.Errorf("Run ends with %v, %d messages wait", err, b.Len())
	}
}

// outboxChild adds one number after the other, and prints each when it is added.
func outboxChild(dir string, begin int) error {
	b, err := client.OpenOutbox(dir, client.OutboxOptions{})
	if err != nil {
		return err
	}
	next := goesOn()
	for i := begin; ; i++ {
		if err := next(); err != nil {
			return err
		}
		p := &paho.Publish{Topic: fmt.Sprint(i), QoS: 1, Properties: &paho.PublishProperties{
			User: paho.UserProperties{{Key: "msg-id", Value: fmt.Sprint(i)}},
		}}
		if _, err := b.Add(p); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// Whenever the process is killed, what was added is sent, in order, and nothing is damaged.
func TestOutboxSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	begin := 0
	for range 10 {
		begin += len(killed(t, "outbox", dir, begin, 30))
	}
	b := openOutbox(t, dir, client.OutboxOptions{Lost: func(l client.Lost) { t.Errorf("lost: %v", l) }})
	to := &broker{}
	run(t, b, to)
	if _, err := b.Publish(t.Context(), message("last")); err != nil {
		t.Fatal(err)
	}
	// One may be there twice: its line was not printed, so that it was added again.
	if got := slices.Compact(to.topics()); len(got) != begin+1 && len(got) != begin+2 {
		t.Errorf("sent %d messages, %d were added", len(got), begin)
	} else {
		for i := range begin {
			if got[i] != fmt.Sprint(i) {
				t.Fatalf("number %d is %s", i, got[i])
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("left are %q, %v; want the lock alone", files, err)
	}
}
