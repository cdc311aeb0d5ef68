// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// BuildConfig says what to build a module from, and where to.
type BuildConfig struct {
	// Script is kernel-patch/build; everything beside it is part of what is built.
	Script  string
	Release string
	// Headers and Source are passed on when they are set; else the script finds them, and fetches them unless Offline.
	Headers, Source string
	Offline         bool
	// HostRoot is where a container sees parts of the node's root; empty: this is the node.
	HostRoot string
	// SignKey and SignCert are both set or both empty.
	SignKey, SignCert string
	// Out gets a directory for the release.
	Out string
	// Again builds although there is a module from the same inputs.
	Again bool
}

// buildRecord is what a build leaves beside its module: nodes report it, and the next build knows whether it has
// anything to do.
type buildRecord struct {
	Release string    `json:"release"`
	Inputs  string    `json:"inputs"`
	Time    time.Time `json:"time"`
	Error   string    `json:"error,omitempty"`
}

func recordPath(dir, release string) string { return filepath.Join(dir, release+".build.json") }

// Build builds a module for one kernel release and puts it in place as a whole. It says whether there was anything to
// build.
func Build(ctx context.Context, config BuildConfig) (built bool, err error) {
	if err := config.check(); err != nil {
		return false, err
	}
	if err := os.MkdirAll(config.Out, 0o755); err != nil {
		return false, fmt.Errorf("make the directory of modules: %w", err)
	}
	inputs, buildErr := config.inputs()
	if buildErr == nil && !config.Again && config.upToDate(inputs) {
		return false, nil
	}
	record := buildRecord{Release: config.Release, Inputs: inputs, Time: time.Now().UTC().Truncate(time.Second)}
	if buildErr == nil {
		buildErr = config.build(ctx)
	}
	if buildErr != nil {
		record.Error = buildErr.Error()
	}
	return buildErr == nil, errors.Join(buildErr, record.write(config.Out))
}

func (r buildRecord) write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = volume.WriteFileDurable(recordPath(dir, r.Release), append(raw, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("note how the module was made: %w", err)
	}
	return nil
}

func (c BuildConfig) check() error {
	switch {
	case c.Release == "" || c.Release != filepath.Base(c.Release) || c.Release[0] == '.':
		return fmt.Errorf("%q is no kernel release (see uname -r)", c.Release)
	case (c.SignKey == "") != (c.SignCert == ""):
		return errors.New("signing needs both a key and its certificate (--sign-key, --sign-cert)")
	}
	return nil
}

// inputs is a hash over everything of ours that goes into a module. The headers are not in it: a release names them.
func (c BuildConfig) inputs() (string, error) {
	hash := sha256.New()
	add := func(name, path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(hash, "%s\x00", name)
		_, err = io.Copy(hash, f)
		return err
	}
	root := filepath.Dir(c.Script)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return add(name, path)
	})
	if err == nil && c.SignCert != "" {
		err = errors.Join(add("certificate", c.SignCert), add("key", c.SignKey))
	}
	if err != nil {
		return "", fmt.Errorf("read what the module is built from: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func (c BuildConfig) upToDate(inputs string) bool {
	record, err := readBuildRecord(c.Out, c.Release)
	if err != nil || record.Error != "" || record.Inputs != inputs {
		return false
	}
	have, err := open(filepath.Join(c.Out, c.Release), c.Release)
	return err == nil && have.close() == nil
}

func (c BuildConfig) build(ctx context.Context) (err error) {
	work, err := os.MkdirTemp(c.Out, ".build-")
	if err != nil {
		return fmt.Errorf("build the module: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	made := filepath.Join(work, c.Release)
	args := []string{"--release", c.Release, "--out", made}
	for _, option := range []struct{ name, value string }{
		{"--headers", c.Headers}, {"--source", c.Source}, {"--sign-key", c.SignKey}, {"--sign-cert", c.SignCert},
	} {
		if option.value != "" {
			args = append(args, option.name, option.value)
		}
	}
	if c.Offline {
		args = append(args, "--offline")
	}
	if c.HostRoot != "" {
		if err := linkHeaders(c.HostRoot, c.Release); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).Info("Building the kernel module", "release", c.Release, "out", c.Out)
	start := time.Now()
	if _, err := command.Run(ctx, c.Script, args...); err != nil {
		err = fmt.Errorf("build the module for kernel %s: %w", c.Release, err)
		return errors.Join(err, c.keepLog(filepath.Join(made, "make.log")))
	}
	fresh, err := open(made, c.Release)
	if err != nil {
		return fmt.Errorf("the build succeeded, its result is unusable: %w", err)
	}
	klog.FromContext(ctx).Info("Built the kernel module", "release", c.Release, "version", fresh.info.Version,
		"signed", fresh.info.Signed, "sha256", fresh.sha256, "duration", time.Since(start).Round(time.Second))
	if err := fresh.close(); err != nil {
		return err
	}
	return replaceDir(made, filepath.Join(c.Out, c.Release))
}

// keepLog saves the compiler's output of a build that failed, if it came so far.
func (c BuildConfig) keepLog(path string) error {
	err := os.Rename(path, filepath.Join(c.Out, c.Release+".make.log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// replaceDir puts a directory in the place of another in one step, so that no reader sees half of both. What was there
// is removed.
func replaceDir(fresh, place string) error {
	err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = os.Rename(fresh, place)
	} else if err == nil {
		err = os.RemoveAll(fresh)
	}
	if err != nil {
		return fmt.Errorf("put the module in place: %w", err)
	}
	return volume.SyncDir(filepath.Dir(place))
}

func readBuildRecord(dir, release string) (buildRecord, error) {
	var r buildRecord
	raw, err := os.ReadFile(recordPath(dir, release))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("the note of a build, %s, is damaged; build again: %w", recordPath(dir, release), err)
	}
	return r, nil
}

// buildExplains turns "no module" into "the build failed, because" where a build was tried for this kernel.
func buildExplains(err error, dirs []string, release string) error {
	var o *outcome
	if !errors.As(err, &o) || o.state != NoModuleForKernel {
		return err
	}
	for _, dir := range dirs {
		record, readErr := readBuildRecord(dir, release)
		if errors.Is(readErr, fs.ErrNotExist) {
			continue
		}
		if readErr != nil {
			return &outcome{state: BuildFailed, err: readErr}
		}
		if record.Error != "" {
			return &outcome{state: BuildFailed, err: fmt.Errorf("%s (at %s)", record.Error, record.Time.Format(time.RFC3339))}
		}
	}
	return err
}

// linkHeaders makes a node's kernel headers appear in a container at the paths they have on the node, for they name
// each other by absolute paths. Parts of the node's root are mounted below hostRoot. What exists is not touched.
func linkHeaders(hostRoot, release string) error {
	for _, pattern := range []string{
		"/lib/modules/" + release, "/usr/src/linux-*", "/usr/src/kernels", "/usr/lib/linux-kbuild-*",
	} {
		found, err := filepath.Glob(filepath.Join(hostRoot, pattern))
		if err != nil {
			return fmt.Errorf("link the node's kernel headers: %w", err)
		}
		for _, there := range found {
			here := strings.TrimPrefix(there, filepath.Clean(hostRoot))
			if _, err := os.Lstat(here); err == nil {
				continue
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(here), 0o755), os.Symlink(there, here)); err != nil {
				return fmt.Errorf("link the node's kernel headers: %w", err)
			}
		}
	}
	return nil
}
