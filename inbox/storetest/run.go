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

	{"append/named once", appendNamed},
	{"append/named by others", appendNamedByOthers},
	{"append/named and expired", appendNamedExpired},
	{"append/named at once", appendNamedTogether},

	{"envelope/every field", envelopeEveryField},
	{"envelope/sizes", envelopeSizes},
	{"envelope/long topics", envelopeLongTopics},

	{"subscribe/starts at return", subscribeStarts},
	{"subscribe/unsubscribe ends at return", unsubscribeEnds},
	{"subscribe/reports what existed", subscribeExisted},
	{"subscribe/keeps options", subscribeKeepsOptions},
	{"subscribe/replaces", subscribeReplaces},
	{"subscribe/unsubscribe gives up what was not read", unsubscribeGivesUp},
	{"subscribe/unsubscribe keeps what another brought", unsubscribeKeepsOthers},
	{"subscribe/unsubscribe keeps what was read", unsubscribeKeepsRead},
	{"subscribe/unsubscribe one by one", unsubscribeOneByOne},
	{"subscribe/unsubscribe and again", unsubscribeAndAgain},
	{"subscribe/matches", subscribeMatches},
	{"subscribe/matches at random", subscribeMatchesRandom},

	{"grant/overlapping filters", grantOverlap},
	{"grant/qos", grantQoS},
	{"grant/retain", grantRetain},
	{"grant/no local", grantNoLocal},
	{"grant/fixed when stored", grantFixed},

	{"retained/set, replace, remove", retainedKept},
	{"retained/empty is delivered", retainedEmpty},
	{"retained/qos 0", retainedQoS0},
	{"retained/handling", retainedHandling},
	{"retained/grant", retainedGrant},
	{"retained/no local", retainedNoLocal},
	{"retained/wildcards", retainedWildcards},
	{"retained/matches at random", retainedMatchesRandom},
	{"retained/expired", retainedExpired},
	{"retained/every field", retainedEveryField},
	{"retained/long topics", retainedLongTopics},
	{"retained/copies are entries", retainedCopies},
	{"retained/newest last", retainedNewestLast},

	{"will/without goodbye", willWithoutGoodbye},
	{"will/delayed", willDelayed},
	{"will/held back", willHeldBack},
	{"will/session ends first", willSessionEnds},
	{"will/after a restart", willRestarted},
	{"will/late resume", willLateResume},
	{"will/retained", willRetained},
	{"will/expiry", willExpiry},
	{"will/every field", willEveryField},

	{"expiry/by itself", expiryByItself},
	{"expiry/over a restart", expiryRestarted},
	{"expiry/while the store is closed", expiryWhileClosed},
	{"expiry/not prolonged by restarts", expiryNotProlonged},
	{"expiry/changes with each link", expiryChanges},

	{"publish/once", publishOnce},
	{"publish/resumed", publishResumed},
	{"publish/forgotten with the session", publishForgotten},
	{"publish/done in order", publishDoneInOrder},
	{"publish/retained", publishRetained},
	{"publish/takeover storm", publishStorm},

	{"shared/once while all are away", sharedOnce},
	{"shared/grant", sharedGrant},
	{"shared/ends with the last member", sharedEnds},
	{"shared/ends with members that expire", sharedExpires},
	{"shared/groups apart", sharedApart},
	{"shared/beside a plain filter", sharedBesidePlain},
	{"shared/after a restart", sharedRestarted},
	{"shared/lives by its members", sharedLives},
	{"shared/gets nothing retained", sharedNoRetained},
	{"shared/members come and go", sharedChurn},

	{"give/moves", giveMoves},
	{"give/after a restart", giveRestarted},
	{"give/refused", giveRefused},
	{"give/unsubscribed", giveUnsubscribed},
	{"give/much", giveMuch},

	{"next/wakes", nextWakes},
	{"next/cancel loses nothing", nextCancel},
	{"next/does not wait", nextDoesNotWait},
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
	{"resume/only", resumeOnly},
	{"resume/cancelled calls", resumeCancelled},

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
