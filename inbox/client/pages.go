package client

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// Message is one message of an inbox or of history.
type Message = pull.Message

// Page is some messages of an inbox or of history. Its cursor is in Next.
type Page = pull.MessagesAnswer

// Summary returns what is unread: how many messages, by sender and by topic, the newest
// first. All of it is as it was at one position. The messages of the asker itself do not
// count.
func (c *Client) Summary(ctx context.Context) (*pull.SummaryAnswer, error) {
	var all pull.SummaryAnswer
	for r := (pull.SummaryRequest{Limit: pull.MaxLimit}); ; r.Next = all.Next {
		var part pull.SummaryAnswer
		if err := c.request(ctx, pull.OpSummary, &r, &part); err != nil {
			return nil, err
		}
		part.Senders = append(all.Senders, part.Senders...)
		part.Topics = append(all.Topics, part.Topics...)
		all = part
		if all.Next == "" {
			slices.SortStableFunc(all.Senders, newestFirst)
			slices.SortStableFunc(all.Topics, newestFirst)
			return &all, nil
		}
	}
}

func newestFirst(a, b pull.Tally) int {
	return cmp.Or(cmp.Compare(b.Newest.Time, a.Newest.Time), cmp.Compare(b.Newest.ID, a.Newest.ID))
}

// Pull returns one page of unread messages. To ask with the cursor of a page, in the
// direction of the walk, acknowledges that page, see [pull.PullRequest].
func (c *Client) Pull(ctx context.Context, r pull.PullRequest) (*Page, error) {
	return page(ctx, c, pull.OpPull, r)
}

// Pages walks through what is unread, from where r begins. To ask for the next page
// acknowledges the one before, so a page is to be done with, and its ids with
// [Seen.Add], when the loop goes on. Who leaves the loop has acknowledged nothing of
// the page at hand, and is given it again. With Ack false nothing is acknowledged:
//
//	c.Pages(ctx, pull.PullRequest{Ack: new(false)})
//
// A page has messages, or gaps, or both. What is stored meanwhile is walked through, too,
// unless the newest come first. An error ends the walk; another one begins with the
// page at which it ended.
func (c *Client) Pages(ctx context.Context, r pull.PullRequest) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		next := &r.After
		if r.Order == pull.NewestFirst {
			next = &r.Before
		}
		walk(ctx, c, pull.OpPull, &r, next, yield)
	}
}

// Messages is Pages, message by message. The last of a page is acknowledged, with
// all of them, when the loop asks for the one that follows.
func (c *Client) Messages(ctx context.Context, r pull.PullRequest) iter.Seq2[*Message, error] {
	return each(c.Pages(ctx, r))
}

// HistoryPage returns one page of history.
func (c *Client) HistoryPage(ctx context.Context, r pull.HistoryRequest) (*Page, error) {
	return page(ctx, c, pull.OpHistory, r)
}

// History walks through history, newest first unless r says otherwise, to its end. The
// next page, of r.Limit messages, is asked for when the loop comes to it. Reading changes
// nothing. A message whose content was taken away is there with Deleted.
func (c *Client) History(ctx context.Context, r pull.HistoryRequest) iter.Seq2[*Message, error] {
	return each(func(yield func(*Page, error) bool) {
		next := &r.Before
		if r.Order == pull.OldestFirst {
			next = &r.After
		}
		walk(ctx, c, pull.OpHistory, &r, next, yield)
	})
}

func page[R any](ctx context.Context, c *Client, operation string, r R) (*Page, error) {
	var p Page
	if err := c.request(ctx, operation, &r, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// walk asks for one page after the other. next is where the cursor goes in r.
func walk[R any](ctx context.Context, c *Client, operation string, r *R, next *string, yield func(*Page, error) bool) {
	for {
		p, err := page(ctx, c, operation, *r)
		if err != nil {
			yield(nil, err)
			return
		}
		if (len(p.Messages) > 0 || len(p.Gaps) > 0) && !yield(p, nil) || p.Next == "" {
			return
		}
		*next = p.Next
	}
}

func each(pages iter.Seq2[*Page, error]) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		for p, err := range pages {
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range p.Messages {
				if !yield(&p.Messages[i], nil) {
					return
				}
			}
		}
	}
}

// Ack acknowledges messages and returns how many of them were unread: those with
// ids, however many, or those that match.
func (c *Client) Ack(ctx context.Context, r pull.AckRequest) (int, error) {
	if r.IDs != nil && len(r.IDs) == 0 { // not all of them
		return 0, nil
	}
	acknowledged := 0
	for ids := r.IDs; ; {
		n := min(len(ids), pull.MaxLimit)
		r.IDs, ids = ids[:n], ids[n:]
		var a pull.AckAnswer
		if err := c.request(ctx, pull.OpAck, &r, &a); err != nil {
			return acknowledged, err
		}
		acknowledged += a.Acknowledged
		if len(ids) == 0 {
			return acknowledged, nil
		}
	}
}

// Mode returns how the session is served from its next connection on: [pull.ModePush] or
// [pull.ModePull].
func (c *Client) Mode(ctx context.Context) (string, error) {
	var a pull.ModeAnswer
	err := c.request(ctx, pull.OpMode, &pull.ModeRequest{}, &a)
	return a.Mode, err
}

// SetMode says how the session is served from its next connection on: [pull.ModePush]
// or [pull.ModePull].
func (c *Client) SetMode(ctx context.Context, mode string) error {
	return c.request(ctx, pull.OpMode, &pull.ModeRequest{Mode: mode}, &pull.ModeAnswer{})
}

// Delete takes the content of a message away that the asker has sent.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.request(ctx, pull.OpDelete, &pull.DeleteRequest{ID: id}, &pull.DeleteAnswer{})
}
