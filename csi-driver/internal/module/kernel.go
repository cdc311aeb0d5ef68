// SPDX-License-Identifier: Apache-2.0

package module

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is the running kernel as /proc and /sys show it.
type Kernel struct {
	// Proc and Sys are where they are mounted.
	Proc, Sys string
	// HostRoot is where the node's own root directory is seen. A container has its own /sys, in which securityfs and
	// efivarfs are not mounted; with the node's process namespace its root is below /proc/1.
	HostRoot string
	// Release is `uname -r`.
	Release string
}

// Running returns the kernel this process runs on.
func Running() (Kernel, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Kernel{}, fmt.Errorf("ask for the kernel's release: %w", err)
	}
	return Kernel{
		Proc: "/proc", Sys: "/sys", HostRoot: "/proc/1/root", Release: unix.ByteSliceToString(uts.Release[:]),
	}, nil
}

// policy is what the node allows.
type policy struct {
	// Supported: the kernel can load modules at all.
	Supported bool
	// Disabled: kernel.modules_disabled was set; only a reboot takes it back.
	Disabled bool
	// Enforced: only modules with a signature that the kernel can check are loaded.
	Enforced bool
	// Lockdown is none, integrity or confidentiality; "" where the kernel has no lockdown.
	Lockdown string
	// SecureBoot says that the firmware checks what it boots.
	SecureBoot bool
}

func (p policy) lockedDown() bool { return p.Lockdown != "" && p.Lockdown != "none" }

// signatureNeeded says why a module must be signed here, "" when it need not.
func (p policy) signatureNeeded() string {
	switch {
	case p.lockedDown():
		return "the kernel is locked down (" + p.Lockdown + ")"
	case p.Enforced:
		return "the kernel loads signed modules only (module.sig_enforce)"
	}
	return ""
}

func (k Kernel) policy() (policy, error) {
	var p policy
	switch _, err := os.Stat(filepath.Join(k.Proc, "modules")); {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return p, fmt.Errorf("ask the kernel for modules: %w", err)
	}
	p.Supported = true
	disabled, err := optional(filepath.Join(k.Proc, "sys/kernel/modules_disabled"))
	if err != nil {
		return p, err
	}
	p.Disabled = disabled == "1"
	enforced, err := optional(filepath.Join(k.Sys, "module/module/parameters/sig_enforce"))
	if err != nil {
		return p, err
	}
	p.Enforced = enforced == "Y"
	lockdown, err := k.firstOf("kernel/security/lockdown")
	if err != nil {
		return p, err
	}
	if p.Lockdown, err = parseLockdown(lockdown); err != nil {
		return p, err
	}
	const globalVariable = "8be4df61-93ca-11d2-aa0d-00e098032b8c" // EFI_GLOBAL_VARIABLE of the UEFI specification
	secureBoot, err := k.firstOf("firmware/efi/efivars/SecureBoot-" + globalVariable)
	if err != nil {
		return p, err
	}
	p.SecureBoot = parseSecureBoot(secureBoot)
	return p, nil
}

// firstOf reads a file of /sys that another file system may hide from a container, as the node sees it or as we see it.
func (k Kernel) firstOf(name string) (string, error) {
	for _, dir := range []string{filepath.Join(k.HostRoot, "sys"), k.Sys} {
		content, err := optional(filepath.Join(dir, name))
		if err != nil || content != "" {
			return content, err
		}
	}
	return "", nil
}

// optional reads a small file, without the newline at its end; one that is not there is empty.
func optional(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("ask the kernel: %w", err)
	}
	return strings.TrimSuffix(string(content), "\n"), nil
}

// parseLockdown reads "none [integrity] confidentiality": the level in force is in brackets.
func parseLockdown(content string) (string, error) {
	if content == "" {
		return "", nil
	}
	for word := range strings.FieldsSeq(content) {
		if inner, ok := strings.CutPrefix(word, "["); ok {
			if level, ok := strings.CutSuffix(inner, "]"); ok && level != "" {
				return level, nil
			}
		}
	}
	return "", fmt.Errorf("the kernel's lockdown level cannot be read from %q", content)
}

// parseSecureBoot reads an EFI variable: four bytes of attributes, then its value.
func parseSecureBoot(content string) bool { return len(content) == 5 && content[4] == 1 }

// registered says whether the kernel knows the module's file system type now.
func (k Kernel) registered() (bool, error) {
	content, err := os.ReadFile(filepath.Join(k.Proc, "filesystems"))
	if err != nil {
		return false, fmt.Errorf("ask the kernel for file system types: %w", err)
	}
	return slices.Contains(parseFileSystems(string(content)), FileSystemType), nil
}

// parseFileSystems returns the types in /proc/filesystems: lines of "nodev" or nothing, a tab, and the type.
func parseFileSystems(content string) []string {
	var types []string
	for line := range strings.Lines(content) {
		if _, fsType, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok && fsType != "" {
			types = append(types, fsType)
		}
	}
	return types
}

// loaded returns the version of the loaded module, "" when it is not loaded.
func (k Kernel) loaded() (string, error) {
	dir := filepath.Join(k.Sys, "module", Name)
	switch _, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("ask the kernel for module %s: %w", Name, err)
	}
	state, err := optional(filepath.Join(dir, "initstate"))
	if err != nil {
		return "", err
	}
	if state != "" && state != "live" { // coming or going
		return "", nil
	}
	version, err := optional(filepath.Join(dir, "version"))
	if version == "" {
		version = "unknown"
	}
	return version, err
}

// users returns the module's reference count: one for each file system mounted with it, in whatever namespace.
func (k Kernel) users() (int, error) {
	content, err := optional(filepath.Join(k.Sys, "module", Name, "refcnt"))
	if err != nil || content == "" {
		return 0, err
	}
	n, err := strconv.Atoi(content)
	if err != nil {
		return 0, fmt.Errorf("reference count of module %s: %w", Name, err)
	}
	return n, nil
}

// bootID names this boot.
func (k Kernel) bootID() (string, error) {
	id, err := optional(filepath.Join(k.Proc, "sys/kernel/random/boot_id"))
	if err == nil && id == "" {
		err = errors.New("the kernel does not say which boot this is (/proc/sys/kernel/random/boot_id)")
	}
	return id, err
}
