// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// system are the calls that change the kernel; tests of the state machine replace them.
type system interface {
	// need makes the kernel load what the module depends on.
	need() error
	load(fd int) error
	// capable says whether this process has CAP_SYS_MODULE.
	capable() bool
	unload() error
}

type realSystem struct{}

// need loads the kernel's own ext4 and with it jbd2, mbcache and whatever else ours uses: asking for a file system type
// makes the kernel itself run the node's modprobe, so no modprobe and no /lib/modules are needed in the container.
func (realSystem) need() error {
	fd, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// load passes no flags: MODULE_INIT_IGNORE_VERMAGIC and MODULE_INIT_IGNORE_MODVERSIONS are what must never be used.
func (realSystem) load(fd int) error { return unix.FinitModule(fd, "", 0) }

func (realSystem) capable() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_MODULE) != 0
}

// unload never waits and never forces: the kernel refuses while anybody uses the module.
func (realSystem) unload() error { return unix.DeleteModule(Name, unix.O_NONBLOCK) }

// load brings a checked module into the kernel. Errors are outcomes.
func (m *Manager) load(ctx context.Context, c *candidate, p policy) error {
	if err := m.system.need(); err != nil {
		return &outcome{
			state: LoadFailed, err: fmt.Errorf("load the kernel's own ext4, whose journal the module uses: %w", err),
		}
	}
	if err := m.attempt.begin(c.sha256); err != nil {
		return err
	}
	// A kernel that is told to load a module may run it on this thread for long; no other goroutine should share it.
	runtime.LockOSThread()
	err := m.system.load(int(c.file.Fd()))
	runtime.UnlockOSThread()
	if err == nil || errors.Is(err, unix.EEXIST) { // EEXIST: somebody else was faster; it is verified in any case
		klog.FromContext(ctx).Info("Loaded the kernel module", "path", c.file.Name(), "version", c.info.Version,
			"sha256", c.sha256)
		return nil
	}
	o := m.explainLoad(err, c)
	if !errors.Is(err, unix.ENOMEM) { // which may have passed the next time
		m.failed = failure{sha256: c.sha256, policy: p, err: o}
	}
	return errors.Join(o, m.attempt.end())
}

// explainLoad says in an operator's words what a kernel means that refuses a module.
func (m *Manager) explainLoad(err error, c *candidate) *outcome {
	o := &outcome{state: LoadRefused}
	var say string
	switch {
	case errors.Is(err, unix.EKEYREJECTED), errors.Is(err, unix.ENOKEY):
		o.why, say = WhySignature, "the kernel does not trust the key it was signed with; enrol the certificate (mokutil "+
			"--import) or sign with an enrolled key"
	case errors.Is(err, unix.EBADMSG), errors.Is(err, unix.ENOPKG):
		o.why, say = WhySignature, "the kernel cannot check its signature; sign it again with scripts/sign-file of this "+
			"kernel and a hash that the kernel has"
	case errors.Is(err, unix.EPERM) && !m.system.capable():
		o.why, say = WhyCapability, "this process lacks CAP_SYS_MODULE; the node service must run privileged"
	case errors.Is(err, unix.EPERM) && !c.info.Signed: // where securityfs is not mounted nothing said so before
		o.why, say = WhyLockdown, "the kernel is locked down and the module is not signed; sign it with a key that the "+
			"node trusts (module.signing, docs/module.md)"
	case errors.Is(err, unix.EPERM):
		o.why, say = WhyLockdown, "the kernel is locked down and does not trust the key it was signed with (enrol the "+
			"certificate: mokutil --import), or a security module forbids it; the kernel log says which (dmesg)"
	case errors.Is(err, unix.ENOEXEC):
		o.state, say = LoadFailed, "the kernel does not accept it for this release (vermagic or symbol versions differ); "+
			"build it from the headers of the very kernel package"
	case errors.Is(err, unix.ENOENT):
		o.state, say = LoadFailed, "it needs symbols that the kernel does not have; the kernel log names them"
	default:
		o.state, say = LoadFailed, "the kernel log says more (dmesg)"
	}
	o.err = fmt.Errorf("load %s: %w: %s", c.file.Name(), err, say)
	return o
}
