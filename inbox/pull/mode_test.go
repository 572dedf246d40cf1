package pull

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox"
)

func TestModes(t *testing.T) {
	h := newHouse(t, keepAll)
	h.join("phone", "chat/#")
	for mode, of := range map[string]inbox.Mode{ModePull: inbox.ModePull, ModePush: inbox.ModePush} {
		answer, err := h.Mode(t.Context(), phone, ModeRequest{Mode: mode})
		if err != nil || answer.Mode != mode {
			t.Errorf("%s: %+v, %v", mode, answer, err)
		}
		if answer, err = h.Mode(t.Context(), phone, ModeRequest{}); err != nil || answer.Mode != mode {
			t.Errorf("%s, asked: %+v, %v", mode, answer, err)
		}
		for session, err := range h.store.Sessions(t.Context()) {
			if err != nil || session.Mode != of {
				t.Errorf("%s: the session has the mode %d, %v", mode, session.Mode, err)
			}
		}
	}
	_, err := h.Mode(t.Context(), phone, ModeRequest{Mode: "Pull"})
	wantCode(t, err, CodeBadRequest)
	for _, mode := range []string{"", ModePull} {
		_, err := h.Mode(t.Context(), Asker{Receiver: "nobody"}, ModeRequest{Mode: mode})
		wantCode(t, err, CodeNoSession)
	}
}

func TestModesHaveNames(t *testing.T) {
	for _, m := range []inbox.Mode{inbox.ModePush, inbox.ModePull} {
		if again, ok := ParseMode(ModeName(m)); again != m || !ok {
			t.Errorf("mode %d has the name %q, which is read as %d, %v", m, ModeName(m), again, ok)
		}
	}
	if m, ok := ParseMode(ModeName(inbox.ModeKept)); m != inbox.ModeKept || ok {
		t.Errorf("no mode is read as %d, %v", m, ok)
	}
}
