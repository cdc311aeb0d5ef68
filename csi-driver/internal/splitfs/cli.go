// SPDX-License-Identifier: Apache-2.0

// Package splitfs runs the splitfs program, by the contract in docs/architecture.md.
package splitfs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// CLI is the splitfs program.
type CLI struct {
	// Binary is its path.
	Binary string
	// FillPercent of one processor is what filling pools may take on the node while nobody runs short; zero: the program's
	// default.
	FillPercent int
	// FillLock is the file by which the node's agents share that; pods must not be able to open it.
	FillLock string
}

// Check says whether the program can be run.
func (c CLI) Check() error {
	if err := unix.Access(c.Binary, unix.X_OK); err != nil {
		return fmt.Errorf("the splitfs program %s: %w", c.Binary, err)
	}
	return nil
}

// Prepare creates or checks the control directory of a volume and fills its pool, of so many bytes.
func (c CLI) Prepare(ctx context.Context, root string, pool int64) error {
	if _, err := command.Run(ctx, c.Binary, "prepare", root, "--pool-bytes", strconv.FormatInt(pool, 10)); err != nil {
		return fmt.Errorf("prepare the volume at %s: %w", root, err)
	}
	return nil
}

// Recover replays what the processes of the past left in the volume's logs.
func (c CLI) Recover(ctx context.Context, root string) (*volume.Recovery, error) {
	return c.replay(ctx, root, "--json")
}

// RecoverCopy does the same in a copy of a volume that was in use: the processes its logs name are those of the
// original.
func (c CLI) RecoverCopy(ctx context.Context, root string) (*volume.Recovery, error) {
	return c.replay(ctx, root, "--copy", "--json")
}

func (c CLI) replay(ctx context.Context, root string, options ...string) (*volume.Recovery, error) {
	var r volume.Recovery
	if err := command.RunJSON(ctx, &r, c.Binary, append([]string{"recover", root}, options...)...); err != nil {
		return nil, fmt.Errorf("recover the volume at %s: %w", root, err)
	}
	r.Time = time.Now().UTC().Truncate(time.Second)
	return &r, nil
}

// Status is the state of a volume as the program reports it.
type Status struct {
	UUID     string `json:"uuid"`
	Device   string `json:"device"`
	DAX      bool   `json:"dax"`
	Emulated bool   `json:"emulated"`
	// Memory is what the volume is on.
	Memory   volume.Memory `json:"memory"`
	Provider string        `json:"provider"`
	AgentPID int           `json:"agent_pid"`
	// Protocol says whom the agent could not understand.
	Protocol struct {
		Refused int64 `json:"refused"`
	} `json:"protocol"`
	Pool struct {
		Bytes     int64 `json:"bytes"`
		FreeBytes int64 `json:"free_bytes"`
		Files     int64 `json:"files"`
	} `json:"pool"`
	Processes []Process `json:"processes"`
	// Totals are counters over all processes, also those that are gone.
	Totals map[string]int64 `json:"totals"`
	// Latency is how long calls took, of those that were timed, by mode and kind of call; also of processes that are gone.
	Latency  map[string]map[string]Latency `json:"latency"`
	Recovery struct {
		Runs        int64 `json:"runs"`
		Records     int64 `json:"records"`
		Replayed    int64 `json:"replayed"`
		Quarantined int64 `json:"quarantined"`
	} `json:"recovery"`
	Blocked struct {
		Now []Blocked `json:"now"`
	} `json:"blocked"`
	Unserved Unserved `json:"unserved"`
}

// What an agent says of its refusals, besides "off".
const (
	EnforcementOn = "on"
	// EnforcementCannot: it is to refuse programs without the library, and the kernel does not let it.
	EnforcementCannot = "cannot"
)

// Unserved is what the agent did, since it started, with programs without the library that opened a file for writing.
type Unserved struct {
	Enforcement string `json:"enforcement"`
	Refused     int64  `json:"refused"`
	Durable     int64  `json:"durable"`
	// Processes are the last ones.
	Processes []UnservedProcess `json:"processes"`
}

// UnservedProcess is one of them.
type UnservedProcess struct {
	PID     int    `json:"pid"`
	Did     string `json:"did"`
	Opens   int64  `json:"opens"`
	Seconds int64  `json:"seconds"`
	// Pod is its UID.
	Pod     string `json:"pod"`
	Program string `json:"program"`
	Path    string `json:"path"`
}

// Latency is a histogram.
type Latency struct {
	Timed uint64 `json:"timed"`
	SumNS uint64 `json:"sum_ns"`
	// Buckets are pairs: where a bucket ends in ns (0: nowhere), and how many calls are in it. Empty ones are left out.
	Buckets [][2]uint64 `json:"buckets"`
}

// Process is one that has a log of the volume. One that is not alive has ended, and its log waits for recovery.
type Process struct {
	PID   int    `json:"pid"`
	Comm  string `json:"comm"`
	Mode  string `json:"mode"`
	Alive bool   `json:"alive"`
	// Protection against stray stores is "off", "on" or ProtectionCannot.
	Protection string           `json:"protection"`
	Counters   map[string]int64 `json:"counters"`
}

// ProtectionCannot: the process asks for protection, and there is no protection key for it.
const ProtectionCannot = "cannot"

// Blocked is a process that has waited too long for a file which another one does not give up.
type Blocked struct {
	PID     int   `json:"pid"`
	HeldBy  int   `json:"held_by"`
	Seconds int64 `json:"seconds"`
}

// Status asks for a volume's state; it works while an agent serves the volume.
func (c CLI) Status(ctx context.Context, root string) (*Status, error) {
	var s Status
	if err := command.RunJSON(ctx, &s, c.Binary, "status", root, "--json"); err != nil {
		return nil, fmt.Errorf("status of the volume at %s: %w", root, err)
	}
	return &s, nil
}

// Memory lists the node's persistent memory, and volatile memory behind /dev/dax.
func (c CLI) Memory(ctx context.Context) ([]nvdimm.Range, error) {
	var list struct {
		Ranges []nvdimm.Range `json:"ranges"`
	}
	if err := command.RunJSON(ctx, &list, c.Binary, "memory", "--json"); err != nil {
		return nil, fmt.Errorf("list the memory of the node: %w", err)
	}
	return list.Ranges, nil
}

// AgentOptions are the options of an agent that serves a volume with a pool of so many bytes, and does with programs of
// pods that have not the library what a file says.
func (c CLI) AgentOptions(pool int64, unservedBy string) []string {
	options := []string{"--pool-bytes", strconv.FormatInt(pool, 10), "--unserved-by", unservedBy}
	if c.FillPercent != 0 {
		options = append(options, "--fill-percent", strconv.Itoa(c.FillPercent))
	}
	if c.FillLock != "" {
		options = append(options, "--fill-lock", c.FillLock)
	}
	return options
}
