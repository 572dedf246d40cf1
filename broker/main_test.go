package broker

import (
	"testing"

	"github.com/mqtt-inbox/mqtt-inbox/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
