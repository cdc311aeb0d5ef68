// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Each pod sees a directory of its own at /opt/splitfs, with the sockets of the agents of its own volumes: those of
// others it cannot even connect to.

// podUID is what Kubernetes makes; it becomes the name of a directory.
var podUID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)

func (l library) podDir(uid string) string { return filepath.Join(l.pods, uid) }

// prepareForPod makes the directory of a pod. That it is there says that the pod sees this one, and no other pod's
// sockets.
func (l library) prepareForPod(uid string) (string, error) {
	if !podUID.MatchString(uid) {
		return "", fmt.Errorf(
			"%w: kubelet does not say which pod the library is for (UID %q); the CSIDriver object needs podInfoOnMount: true",
			volume.ErrPrecondition, uid)
	}
	defer l.changePods()()
	dir := l.podDir(uid)
	l.seen.forget(dir)
	for _, d := range []string{dir, filepath.Join(dir, agentsName)} {
		if err := makeReadable(d); err != nil {
			return "", err
		}
	}
	return dir, l.installFor(dir)
}

// changePods keeps two from changing the directories of pods at a time.
func (l library) changePods() (done func()) {
	l.lock.Lock()
	return l.lock.Unlock
}

// podDirs are the directories of all pods.
func (l library) podDirs() ([]string, error) {
	if l.pods == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(l.pods)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for directories of pods: %w", err)
	}
	var dirs []string
	for _, entry := range entries {
		if entry.IsDir() && podUID.MatchString(entry.Name()) {
			dirs = append(dirs, l.podDir(entry.Name()))
		}
	}
	return dirs, nil
}

// installForPods makes all pods see the current version.
func (l library) installForPods() error {
	dirs, err := l.podDirs()
	if err != nil || len(dirs) == 0 {
		return err
	}
	defer l.changePods()()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			continue // its pod has gone
		}
		if err := l.installFor(dir); err != nil {
			return err
		}
	}
	return nil
}

// installFor gives the current version a name in a pod's directory: it is one file, whoever looks at it.
func (l library) installFor(dir string) error {
	if err := offerPreload(dir); err != nil {
		return err
	}
	link, err := os.Readlink(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is missing; who puts it back comes here again
	}
	if err != nil {
		return fmt.Errorf("install the library for a pod: %w", err)
	}
	want, here := filepath.Join(l.dir, link), filepath.Join(dir, link)
	if !sameFile(want, here) {
		if err := makeReadable(filepath.Dir(here)); err != nil {
			return err
		}
		fresh := here + ".new"
		if err := errors.Join(volume.RemoveIfThere(fresh), os.Link(want, fresh), os.Rename(fresh, here)); err != nil {
			return fmt.Errorf("install the library for a pod: %w", volume.RoomError(dir, err))
		}
	}
	if err := pointTo(link, filepath.Join(dir, libraryName)); err != nil {
		return fmt.Errorf("install the library for a pod: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// podGrace is how long the directory of a pod stays at least that nobody seems to use: what it is made for is not
// recorded yet.
const podGrace = 2 * time.Minute

// removePods removes the directories of pods that have neither a volume of the node nor the library any more.
func (l library) removePods(using map[string]bool, grace time.Duration) error {
	dirs, err := l.podDirs()
	if err != nil || len(dirs) == 0 {
		return err
	}
	defer l.changePods()()
	mounted, err := mountutils.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("look for directories of pods in use: %w", err)
	}
	for _, m := range mounted {
		if strings.HasSuffix(filepath.Dir(m.Root), "/"+filepath.Base(l.pods)) {
			using[filepath.Base(m.Root)] = true
		}
	}
	for _, dir := range dirs {
		if using[filepath.Base(dir)] {
			l.seen.forget(dir)
			continue
		}
		if l.seen.age(dir, "unused") < grace {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the directory of a pod that is gone: %w", err)
		}
		l.seen.forget(dir, filepath.Join(dir, libraryName))
	}
	return nil
}

// shownTo are the directories that show the socket of a volume's agent: those of the pods that have it. A pod without
// one was started by a driver that showed all sockets to all pods.
func (n *Node) shownTo(rec *volume.Record) []string {
	dirs := []string{}
	before := false
	for _, p := range rec.Published {
		if p.Pod.UID == "" {
			continue
		}
		dir := filepath.Join(n.library.podDir(p.Pod.UID), agentsName)
		if _, err := os.Stat(dir); err != nil {
			before = true
			continue
		}
		dirs = append(dirs, dir)
	}
	if before {
		dirs = append(dirs, n.library.agentsDir())
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// showAgent shows a volume's agent to the pods that have the volume now.
func (n *Node) showAgent(ctx context.Context, rec *volume.Record) error {
	if rec.Block || rec.Staged == nil {
		return nil
	}
	if err := n.writePolicies(rec); err != nil {
		return err
	}
	if err := n.agents.Update(ctx, rec.ID, n.served(rec)); err != nil {
		return fmt.Errorf("show the agent of volume %s to its pods: %w: %w", rec.ID, volume.ErrUnavailable, err)
	}
	return nil
}
