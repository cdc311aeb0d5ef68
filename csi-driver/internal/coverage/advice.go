// SPDX-License-Identifier: Apache-2.0

package coverage

// AdvicePath is where a node service watches a pod for a while: ?pod=UID&seconds=N.
const AdvicePath = "/v1/advice"

// MaxWatchSeconds bounds how long it does.
const MaxWatchSeconds = 60

// Advice is what the processes of a pod did while they were watched. The pod needs no volume of ours.
type Advice struct {
	Node    string  `json:"node"`
	Seconds float64 `json:"seconds"`
	// Processes are those that were there from the first look to the last.
	Processes []Watched `json:"processes"`
	// Costs are what calls cost on this node; CostsUnknown says why they are not known.
	Costs        *Costs `json:"costs,omitempty"`
	CostsUnknown string `json:"costsUnknown,omitempty"`
	// Incomplete says what could not be looked at.
	Incomplete string `json:"incomplete,omitempty"`
}

// Watched is one process.
type Watched struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Container string `json:"container,omitempty"`
	// State is StateLoaded, or why the library can't be loaded into its program; empty: nothing is against it. Cause says
	// it in a sentence.
	State string `json:"state,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Reads and Writes are all its calls of that kind, also on sockets and pipes, and their bytes.
	Reads        int64 `json:"reads"`
	Writes       int64 `json:"writes"`
	ReadBytes    int64 `json:"readBytes"`
	WrittenBytes int64 `json:"writtenBytes"`
	// FileRead and FileWritten are bytes by which the offsets and sizes of files in volumes have moved: what was read and
	// written at places of their own (pread, pwrite) within a file is not among them.
	FileRead    int64 `json:"fileRead"`
	FileWritten int64 `json:"fileWritten"`
	// Looks is how often its threads were looked at, Waited in which calls they waited then.
	Looks  int64            `json:"looks"`
	Waited map[string]int64 `json:"waited,omitempty"`
	// Ring: it has an io_uring.
	Ring  bool          `json:"ring,omitempty"`
	Files []WatchedFile `json:"files,omitempty"`
}

// WatchedFile is a file in a volume that the process had open, or mapped.
type WatchedFile struct {
	Path     string `json:"path"`
	Mount    string `json:"mount"`
	Writable bool   `json:"writable,omitempty"`
	Append   bool   `json:"append,omitempty"`
	Sync     bool   `json:"sync,omitempty"`
	Direct   bool   `json:"direct,omitempty"`
	// Stream: it is a standard stream; Mapped: shared with the file, so loads and stores go to the kernel's pages.
	Stream bool `json:"stream,omitempty"`
	Mapped bool `json:"mapped,omitempty"`
}

// Costs is what `splitfs advise --measure --json` prints: nanoseconds of CPU time by kind of call, for the kernel and
// each mode.
type Costs struct {
	Directory string                      `json:"directory"`
	Emulated  bool                        `json:"emulated"`
	Provider  string                      `json:"provider"`
	CPUNs     map[string]map[string]int64 `json:"costsCpuNs"`
}
