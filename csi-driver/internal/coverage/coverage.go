// SPDX-License-Identifier: Apache-2.0

// Package coverage is what a node service says of its volumes and of the processes of pods that use them: who is
// served, in which mode, with which counters, and who is not and why. It holds the JSON that the node service serves
// and the kubectl plugin reads.
package coverage

import "time"

const (
	// Path is where it is served, Port on which port of the node service's pod. The service listens on the pod's loopback
	// address only: who wants to read it needs the right to forward a port of that pod.
	Path = "/v1/coverage"
	Port = 9815
)

// StateLoaded is the state of a process that has the library; all others say why it has not (docs/injection.md).
const StateLoaded = "loaded"

// Node is the answer of one node service.
type Node struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	// Time is when the node was looked at; counters of two answers are compared by it.
	Time    time.Time `json:"time"`
	Volumes []Volume  `json:"volumes"`
	// Jobs are long works that volumes and snapshots wait for.
	Jobs []Job `json:"jobs,omitempty"`
	// Incomplete says what of the node could not be looked at; empty when everything could.
	Incomplete string `json:"incomplete,omitempty"`
}

// Job is work that takes as long as a volume is large.
type Job struct {
	// ID is the volume's or snapshot's; Namespace and Claim name the claim that it is, or is a snapshot of.
	ID         string `json:"id"`
	Namespace  string `json:"namespace,omitempty"`
	Claim      string `json:"claim,omitempty"`
	Kind       string `json:"kind"`
	DoneBytes  int64  `json:"doneBytes"`
	TotalBytes int64  `json:"totalBytes"`
}

// Volume is one staged volume of the node.
type Volume struct {
	ID string `json:"id"`
	// Namespace and Claim name the PersistentVolumeClaim.
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Mode is what the volume promises; a process may have another by its pod's annotations.
	Mode     string `json:"mode"`
	Device   string `json:"device"`
	FSType   string `json:"fsType"`
	Emulated bool   `json:"emulated"`
	// Root is where the volume is mounted in the node service's container.
	Root string `json:"root"`
	// AgentReady: an agent serves it. Without, what it did last is not known, and the fields below are empty.
	AgentReady bool     `json:"agentReady"`
	Provider   string   `json:"provider,omitempty"`
	Pool       Pool     `json:"pool"`
	Totals     Counters `json:"totals,omitempty"`
	// Latency is how long calls took, also those of processes that are gone.
	Latency  Latencies `json:"latency,omitempty"`
	Recovery Recovery  `json:"recovery"`
	// Blocked are processes that wait too long for a file which another one does not give up.
	Blocked []Blocked `json:"blocked,omitempty"`
	// Unserved are programs without the library that opened files for writing, and what was done with them.
	Unserved  []Unserved `json:"unserved,omitempty"`
	Processes []Process  `json:"processes"`
	Problems  []string   `json:"problems,omitempty"`
	// Unknown says why the volume's agent and files did not say who is served; empty when they did.
	Unknown string `json:"unknown,omitempty"`
}

// Pool is the volume's staging pool.
type Pool struct {
	Bytes     int64 `json:"bytes"`
	FreeBytes int64 `json:"freeBytes"`
}

// Recovery adds up what recoveries of the volume did.
type Recovery struct {
	Runs        int64 `json:"runs"`
	Replayed    int64 `json:"replayed"`
	Quarantined int64 `json:"quarantined"`
	// Pending are processes that have ended and whose logs wait for recovery.
	Pending int `json:"pending"`
}

// Blocked is a process that waits for another.
type Blocked struct {
	PID     int   `json:"pid"`
	HeldBy  int   `json:"heldBy"`
	Seconds int64 `json:"seconds"`
}

// Unserved is a program without the library that opened a file for writing. It may have ended.
type Unserved struct {
	PodUID string `json:"podUID"`
	PID    int    `json:"pid"`
	// Did is what was done: "refuse" or "durable".
	Did     string `json:"did"`
	Opens   int64  `json:"opens"`
	Seconds int64  `json:"seconds"`
	Program string `json:"program"`
	// Path is that of the last file.
	Path string `json:"path"`
}

// Process is one living process that can reach the volume.
type Process struct {
	// PID is its number on the node.
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Container string `json:"container,omitempty"`
	// State is StateLoaded, or why the process has not loaded the library; Cause says it in a sentence.
	State string `json:"state"`
	Cause string `json:"cause,omitempty"`
	// Open: it has files of the volume open now. Not looked at where the library is loaded.
	Open bool `json:"open,omitempty"`
	// Mode and Counters are those of its lease; without one, it has not used the volume yet, and they are empty.
	Mode     string   `json:"mode,omitempty"`
	Counters Counters `json:"counters,omitempty"`
}

// Served says whether the library serves the process on this volume.
func (p *Process) Served() bool { return p.Mode != "" }

// Unserved says whether the process has files of the volume open and has not loaded the library.
func (p *Process) Unserved() bool { return p.Open && p.State != StateLoaded }

// Counters are those of `splitfs status`, by name (docs/architecture.md).
type Counters map[string]int64

// Served are the reads and writes that the library served, Calls all that it was asked for.
func (c Counters) Served() int64 { return c["read_ops"] + c["append_ops"] + c["overwrite_ops"] }

// Calls are the reads and writes that the library was asked for.
func (c Counters) Calls() int64 { return c.Served() + c["passthrough_ops"] }

// Written are the bytes that were written by calls that the library served.
func (c Counters) Written() int64 { return c["append_bytes"] + c["overwrite_bytes"] }

// WithoutCopy is how many snapshots, patches and swaps there were.
func (c Counters) WithoutCopy() int64 { return c["peek_ops"] + c["patch_ops"] + c["swap_ops"] }

// Since returns what was counted after before. A counter that went back, because it was read while it changed, has not
// moved.
func (c Counters) Since(before Counters) Counters {
	difference := Counters{}
	for name, now := range c {
		difference[name] = max(0, now-before[name])
	}
	return difference
}

// Add adds other to c.
func (c Counters) Add(other Counters) {
	for name, n := range other {
		c[name] += n
	}
}
