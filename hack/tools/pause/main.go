// SPDX-License-Identifier: Apache-2.0

// Command pause holds namespaces open: it is the sandbox container of every pod in the local cluster, and the first
// process of every node. As PID 1 it inherits the orphans of its PID namespace and has to reap them.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	// Children may have died before Notify took effect.
	if err := reap(); err != nil {
		fail(err)
	}
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		if err := reap(); err != nil {
			fail(err)
		}
	}
}

// reap collects every child that has ended. One SIGCHLD may stand for several of them.
func reap() error {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.ECHILD, err == nil && pid == 0:
			return nil
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		}
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "pause: %v\n", err)
	os.Exit(1)
}
