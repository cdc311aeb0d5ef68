// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// State is whether a process has the library, or why not.
type State string

// States of a process; they are label values of the metric.
const (
	Loaded State = "loaded"
	// NotMounted: the container was not injected.
	NotMounted State = "not-injected"
	// Environment: the container was, and LD_PRELOAD does not name the library any more.
	Environment State = "environment"
	StaticGo    State = "static-go"
	Static      State = "static"
	SetUID      State = "set-uid"
	Machine     State = "machine"
	// Linker: nothing of the above; the dynamic linker did not take it.
	Linker State = "linker"
	// NotRead: the program's file may hang whoever reads it, so nobody looked for a cause in it.
	NotRead State = "not-read"
)

// Explain says it in a clause: "it is ...".
func (s State) Explain() string {
	switch s {
	case NotMounted:
		return "the container was not injected; see annotation splitfs.io/status, and delete the pod so that it is created " +
			"anew with the injector"
	case Environment:
		return "LD_PRELOAD does not name it; a program or script of the image cleared or replaced the environment"
	case StaticGo:
		return "it is a Go program, which is linked statically and makes its system calls itself"
	case Static:
		return "it is linked statically, so no library can be loaded into it"
	case SetUID:
		return "it is set-uid, set-gid or has file capabilities, so the dynamic linker ignores LD_PRELOAD"
	case Machine:
		return "it is a program for another machine type than the library"
	case NotRead:
		return "its program is on a file system that this node does not read for others (FUSE, or over the network), so " +
			"the cause is not known; it may be linked statically, or set-uid"
	case Linker:
		return "its dynamic linker did not load it; its standard error says why, for example a libc that is too old"
	}
	return string(s)
}

// process is one entry of procfs.
type process struct {
	identity
	proc    procfs.Proc
	dir     string
	command string
}

func (v *Verifier) processes() ([]process, error) {
	mounted, err := procfs.NewFS(v.config.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all, err := mounted.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var list []process
	for _, proc := range all {
		stat, err := proc.Stat()
		if err != nil || stat.State == "Z" {
			continue // gone meanwhile
		}
		list = append(list, process{
			identity: identity{pid: proc.PID, start: stat.Starttime}, proc: proc,
			dir: filepath.Join(v.config.Proc, strconv.Itoa(proc.PID)), command: Printable(stat.Comm),
		})
	}
	return list, nil
}

// Printable keeps what a process calls itself from doing harm in an event.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

var (
	podInCgroup       = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
	containerInCgroup = regexp.MustCompile(`[0-9a-f]{64}`)
)

// owner is the pod's UID and the container's ID in the process's cgroups, with either cgroup driver; "" when there is
// none.
func (p *process) owner() (pod, container string) { return ownerOf(p.proc) }

// Owner says which pod, by UID, and which container a process belongs to; proc is a procfs that shows all processes.
func Owner(proc string) func(pid int) (pod, container string) {
	return func(pid int) (pod, container string) {
		mounted, err := procfs.NewFS(proc)
		if err != nil {
			return "", ""
		}
		p, err := mounted.Proc(pid)
		if err != nil {
			return "", ""
		}
		return ownerOf(p)
	}
}

func ownerOf(proc procfs.Proc) (pod, container string) {
	groups, err := proc.Cgroups()
	if err != nil {
		return "", ""
	}
	for _, group := range groups {
		if pod, container = parseCgroup(group.Path); pod != "" {
			return pod, container
		}
	}
	return "", ""
}

func parseCgroup(path string) (pod, container string) {
	match := podInCgroup.FindStringSubmatchIndex(path)
	if match == nil {
		return "", ""
	}
	// The systemd driver writes "_" for "-", which it uses for itself.
	pod = strings.ReplaceAll(path[match[2]:match[3]], "_", "-")
	return pod, containerInCgroup.FindString(path[match[3]:])
}

// view is what a mount namespace shows.
type view struct {
	devices map[uint64]bool
	// mounts are by ID; a process's files say on which one they are.
	mounts map[int]*mountutils.MountInfo
	// library: something is mounted where the library belongs.
	library bool
	// container is its name in the pod, which kubelet puts into the path of the termination log.
	container string
}

// mountCache reads each mount namespace once per scan.
type mountCache map[string]*view

// containerInPath: <kubelet's directory>/pods/<uid>/containers/<name>/<file>. Podman and CRI-O mount a
// /var/lib/containers/storage/overlay, which is no container's.
var containerInPath = regexp.MustCompile(`/pods/[^/]+/containers/([^/]+)/[^/]+$`)

func (c mountCache) of(p *process, library string) (*view, error) {
	namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "mnt"))
	if err != nil {
		return nil, err
	}
	if known, ok := c[namespace]; ok {
		return known, nil
	}
	infos, err := mountutils.ParseMountInfo(filepath.Join(p.dir, "mountinfo"))
	if err != nil {
		return nil, err
	}
	seen := &view{devices: map[uint64]bool{}, mounts: map[int]*mountutils.MountInfo{}}
	for i := range infos {
		info := &infos[i]
		seen.devices[device(info)], seen.mounts[info.ID] = true, info
		if info.MountPoint == filepath.Dir(library) {
			seen.library = true
		}
		if match := containerInPath.FindStringSubmatch(info.Root); match != nil && seen.container == "" {
			seen.container = match[1]
		}
	}
	c[namespace] = seen
	return seen, nil
}

// look judges a process for each of its pod's volumes that its container has mounted. A process that ends meanwhile has
// no findings.
func (p *process) look(pod podVolumes, container string, mounts mountCache, library string) []Finding {
	seen, err := mounts.of(p, library)
	if err != nil {
		return nil
	}
	if seen.container != "" {
		container = seen.container
	}
	var findings []Finding
	for _, vol := range pod.volumes {
		if seen.devices[vol.Device] {
			findings = append(findings, Finding{Volume: vol, Pod: pod.pod, Container: container, PID: p.pid, Command: p.command})
		}
	}
	if len(findings) == 0 {
		return nil
	}
	state, err := p.state(seen, library)
	if err != nil {
		return nil
	}
	var open map[uint64]bool
	if state != Loaded {
		open = p.openDevices(seen)
	}
	for i := range findings {
		findings[i].State, findings[i].Open = state, open[findings[i].Volume.Device]
	}
	return findings
}

// state finds out whether the library is in the process, and otherwise the first cause that explains it.
func (p *process) state(seen *view, library string) (State, error) {
	maps, err := os.ReadFile(filepath.Join(p.dir, "maps"))
	if err != nil {
		return "", err
	}
	if mapsLibrary(maps, library) {
		return Loaded, nil
	}
	if !seen.library {
		return NotMounted, nil
	}
	if !seen.answers(filepath.Join(p.dir, "exe")) {
		return NotRead, nil
	}
	cause, err := p.programCause()
	if err != nil || cause != "" {
		return cause, err
	}
	environment, err := os.ReadFile(filepath.Join(p.dir, "environ"))
	if err != nil {
		return "", err
	}
	if !slices.Contains(preloaded(strings.Split(string(environment), "\x00")), library) {
		return Environment, nil
	}
	return Linker, nil
}

// mapsLibrary says whether the library is mapped, also a version of it that was replaced meanwhile. Package procfs
// would take a list that could be read in part for the whole one.
func mapsLibrary(maps []byte, library string) bool {
	for line := range bytes.Lines(maps) {
		_, path, found := strings.Cut(string(line), "/")
		if !found {
			continue
		}
		path = "/" + strings.TrimSuffix(strings.TrimRight(path, "\n"), " (deleted)")
		if filepath.Base(path) == filepath.Base(library) && strings.HasPrefix(path, filepath.Dir(library)+"/") {
			return true
		}
	}
	return false
}

// programCause looks at the program's file for a reason that no environment could change; "" when there is none.
func (p *process) programCause() (State, error) {
	exe := filepath.Join(p.dir, "exe")
	file, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	program, err := elf.NewFile(file)
	if err != nil {
		return Linker, nil //nolint:nilerr // an interpreter of its own (binfmt_misc): not for our linker
	}
	dynamic := slices.ContainsFunc(program.Progs, func(segment *elf.Prog) bool { return segment.Type == elf.PT_INTERP })
	switch {
	case !dynamic && (program.Section(".go.buildinfo") != nil || program.Section(".note.go.buildid") != nil):
		return StaticGo, nil
	case !dynamic:
		return Static, nil
	case program.Machine != elf.EM_X86_64 || program.Class != elf.ELFCLASS64:
		return Machine, nil
	}
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 || hasCapabilities(file) {
		return SetUID, nil
	}
	return "", nil
}

func hasCapabilities(file *os.File) bool {
	size, err := unix.Fgetxattr(int(file.Fd()), "security.capability", nil)
	return err == nil && size > 0
}

// maxFiles bounds the look at a process with very many descriptors.
const maxFiles = 65536

// openDevices are the file systems on which the process has files open, or stands. The files themselves are not looked
// at: on FUSE, or over the network, they may hang whoever asks for their attributes, and nobody could end him.
func (p *process) openDevices(seen *view) map[uint64]bool {
	devices := map[uint64]bool{}
	if at := seen.under(filepath.Join(p.dir, "cwd")); at != nil {
		devices[device(at)] = true
	}
	dir, err := os.Open(filepath.Join(p.dir, "fdinfo"))
	if err != nil {
		return devices
	}
	defer dir.Close() //nolint:errcheck // it was only read
	names, err := dir.Readdirnames(maxFiles)
	if err != nil && !errors.Is(err, os.ErrNotExist) && len(names) == 0 {
		return devices
	}
	for _, name := range names {
		info, err := p.proc.FDInfo(name)
		if err != nil {
			continue // closed meanwhile
		}
		id, err := strconv.Atoi(info.MntID)
		if err != nil {
			continue
		}
		// One that was opened in another mount namespace is on none of these.
		if at := seen.mounts[id]; at != nil {
			devices[device(at)] = true
		}
	}
	return devices
}

func device(info *mountutils.MountInfo) uint64 {
	return unix.Mkdev(uint32(info.Major), uint32(info.Minor))
}

// under is the mount below which a link of procfs leads; nil where that cannot be told.
func (v *view) under(link string) *mountutils.MountInfo {
	path, err := os.Readlink(link)
	if err != nil || !filepath.IsAbs(path) {
		return nil
	}
	path = strings.TrimSuffix(path, " (deleted)")
	var best *mountutils.MountInfo
	for _, info := range v.mounts {
		if info.MountPoint != "/" && path != info.MountPoint && !strings.HasPrefix(path, info.MountPoint+"/") {
			continue
		}
		// Of two at the same place the later one covers the other.
		if best == nil || len(info.MountPoint) > len(best.MountPoint) ||
			len(info.MountPoint) == len(best.MountPoint) && info.ID > best.ID {
			best = info
		}
	}
	return best
}

// local are file systems whose files are read without asking another process or machine.
var local = []string{"btrfs", "erofs", "ext2", "ext3", "ext4", "ext4_splitfs", "f2fs", "overlay", "ramfs", "rootfs",
	"squashfs", "tmpfs", "vfat", "xfs", "zfs"}

// answers says whether the file behind a link of procfs is on a file system that does not leave its readers waiting.
func (v *view) answers(link string) bool {
	at := v.under(link)
	return at != nil && slices.Contains(local, at.FsType)
}
