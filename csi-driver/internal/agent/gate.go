// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// gate is the fanotify group by which the kernel asks agents about opens of a volume's files, and the memory in which
// an agent notes the questions that it has not answered yet. As long as somebody has them, opens wait while one agent
// follows another. With an agent's own group they would go on, and a program that the agent is to refuse could write.
type gate struct {
	group, memory *os.File
}

// newGate makes a group with the flags that agents use (libsplit/src/agent/listener.c).
func newGate() (*gate, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE|
		unix.FAN_UNLIMITED_MARKS|unix.FAN_REPORT_TID, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE|unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("fanotify: %w", err)
	}
	group, err := socketFile(fd, "fanotify")
	if err != nil {
		return nil, fmt.Errorf("fanotify: %w", err)
	}
	fd, err = unix.MemfdCreate("splitfs-gate", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memfd: %w", err), group.Close())
	}
	return &gate{group: group, memory: os.NewFile(uintptr(fd), "splitfs-gate")}, nil
}

func (g *gate) files() []*os.File {
	if g == nil {
		return nil
	}
	return []*os.File{g.group, g.memory}
}

// close lets those go on who wait, unless an agent still has the group.
func (g *gate) close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.group.Close(), g.memory.Close())
}
