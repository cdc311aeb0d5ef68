// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

const (
	// maxFiles and maxThreads bound the look at a large process.
	maxFiles   = 1024
	maxThreads = 64
)

// place is where in a file a descriptor was at the last look.
type place struct {
	target string
	offset int64
}

// process is one that is watched.
type process struct {
	found  attach.PodProcess
	start  procfs.ProcIO
	mounts map[int]string
	places map[string]place
	files  map[string]*coverage.WatchedFile
	seen   coverage.Watched
}

func begin(found attach.PodProcess) (*process, error) {
	start, err := found.IO()
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", found.PID, err)
	}
	return &process{
		found: found, start: start, mounts: volumes(found.Dir), places: map[string]place{},
		files: map[string]*coverage.WatchedFile{},
		seen: coverage.Watched{PID: found.PID, Command: found.Command, Container: found.Container, State: string(found.State),
			Waited: map[string]int64{}},
	}, nil
}

// noVolume are file systems that hold no files of volumes.
var noVolume = []string{"proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "overlay", "securityfs",
	"debugfs", "tracefs", "bpf"}

// volumes are the mounts of a process, by number, that may be volumes: not its image, nor what the kernel shows.
func volumes(dir string) map[int]string {
	mounts := map[int]string{}
	list, err := mountutils.ParseMountInfo(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return mounts
	}
	for _, m := range list {
		if m.MountPoint == "/" || slices.Contains(noVolume, m.FsType) {
			continue
		}
		if strings.HasPrefix(m.MountPoint, "/etc/") || m.MountPoint == "/dev" ||
			strings.HasPrefix(m.MountPoint, "/opt/splitfs") {
			continue // files that kubelet puts there, devices, and our own
		}
		mounts[m.ID] = m.MountPoint
	}
	return mounts
}

// look notes what the process does now.
func (p *process) look() {
	p.lookAtThreads()
	p.lookAtFiles()
}

// lookAtThreads reads in which calls the threads wait. A thread that runs says "running".
func (p *process) lookAtThreads() {
	threads, err := os.ReadDir(filepath.Join(p.found.Dir, "task"))
	if err != nil {
		return
	}
	for _, thread := range threads[:min(len(threads), maxThreads)] {
		text, err := os.ReadFile(filepath.Join(p.found.Dir, "task", thread.Name(), "syscall"))
		if err != nil {
			continue
		}
		p.seen.Looks++
		number, _, _ := strings.Cut(string(text), " ")
		if n, err := strconv.Atoi(number); err == nil && callNames[n] != "" {
			p.seen.Waited[callNames[n]]++
		}
	}
}

// callNames are the calls that are about files.
var callNames = map[int]string{
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_MSYNC:   "msync",
	unix.SYS_PREAD64: "pread", unix.SYS_PWRITE64: "pwrite", unix.SYS_IO_URING_ENTER: "io_uring_enter",
	unix.SYS_IO_GETEVENTS:    "io_getevents",
	unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_FLOCK: "flock",
}

func (p *process) lookAtFiles() {
	dir := filepath.Join(p.found.Dir, "fd")
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, d := range descriptors[:min(len(descriptors), maxFiles)] {
		target, err := os.Readlink(filepath.Join(dir, d.Name()))
		if err != nil {
			continue
		}
		if target == "anon_inode:[io_uring]" {
			p.seen.Ring = true
		}
		if strings.HasPrefix(target, "/") {
			p.lookAtFile(d.Name(), target)
		}
	}
}

func (p *process) lookAtFile(fd, target string) {
	info, err := p.found.FDInfo(fd)
	if err != nil {
		return // closed meanwhile
	}
	id, err := strconv.Atoi(info.MntID)
	mount, ours := p.mounts[id]
	if err != nil || !ours {
		return
	}
	flags, _ := strconv.ParseInt(info.Flags, 8, 64) //nolint:errcheck // 0 then
	offset, _ := strconv.ParseInt(info.Pos, 10, 64) //nolint:errcheck // 0 then
	// Its size is not asked for: on FUSE, or over the network, that may hang. The offset of who appends is the size.
	before, known := p.places[fd]
	p.places[fd] = place{target: target, offset: offset}
	if moved := offset - before.offset; known && before.target == target && moved > 0 {
		if flags&unix.O_ACCMODE == unix.O_RDONLY {
			p.seen.FileRead += moved
		} else {
			p.seen.FileWritten += moved
		}
	}
	f := p.files[target]
	if f == nil {
		f = &coverage.WatchedFile{Path: target, Mount: mount}
		p.files[target] = f
	}
	f.Writable = f.Writable || flags&unix.O_ACCMODE != unix.O_RDONLY
	f.Append = f.Append || flags&unix.O_APPEND != 0
	f.Sync = f.Sync || flags&unix.O_DSYNC != 0
	f.Direct = f.Direct || flags&unix.O_DIRECT != 0
	f.Stream = f.Stream || fd == "0" || fd == "1" || fd == "2"
}

// end returns what was seen; false: the process has ended meanwhile, and nobody knows what it did last.
func (p *process) end() (coverage.Watched, bool) {
	now, err := p.found.IO()
	if err != nil {
		return p.seen, false
	}
	p.seen.Reads, p.seen.Writes = int64(now.SyscR-p.start.SyscR), int64(now.SyscW-p.start.SyscW)
	p.seen.ReadBytes, p.seen.WrittenBytes = int64(now.RChar-p.start.RChar), int64(now.WChar-p.start.WChar)
	if p.found.State != "" && p.found.State != attach.Loaded {
		p.seen.Cause = p.found.State.Explain()
	}
	p.lookAtMaps()
	for _, f := range p.files {
		p.seen.Files = append(p.seen.Files, *f)
	}
	slices.SortFunc(p.seen.Files, func(a, b coverage.WatchedFile) int { return strings.Compare(a.Path, b.Path) })
	return p.seen, true
}

// lookAtMaps marks files that are mapped and shared.
func (p *process) lookAtMaps() {
	text, err := os.ReadFile(filepath.Join(p.found.Dir, "maps"))
	if err != nil {
		return
	}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for scanner.Scan() {
		fields := strings.SplitN(scanner.Text(), "/", 2)
		rights := strings.Fields(fields[0])
		if len(fields) < 2 || len(rights) < 2 || len(rights[1]) < 4 || rights[1][3] != 's' {
			continue
		}
		target := "/" + fields[1]
		if f := p.files[target]; f != nil {
			f.Mapped = true
			continue
		}
		for _, mount := range p.mounts {
			if strings.HasPrefix(target, mount+"/") {
				p.files[target] = &coverage.WatchedFile{Path: target, Mount: mount, Mapped: true, Writable: rights[1][1] == 'w'}
			}
		}
	}
}
