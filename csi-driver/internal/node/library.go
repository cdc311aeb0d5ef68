// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	libraryName = "libsplit.so"
	agentsName  = "agents"
	socketGlob  = "*.sock"
)

// library is the directory that pods see at /opt/splitfs: the preload library, and the sockets of the agents.
type library struct {
	source string
	dir    string
}

func (l library) agentsDir() string { return filepath.Join(l.dir, agentsName) }

func (l library) path() string { return filepath.Join(l.dir, libraryName) }

// prepareDirs makes the directories. Every user of a pod must be able to look into them, whatever the umask is.
func (l library) prepareDirs() error {
	for _, dir := range []string{l.dir, l.agentsDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create the inject directory: %w", err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("create the inject directory: %w", err)
		}
	}
	return nil
}

// install copies the library out of the image. A process that is just starting sees the old file or the new one, never a part;
// processes that run keep the one they have mapped.
func (l library) install() error {
	content, err := os.ReadFile(l.source)
	if err != nil {
		return fmt.Errorf("the library of this image: %w", err)
	}
	if err := volume.WriteFileDurable(l.path(), content, 0o755); err != nil {
		return fmt.Errorf("install the library: %w", err)
	}
	return nil
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

// removeStaleSockets removes what agents of an earlier run left. Called when no agent runs.
func (l library) removeStaleSockets() error {
	sockets, err := filepath.Glob(filepath.Join(l.agentsDir(), socketGlob))
	if err != nil {
		return fmt.Errorf("look for stale agent sockets: %w", err)
	}
	for _, socket := range sockets {
		if err := removeIfThere(socket); err != nil {
			return fmt.Errorf("remove a stale agent socket: %w", err)
		}
	}
	return nil
}

// removeSocket removes the socket of the volume whose file system has these numbers: an agent that was killed leaves it behind.
func (l library) removeSocket(major, minor uint32) error {
	if err := removeIfThere(filepath.Join(l.agentsDir(), fmt.Sprintf("%d-%d.sock", major, minor))); err != nil {
		return fmt.Errorf("remove an agent's socket: %w", err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// PublishLibrary shows the inject directory to a pod, read-only.
func (n *Node) PublishLibrary(ctx context.Context, target string, readOnly bool) error {
	if !readOnly {
		return fmt.Errorf("%w: the library volume must be read-only; set csi.readOnly: true", volume.ErrInvalid)
	}
	restored, err := n.library.ready()
	if err != nil {
		return fmt.Errorf("%w: node %s cannot offer libsplit.so to pods: %w", volume.ErrPrecondition, n.config.Name, err)
	}
	if restored {
		n.tellRestored(ctx, "was missing")
	}
	if err := n.mounter.Bind(ctx, n.library.dir, target, []string{"ro", "nosuid", "nodev"}); err != nil {
		return err
	}
	mounted, err := mounts.At(target)
	if err != nil {
		return err
	}
	if mounted != nil && slices.Contains(mounted.MountOptions, "noexec") {
		return errors.Join(fmt.Errorf("%w: %s of node %s is mounted noexec, so no program could load the library; put --data-dir elsewhere",
			volume.ErrPrecondition, n.library.dir, n.config.Name), n.mounter.Cleanup(target))
	}
	klog.FromContext(ctx).V(2).Info("Published the library", "target", target)
	return nil
}
