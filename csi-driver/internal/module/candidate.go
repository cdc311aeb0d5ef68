// SPDX-License-Identifier: Apache-2.0

package module

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// candidate is a module's file that was checked and may be loaded. It stays open: what was checked is what is loaded.
type candidate struct {
	file   *os.File
	info   Info
	sha256 string
}

func (c *candidate) close() error { return c.file.Close() }

// machines says what modules of this processor are built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// find returns the module for a kernel release from the first of the directories that has one. A file that is there and
// must not be loaded does not hide a good one in a later directory, and is what the error is about when there is none.
func find(dirs []string, release string) (*candidate, error) {
	var bad []error
	for _, dir := range dirs {
		c, err := open(filepath.Join(dir, release), release)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			bad = append(bad, err)
		}
	}
	if len(bad) > 0 {
		return nil, &outcome{state: Invalid, err: errors.Join(bad...)}
	}
	return nil, &outcome{
		state: NoModuleForKernel, err: fmt.Errorf("there is no module for kernel %s in %v", release, dirs),
	}
}

// open checks the module in a directory against its manifest, itself, and the kernel it is meant for. The kernel checks
// some of this too; what is found here can be said in plain words, and before anything is loaded.
func open(dir, release string) (_ *candidate, err error) {
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the module: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	refused := func(why string, args ...any) (*candidate, error) {
		return nil, fmt.Errorf("module %s is not loaded: %w", path, fmt.Errorf(why, args...))
	}
	stat, err := file.Stat()
	if err != nil {
		return refused("%w", err)
	}
	if owner := stat.Sys().(*syscall.Stat_t).Uid; !stat.Mode().IsRegular() || stat.Mode().Perm()&0o022 != 0 || owner != 0 {
		return refused(
			"only a regular file that belongs to root and that nobody else can write is trusted; it has mode %s and owner %d",
			stat.Mode(), owner)
	}
	m, err := readManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return refused("its manifest is missing: %v; build it again with kernel-patch/build, or copy the whole directory",
			err)
	}
	if err != nil {
		return refused("%w", err)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, io.LimitReader(file, maxModule+1))
	if err != nil {
		return refused("read it: %w", err)
	}
	c := &candidate{file: file, sha256: hex.EncodeToString(hash.Sum(nil))}
	if c.sha256 != m.SHA256 {
		return refused("it is damaged: its SHA-256 is %s, its manifest says %s; build or copy it again", c.sha256, m.SHA256)
	}
	if c.info, err = ReadInfo(file, size); err != nil {
		return refused("%w", err)
	}
	if err := c.info.fits(release); err != nil {
		return refused("%w", err)
	}
	if m.Release != release {
		return refused("its manifest is for kernel %s, this is %s", m.Release, release)
	}
	return c, nil
}

func (i Info) fits(release string) error {
	switch {
	case i.Name != Name:
		return fmt.Errorf("it is module %q, not %s", i.Name, Name)
	case i.Release() != release:
		return fmt.Errorf(
			"it was built for kernel %s, this is %s; a module is loaded only into the very kernel it was built for", i.Release(),
			release)
	case i.Machine != machines[runtime.GOARCH]:
		return fmt.Errorf("it was built for processor %s, this is %s", i.Machine, runtime.GOARCH)
	}
	return nil
}
