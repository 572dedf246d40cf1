package storetest

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

// Run tests an engine against the contract. Open opens the store in dir, which
// is empty at first; opened again after Close, it must find the same data, as
// after a restart. The suite runs one test at a time.
func Run(t *testing.T, open func(t *testing.T, dir string) inbox.Store) {
	for _, c := range clauses {
		t.Run(c.name, func(t *testing.T) { c.test(start(t, open)) })
	}
}

var clauses = []struct {
	name string
	test func(*trial)
}{
	{"append/in order", appendInOrder},
	{"append/done once and in order", appendDoneInOrder},
	{"append/ids", appendIDs},
	{"append/for nobody", appendForNobody},
	{"append/matched", appendMatched},
	{"append/cancelled", appendCancelled},
	{"append/receivers share the content", appendShared},
	{"append/1000 receivers", appendThousandReceivers},
	{"append/visible in order", appendVisibleInOrder},
	{"append/for the absent", appendForAbsent},

	{"envelope/every field", envelopeEveryField},
	{"envelope/sizes", envelopeSizes},
	{"envelope/long topics", envelopeLongTopics},

	{"subscribe/starts at return", subscribeStarts},
	{"subscribe/unsubscribe ends at return", unsubscribeEnds},
	{"subscribe/reports what existed", subscribeExisted},
	{"subscribe/keeps options", subscribeKeepsOptions},
	{"subscribe/replaces", subscribeReplaces},
	{"subscribe/unsubscribe keeps entries", unsubscribeKeepsEntries},
	{"subscribe/matches", subscribeMatches},
	{"subscribe/matches at random", subscribeMatchesRandom},

	{"grant/overlapping filters", grantOverlap},
	{"grant/qos", grantQoS},
	{"grant/retain", grantRetain},
	{"grant/no local", grantNoLocal},
	{"grant/fixed when stored", grantFixed},

	{"next/wakes", nextWakes},
	{"next/cancel loses nothing", nextCancel},
	{"next/max", nextMax},
	{"next/max bytes", nextMaxBytes},
	{"next/live after backlog", nextLiveAfterBacklog},
	{"next/expired too", nextExpired},
	{"next/slice is the caller's", nextSlice},

	{"live/qos 0 in order", liveInOrder},
	{"live/never kept", liveNeverKept},
	{"live/without live", liveNil},
	{"live/to the owner", liveToOwner},

	{"at once/far behind", atOnceFarBehind},
	{"at once/read and save", atOnceReadAndSave},
	{"at once/gone after close", atOnceClosed},
	{"at once/gone after restart", atOnceRestarted},
	{"at once/beside a lasting session", atOnceBesideLasting},
	{"at once/closes a lasting session", atOnceClosesLasting},
	{"at once/opens a lasting session", atOnceOpensLasting},

	{"resume/state by save", resumeSaved},
	{"resume/state by close", resumeClosed},
	{"resume/state by lazy save", resumeLazy},
	{"resume/not saved comes again", resumeUnsaved},
	{"resume/large window", resumeLargeWindow},
	{"resume/read", resumeRead},
	{"resume/out of order", resumeOutOfOrder},
	{"resume/forgets what is finished", resumeForgets},
	{"resume/fresh", resumeFresh},

	{"fence/every call", fenceEveryCall},
	{"fence/blocked next", fenceBlockedNext},
	{"fence/own close", fenceOwnClose},
	{"fence/late save", fenceLateSave},
	{"fence/late close", fenceLateClose},
	{"fence/takeover storm", fenceStorm},
	{"fence/takeover storm with saves", fenceStormSaving},

	{"sessions/list", sessionsList},
	{"sessions/receivers apart", sessionsApart},

	{"close/idempotent", closeIdempotent},
	{"close/waits", closeWaits},
	{"close/under load", closeUnderLoad},
	{"close/afterwards", closeAfterwards},
	{"close/ends next", closeEndsNext},

	{"random operations", randomOperations},
}
