package main

import (
	"fmt"
	"runtime"

	"github.com/mqtt-inbox/mqtt-inbox/broker"
)

type versionCommand struct{}

// Run prints one line: the version, the commit it was built from if that is
// known, and the Go version and system.
func (versionCommand) Run(env *environment) error {
	_, err := fmt.Fprintf(env.stdout, "mqtt-inbox %s %s %s/%s\n", broker.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
