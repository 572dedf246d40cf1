package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Keeping is what a store is to keep beside what is unread.
type Keeping struct {
	History []inbox.Kept

	// Rewind is how long after it was stored a message can be had again by a
	// receiver that starts again, though it was acknowledged. 0 for not at all.
	Rewind time.Duration
}

// RunKept tests what an engine answers to those who ask, [inbox.Puller] and
// [inbox.Archive]. Open is that of [Run], for a store that keeps what it is told; a
// store is opened again with the same Keeping. The suite runs one test at a time: those of
// the groups given, which is the part of their name before the slash, or all.
func RunKept(t *testing.T, open func(t *testing.T, dir string, k Keeping) inbox.Store, groups ...string) {
	for _, c := range keptClauses {
		group, _, _ := strings.Cut(c.name, "/")
		if len(groups) > 0 && !slices.Contains(groups, group) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			tr := start(t, func(t *testing.T, dir string) inbox.Store { return open(t, dir, c.keeping) })
			tr.keeping = c.keeping
			c.test(tr)
		})
	}
}

// What the clauses ask their stores to keep.
var (
	unreadOnly  = Keeping{}
	everything  = Keeping{History: []inbox.Kept{{Filter: "#"}}}
	chats       = Keeping{History: []inbox.Kept{{Filter: "chat/#"}}}
	overlapping = Keeping{History: []inbox.Kept{{Filter: "chat/#"}, {Filter: "chat/+/room"}, {Filter: "+/a/#"}, {Filter: "log"}}}
	aMinute     = Keeping{History: []inbox.Kept{{Filter: "a/#", Keep: time.Minute.Milliseconds()}, {Filter: "a/long", Keep: time.Hour.Milliseconds()}}}
	little      = Keeping{History: []inbox.Kept{{Filter: "a/#", Bytes: 20_000}, {Filter: "a/more", Bytes: 1 << 30}}}
	aDay        = Keeping{Rewind: 24 * time.Hour}
	both        = Keeping{History: everything.History, Rewind: aDay.Rewind}
)

var keptClauses = []struct {
	name    string
	keeping Keeping
	test    func(*trial)
}{
	{"pull/orders", unreadOnly, pullOrders},
	{"pull/equal times (case 137)", unreadOnly, pullEqualTimes},
	{"pull/while others publish (cases 135, 138)", unreadOnly, pullWhileOthersPublish},
	{"pull/while others read", unreadOnly, pullWhileOthersRead},
	{"pull/bounds (case 139)", unreadOnly, pullBounds},
	{"pull/bounded by what was read", unreadOnly, pullBoundByRead},
	{"pull/unknown ids (case 139)", unreadOnly, pullUnknownIDs},
	{"pull/selections", unreadOnly, pullSelections},
	{"pull/max", unreadOnly, pullMax},
	{"pull/max bytes", unreadOnly, pullMaxBytes},
	{"pull/remaining", unreadOnly, pullRemaining},
	{"pull/changes nothing", unreadOnly, pullChangesNothing},
	{"pull/while connected", unreadOnly, pullWhileConnected},
	{"pull/every field", unreadOnly, pullEveryField},
	{"pull/grants", unreadOnly, pullGrants},
	{"pull/retained", unreadOnly, pullRetained},
	{"pull/given up", unreadOnly, pullGivenUp},
	{"pull/given up one by one", aDay, pullGivenUpOneByOne},
	{"pull/expired", unreadOnly, pullExpired},
	{"pull/overlapping filters", unreadOnly, pullOverlap},
	{"pull/no session", unreadOnly, pullNoSession},
	{"pull/cancelled and closed", everything, pullEnds},
	{"pull/read", aDay, pullRead},

	{"acknowledge/ids", unreadOnly, acknowledgeIDs},
	{"acknowledge/unknown ids", unreadOnly, acknowledgeUnknownIDs},
	{"acknowledge/bounds", unreadOnly, acknowledgeBounds},
	{"acknowledge/through ids", unreadOnly, acknowledgeThroughIDs},
	{"acknowledge/beyond the end", unreadOnly, acknowledgeBeyond},
	{"acknowledge/selections", unreadOnly, acknowledgeSelection},
	{"acknowledge/page by page", unreadOnly, acknowledgePageByPage},
	{"acknowledge/older (case 148)", unreadOnly, acknowledgeOlder},
	{"acknowledge/any order (case 146)", everything, acknowledgeAnyOrder},
	{"acknowledge/on its way", unreadOnly, acknowledgeOnItsWay},
	{"acknowledge/ahead of next", unreadOnly, acknowledgeAhead},
	{"acknowledge/both doors (case 141)", unreadOnly, acknowledgeBothDoors},
	{"acknowledge/receivers apart (case 149)", unreadOnly, acknowledgeApart},
	{"acknowledge/then fresh", unreadOnly, acknowledgeThenFresh},
	{"acknowledge/many holes", unreadOnly, acknowledgeHoles},
	{"acknowledge/under load", unreadOnly, acknowledgeUnderLoad},

	{"withdrawn/is told", everything, withdrawnIsTold},
	{"withdrawn/while others read", everything, withdrawnWhileOthersRead},

	{"held/by what is gone", everything, heldByWhatIsGone},
	{"held/by who starts again", aDay, heldByWhoStartsAgain},
	{"held/in push mode", unreadOnly, heldInPushMode},

	{"summary/counts", unreadOnly, summaryCounts},
	{"summary/except (case 145)", unreadOnly, summaryExcept},
	{"summary/up to", unreadOnly, summaryUpTo},
	{"summary/pages", unreadOnly, summaryPages},
	{"summary/of many", unreadOnly, summaryOfMany},
	{"summary/while others publish", unreadOnly, summaryWhileOthersPublish},

	{"mode/kept with the session", unreadOnly, modeKept},
	{"mode/pull", unreadOnly, modePull},
	{"mode/pull, not saved", unreadOnly, modePullUnsaved},
	{"mode/push again", unreadOnly, modePushAgain},
	{"mode/push finishes first", unreadOnly, modePushFinishesFirst},
	{"mode/push not noted yet", unreadOnly, modePushNotNoted},
	{"mode/push to where it was", unreadOnly, modePushToWhereItWas},
	{"mode/push, and nothing waits", unreadOnly, modePushNothingWaits},
	{"mode/push, and nothing waits any more", unreadOnly, modePushNothingWaitsAnyMore},
	{"mode/many stretches", unreadOnly, modeManyStretches},
	{"mode/given up", unreadOnly, modeGivenUp},
	{"mode/in a group", unreadOnly, modeInGroup},
	{"mode/while others publish", unreadOnly, modeWhileOthersPublish},
	{"mode/changes while others publish", unreadOnly, modeChangesWhileOthersPublish},

	{"from/everything", aDay, fromEverything},
	{"from/bounds", aDay, fromBounds},
	{"from/pull mode", aDay, fromPull},
	{"from/loses nothing", aDay, fromLosesNothing},
	{"from/unknown id", aDay, fromUnknownID},
	{"from/unread only", unreadOnly, fromUnreadOnly},
	{"from/given up", aDay, fromGivenUp},
	{"from/subscribed again", aDay, fromSubscribedAgain},
	{"from/new session", both, fromNew},

	{"history/keeps", chats, historyKeeps},
	{"history/once (case 155)", overlapping, historyOnce},
	{"history/bounds (case 139)", everything, historyBounds},
	{"history/unknown ids (case 139)", everything, historyUnknownIDs},
	{"history/max", everything, historyMax},
	{"history/while others publish (cases 137, 138)", everything, historyWhileOthersPublish},
	{"history/every field", everything, historyEveryField},
	{"history/whoever reads", everything, historyWhoeverReads},
	{"history/visible", everything, historyVisible},
	{"history/wills", everything, historyWill},
	{"history/for a time", aMinute, historyKeptForATime},
	{"history/in bytes", little, historyKeptInBytes},
	{"history/expired", everything, historyExpired},
	{"history/of many", chats, historyOfMany},

	{"delete/one", everything, deleteOne},
	{"delete/unknown", chats, deleteUnknown},
	{"delete/on its way", everything, deleteOnItsWay},
	{"delete/before it is given", everything, giveDeleted},
	{"delete/then from", both, deleteThenFrom},
	{"delete/erase", everything, deleteErase},
	{"delete/erase what has expired", everything, deleteEraseExpired},
	{"delete/then erase", everything, deleteThenErase},
	{"delete/between pages (case 138)", everything, deleteBetweenPages},

	{"last/then live", everything, lastThenLive},
	{"last/of several topics", chats, lastOfSeveral},
	{"last/not twice", everything, lastNotTwice},
	{"last/while others publish", everything, lastWhileOthersPublish},
	{"last/grants", everything, lastGrants},
	{"last/leaves out", everything, lastLeavesOut},
	{"last/given up", everything, lastGivenUp},
	{"last/pull mode", everything, lastInPullMode},

	{"group/join (case 151)", both, groupJoin},
	{"group/leave and join (case 152)", unreadOnly, groupLeaveAndJoin},
	{"group/removed (case 153)", unreadOnly, groupRemoved},
	{"group/grows and shrinks", unreadOnly, groupGrowsAndShrinks},

	{"random/unread", unreadOnly, randomAsking},
	{"random/asking", Keeping{History: chats.History, Rewind: aDay.Rewind}, randomAsking},
}
