// SPDX-License-Identifier: Apache-2.0

// Package splitfstest is a test double of the splitfs program: it honours the command-line contract in
// docs/architecture.md with real locks, sockets and exit codes, but moves no data. A test binary becomes the double
// when it is called by the name "splitfs".
package splitfstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	name       = "splitfs"
	controlDir = ".splitfs"
	// Faults are switched on by files in the control directory, so that they need no channel to a process a test did not
	// start.
	quarantinedFile = "double-quarantined" // holds the number recover reports
	agentFailsFile  = "double-agent-fails" // the agent refuses to start while it is there
	memoryFile      = "double-memory"      // holds what status says that the volume's memory is
)

// RunIfCalled turns this process into the double when it was called as "splitfs". Call it first in TestMain.
func RunIfCalled() {
	if filepath.Base(os.Args[0]) != name {
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "splitfs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Install makes the running test binary available as the splitfs program in dir and returns its path.
func Install(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.Symlink(self, path)
}

// Quarantine makes the next recoveries of a volume report n quarantined logs.
func Quarantine(root string, n int) error {
	return os.WriteFile(filepath.Join(root, controlDir, quarantinedFile), []byte(strconv.Itoa(n)), 0o600)
}

// SetMemory makes status say what the memory of a volume is, as for one that is not emulated.
func SetMemory(root, memory string) error {
	return os.WriteFile(filepath.Join(root, controlDir, memoryFile), []byte(memory), 0o600)
}

// FailAgent makes agents of a volume fail at start, or stops them from doing so.
func FailAgent(root string, fail bool) error {
	path := filepath.Join(root, controlDir, agentFailsFile)
	if fail {
		return os.WriteFile(path, nil, 0o600)
	}
	return os.Remove(path)
}

// WriteForeignFormat makes a volume look as if a future version had prepared it.
func WriteForeignFormat(root string) error {
	if err := os.MkdirAll(filepath.Join(root, controlDir), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, controlDir, "volume"), []byte("format 99\n"), 0o600)
}

func run(args []string) error {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "splitfs: usage: splitfs COMMAND ROOT [OPTIONS]")
		os.Exit(2)
	}
	command, root := args[0], args[1]
	switch command {
	case "prepare":
		return prepare(root)
	case "recover":
		return replay(root) // with --copy the double does the same: it knows no processes
	case "status":
		return status(root)
	case "agent":
		return agent(root, args[2:])
	}
	return fmt.Errorf("unknown command %q", command)
}

func prepare(root string) error {
	dir := filepath.Join(root, controlDir)
	content, err := os.ReadFile(filepath.Join(dir, "volume"))
	if err == nil && !strings.HasPrefix(string(content), "format 1\n") {
		return errors.New("the volume has a format this version does not know; use a newer splitfs")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "volume"), []byte("format 1\n"), 0o600)
}

// lock takes the volume's lock, which an agent or a recovery holds.
func lock(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, controlDir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("an agent serves the volume; stop it first"), f.Close())
	}
	return f, nil
}

func quarantined(root string) int {
	content, err := os.ReadFile(filepath.Join(root, controlDir, quarantinedFile))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(content))
	if err != nil {
		return -1
	}
	return n
}

// Members of several objects.
const (
	bytesMember = "bytes"
	filesMember = "files"
)

func replay(root string) error {
	f, err := lock(root)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(os.Stdout).Encode(map[string]int{
		"logs":        1,
		"records":     3,
		"replayed":    2,
		bytesMember:   8192,
		"ignored":     1,
		filesMember:   1,
		"quarantined": quarantined(root),
	})
}

func status(root string) error {
	memory := "emulated"
	if content, err := os.ReadFile(filepath.Join(root, controlDir, memoryFile)); err == nil {
		memory = string(content)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"root": root, "uuid": "00000000-0000-0000-0000-000000000001", "format": 1, "device": "7:0", "dax": false,
		"emulated": true, "memory": memory, "provider": "reflink", "agent_pid": 1,
		"pool":      map[string]int{bytesMember: 4096, "free_bytes": 1024, filesMember: 2},
		"processes": []map[string]any{{"pid": 1, "comm": "init", "mode": "strict", "alive": true}},
		"totals":    map[string]int{"append_ops": 5, "append_bytes": 20480, "fsync_ops": 7},
		"recovery":  map[string]int{"runs": 1, "records": 3, "replayed": 2, "quarantined": quarantined(root)},
	})
}

func agent(root string, args []string) error {
	if len(args) < 2 || args[0] != "--agents-dir" {
		return errors.New("agent needs --agents-dir")
	}
	if _, err := os.Stat(filepath.Join(root, controlDir, agentFailsFile)); err == nil {
		return errors.New("told to fail")
	}
	if err := prepare(root); err != nil {
		return err
	}
	f, err := lock(root)
	if err != nil {
		return err
	}
	defer f.Close()
	if len(args) < 4 || args[2] != "--listen-fd" {
		return errors.New("agent needs --listen-fd")
	}
	fd, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening != 1 {
		return fmt.Errorf("--listen-fd %d is no listening socket: %w", fd, err)
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	fmt.Println("ready")
	<-terminate
	return nil
}
