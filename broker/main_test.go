package broker

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
