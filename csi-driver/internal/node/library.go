// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/selinux"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	libraryName = "libsplit.so"
	agentsName  = "agents"
	// libraryGrace is how long the version before stays at least.
	libraryGrace = 10 * time.Minute
)

// library is what pods see at /opt/splitfs: the preload library, and the sockets of the agents of their volumes. Each
// pod has a directory of its own; the library in it is the same file as in dir.
type library struct {
	source string
	dir    string
	// pods has the directories of the pods, by their UID; lock is held while they change. Without pods there are none.
	pods string
	lock *sync.Mutex
	// seen is since when links lead where they do, and directories of pods have no user.
	seen *sightings
}

// agentsDir was shown to all pods by drivers that had no directories of pods; see Node.shownTo.
func (l library) agentsDir() string { return filepath.Join(l.dir, agentsName) }

func (l library) path() string { return filepath.Join(l.dir, libraryName) }

// prepareDirs makes the directories.
func (l library) prepareDirs() error {
	for _, dir := range []string{l.dir, l.agentsDir(), l.pods} {
		if dir == "" {
			continue
		}
		if err := makeReadable(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeReadable makes a directory. Every user of a pod must be able to look into it, whatever the umask is.
func makeReadable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the inject directory: %w", volume.RoomError(filepath.Dir(dir), err))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("create the inject directory: %w", err)
	}
	// What is made in it gets the same.
	if err := selinux.Label(dir, selinux.ReadOnly); err != nil {
		return fmt.Errorf("create the inject directory: %w", err)
	}
	return nil
}

// install copies the library out of the image, into a directory named by its content, and makes the name that pods
// preload a link to it. A process that is just starting sees the old version or the new one, never a part; the file
// that a running process has mapped is neither changed nor removed (removeUnused).
func (l library) install() error {
	content, err := os.ReadFile(l.source)
	if err != nil {
		return fmt.Errorf("the library of this image: %w", err)
	}
	version := digest(content)
	if err := makeReadable(filepath.Join(l.dir, version)); err != nil {
		return err
	}
	file := filepath.Join(l.dir, version, libraryName)
	if have, err := os.ReadFile(file); err != nil || digest(have) != version {
		if err := volume.WriteFileDurable(file, content, 0o755); err != nil {
			return fmt.Errorf("install the library: %w", err)
		}
	}
	if err := selinux.Label(file, selinux.ReadOnly); err != nil { // an older driver gave it none
		return fmt.Errorf("install the library: %w", err)
	}
	if err := pointTo(filepath.Join(version, libraryName), l.path()); err != nil {
		return fmt.Errorf("install the library: %w", err)
	}
	l.seen.age(l.path(), filepath.Join(version, libraryName))
	return l.installForPods()
}

// pointTo makes path a symbolic link to target, unless it is one: a link takes space, which there may not be.
func pointTo(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	return volume.SetSymlink(target, path)
}

func digest(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

var versionName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// removeUnused removes versions that are not the current one and that no process has mapped. A program that was about
// to load the version before when the link changed is long done: the link must have been seen as it is for grace.
func (l library) removeUnused(proc string, grace time.Duration) (removed []string, err error) {
	pods, err := l.podDirs()
	if err != nil {
		return nil, err
	}
	for _, dir := range pods {
		if _, err := (library{dir: dir, seen: l.seen}).removeUnusedHere(proc, grace); err != nil {
			return nil, err
		}
	}
	return l.removeUnusedHere(proc, grace)
}

func (l library) removeUnusedHere(proc string, grace time.Duration) (removed []string, err error) {
	current, err := os.Readlink(l.path())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // EINVAL: a file, of a driver that had no versions
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for unused libraries: %w", err)
	}
	if l.seen.age(l.path(), current) < grace {
		return nil, nil
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("look for unused libraries: %w", err)
	}
	var old []string
	for _, entry := range entries {
		if entry.IsDir() && versionName.MatchString(entry.Name()) && entry.Name() != filepath.Dir(current) {
			old = append(old, entry.Name())
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	mapped, err := mappedVersions(proc)
	if err != nil {
		return nil, err
	}
	for _, version := range old {
		if mapped[version] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.dir, version)); err != nil {
			return removed, fmt.Errorf("remove an unused library: %w", err)
		}
		removed = append(removed, version)
	}
	return removed, nil
}

var mappedLibrary = regexp.MustCompile(`/([0-9a-f]{64})/` + regexp.QuoteMeta(libraryName))

// mappedVersions are the versions of the library that processes of this node have mapped.
func mappedVersions(proc string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "maps"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	versions := map[string]bool{}
	for _, file := range files {
		maps, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the process has ended
		}
		if err != nil {
			return nil, fmt.Errorf("look which libraries are in use: %w", err)
		}
		for _, match := range mappedLibrary.FindAllSubmatch(maps, -1) {
			versions[string(match[1])] = true
		}
	}
	return versions, nil
}

// ready says whether pods would find the library, and puts it there when it is missing.
func (l library) ready() (restored bool, err error) {
	info, err := os.Stat(l.path())
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("the library: %w", err)
	}
	return true, l.install()
}

// removeStaleSockets removes sockets of file systems that are not mounted any more, which a supervisor left that was
// killed.
func (l library) removeStaleSockets() error {
	sockets, err := filepath.Glob(filepath.Join(l.agentsDir(), "*.sock"))
	if err != nil {
		return fmt.Errorf("look for stale sockets: %w", err)
	}
	ofPods, err := filepath.Glob(filepath.Join(l.pods, "*", agentsName, "*.sock"))
	if err != nil {
		return fmt.Errorf("look for stale sockets: %w", err)
	}
	sockets = append(sockets, ofPods...)
	for _, socket := range sockets {
		var major, minor uint32
		if _, err := fmt.Sscanf(filepath.Base(socket), "%d-%d.sock", &major, &minor); err == nil {
			if mounted, err := mounts.OfDevice(major, minor); err != nil {
				return fmt.Errorf("look for stale sockets: %w", err)
			} else if len(mounted) > 0 {
				continue
			}
		}
		if err := volume.RemoveIfThere(socket); err != nil {
			return fmt.Errorf("remove a stale socket: %w", err)
		}
	}
	return nil
}

// PublishLibrary shows a pod its directory, read-only.
func (n *Node) PublishLibrary(ctx context.Context, target string, readOnly bool, pod volume.Pod) error {
	if !readOnly {
		return fmt.Errorf("%w: the library volume must be read-only; set csi.readOnly: true", volume.ErrInvalid)
	}
	restored, err := n.library.ready()
	if err != nil {
		return fmt.Errorf("%w: node %s cannot offer libsplit.so to pods: %w", volume.ErrPrecondition, n.config.Name, err)
	}
	if restored {
		n.reportRestored(ctx, "was missing")
	}
	dir, err := n.library.prepareForPod(pod.UID)
	if err != nil {
		return err
	}
	if err := n.configurePod(ctx, dir, pod); err != nil {
		return err
	}
	if err := n.mounter.Bind(ctx, dir, target, []string{"ro", "nosuid", "nodev"}); err != nil {
		return err
	}
	mounted, err := mounts.At(target)
	if err != nil {
		return err
	}
	if mounted != nil && slices.Contains(mounted.MountOptions, "noexec") {
		return errors.Join(
			fmt.Errorf("%w: %s of node %s is mounted noexec, so no program could load the library; put --data-dir elsewhere",
				volume.ErrPrecondition, n.library.dir, n.config.Name), n.mounter.Cleanup(target))
	}
	klog.FromContext(ctx).V(2).Info("Published the library", "target", target)
	return nil
}
