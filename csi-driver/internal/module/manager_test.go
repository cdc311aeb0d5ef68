// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// fakeSystem stands for the kernel's loader: no test of this package may load anything into the machine it runs on. The
// real one is at work in test/vm-module.
type fakeSystem struct {
	kernel    Kernel
	loads     int
	loadError error
	needError error
	incapable bool
	silent    bool // the module loads and registers nothing
	atLoad    func()
}

func (f *fakeSystem) need() error   { return f.needError }
func (f *fakeSystem) capable() bool { return !f.incapable }

func (f *fakeSystem) load(fd int) error {
	f.loads++
	if f.atLoad != nil {
		f.atLoad()
	}
	if f.loadError != nil {
		return f.loadError
	}
	if !f.silent {
		appendTo(filepath.Join(f.kernel.Proc, "filesystems"), "\text4_splitfs\n")
	}
	dir := filepath.Join(f.kernel.Sys, "module", Name)
	must(os.MkdirAll(dir, 0o755))
	must(os.WriteFile(filepath.Join(dir, "version"), []byte("1.2\n"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "refcnt"), []byte("0\n"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "initstate"), []byte("live\n"), 0o644))
	return nil
}

func (f *fakeSystem) unload() error {
	must(os.RemoveAll(filepath.Join(f.kernel.Sys, "module", Name)))
	return nil
}

func appendTo(path, text string) {
	content, err := os.ReadFile(path)
	must(err)
	must(os.WriteFile(path, append(content, text...), 0o644))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// install puts a module and its manifest where the manager looks.
func install(t *testing.T, dir, release string, content []byte) {
	t.Helper()
	hash := sha256.Sum256(content)
	tree(t, filepath.Join(dir, release), map[string]string{
		FileName: string(content),
		manifestName: fmt.Sprintf(`{"module":"ext4_splitfs","release":%q,"sha256":%q,"version":"1.2"}`, release,
			hex.EncodeToString(hash[:])),
	})
}

type bench struct {
	t       *testing.T
	ctx     context.Context
	kernel  Kernel
	system  *fakeSystem
	dir     string
	config  Config
	trials  int
	trial   error
	changes []State
}

func newBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only modules that belong to root are trusted")
	}
	all := map[string]string{"proc/modules": ""}
	for name, content := range files {
		all[name] = content
	}
	b := &bench{t: t, kernel: fakeKernel(t, all), dir: t.TempDir()}
	logger, _ := ktesting.NewTestContext(t)
	b.ctx = klog.NewContext(context.Background(), logger)
	b.system = &fakeSystem{kernel: b.kernel}
	b.config = Config{
		Enabled: true, Dirs: []string{filepath.Join(b.dir, "built"), filepath.Join(b.dir, "image")},
		StateDir: filepath.Join(b.dir, "state"), Kernel: b.kernel,
		OnChange: func(_ context.Context, _, now Status) { b.changes = append(b.changes, now.State) },
		system:   b.system, trial: func(context.Context, string) error { b.trials++; return b.trial },
	}
	return b
}

func (b *bench) manager() *Manager {
	b.t.Helper()
	m, err := NewManager(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *bench) installGood() {
	install(b.t, b.config.Dirs[1], testRelease, makeModule(machines["amd64"], goodEntries()...))
}

// TestStates: each thing that can stand in the way ends in its own state, with words that say what it is, and ext4
// stays ext4.
func TestStates(t *testing.T) {
	signed := append(makeModule(machines["amd64"], goodEntries()...), signatureMagic...)
	installSigned := func(b *bench) { install(b.t, b.config.Dirs[0], testRelease, signed) }
	fails := func(errno syscall.Errno) func(*bench) {
		return func(b *bench) { installSigned(b); b.system.loadError = errno }
	}
	locked := map[string]string{"root/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}
	enforced := map[string]string{"sys/module/module/parameters/sig_enforce": "Y\n"}
	for name, c := range map[string]struct {
		files   map[string]string
		prepare func(*bench)
		state   State
		why     Why
		says    string
	}{
		"ready": {nil, (*bench).installGood, Ready, "", "version 1.2 is loaded"},
		"not wanted": {nil, func(b *bench) { b.installGood(); b.config.Enabled = false }, NotConfigured, "",
			"module.enabled"},
		"no modules": {nil, func(b *bench) { b.installGood(); must(os.Remove(filepath.Join(b.kernel.Proc, "modules"))) },
			Unsupported, "", "CONFIG_MODULES"},
		"nothing there": {nil, func(*bench) {}, NoModuleForKernel, "", testRelease},
		"another release": {nil, func(b *bench) { install(b.t, b.config.Dirs[0], "6.1.0-98-amd64", signed) },
			NoModuleForKernel, "", testRelease},
		"another release in our directory": {nil, func(b *bench) {
			install(b.t, b.config.Dirs[0], testRelease,
				makeModule(machines["amd64"], "name=ext4_splitfs", "vermagic=6.1.0-98-amd64 SMP"))
		}, Invalid, "", "built for kernel 6.1.0-98-amd64"},
		"damaged": {nil,
			func(b *bench) { b.installGood(); appendTo(filepath.Join(b.config.Dirs[1], testRelease, FileName), "x") }, Invalid,
			"", "damaged"},
		"no manifest": {nil, func(b *bench) {
			b.installGood()
			must(os.Remove(filepath.Join(b.config.Dirs[1], testRelease, manifestName)))
		}, Invalid, "", "manifest is missing"},
		"a manifest of nonsense": {nil, func(b *bench) {
			b.installGood()
			must(os.WriteFile(filepath.Join(b.config.Dirs[1], testRelease, manifestName), []byte("{"), 0o644))
		}, Invalid, "", "not a manifest"},
		"writable by others": {nil, func(b *bench) {
			b.installGood()
			must(os.Chmod(filepath.Join(b.config.Dirs[1], testRelease, FileName), 0o666))
		}, Invalid, "", "nobody else can write"},
		"of another user": {nil, func(b *bench) {
			b.installGood()
			must(os.Chown(filepath.Join(b.config.Dirs[1], testRelease, FileName), 1000, -1))
		}, Invalid, "", "owner 1000"},
		"a link": {nil, func(b *bench) {
			b.installGood()
			path := filepath.Join(b.config.Dirs[1], testRelease, FileName)
			must(errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path)))
		}, Invalid, "", "too many levels of symbolic links"},
		"bad beside good": {nil,
			func(b *bench) { b.installGood(); install(b.t, b.config.Dirs[0], testRelease, []byte("no module")) }, Ready, "",
			"loaded"},
		"the build failed": {nil, func(b *bench) {
			tree(b.t, b.config.Dirs[0], map[string]string{
				testRelease + ".build.json": `{"release":"` + testRelease + `","error":"no headers for this kernel"}`,
			})
		}, BuildFailed, "", "no headers for this kernel"},
		"modules disabled": {map[string]string{"proc/sys/kernel/modules_disabled": "1\n"}, (*bench).installGood,
			LoadRefused, WhyModulesDisabled, "modules_disabled"},
		"lockdown, unsigned":   {locked, (*bench).installGood, LoadRefused, WhyLockdown, "locked down (integrity)"},
		"lockdown, signed":     {locked, installSigned, Ready, "", "loaded"},
		"signatures, unsigned": {enforced, (*bench).installGood, LoadRefused, WhySignature, "sig_enforce"},
		"an unknown key":       {enforced, fails(unix.EKEYREJECTED), LoadRefused, WhySignature, "mokutil"},
		"no key":               {enforced, fails(unix.ENOKEY), LoadRefused, WhySignature, "does not trust the key"},
		"a broken signature": {enforced, fails(unix.EBADMSG), LoadRefused, WhySignature,
			"cannot check its signature"},
		"lockdown refuses": {locked, fails(unix.EPERM), LoadRefused, WhyLockdown, "does not trust the key"},
		"lockdown that nothing shows": {nil, func(b *bench) { b.installGood(); b.system.loadError = unix.EPERM }, LoadRefused,
			WhyLockdown, "locked down"},
		"no capability": {nil,
			func(b *bench) { b.installGood(); b.system.loadError, b.system.incapable = unix.EPERM, true }, LoadRefused,
			WhyCapability, "CAP_SYS_MODULE"},
		"symbol versions differ": {nil, fails(unix.ENOEXEC), LoadFailed, "", "symbol versions"},
		"symbols missing":        {nil, fails(unix.ENOENT), LoadFailed, "", "symbols"},
		"no memory":              {nil, fails(unix.ENOMEM), LoadFailed, "", "kernel log"},
		"somebody else was faster": {nil, func(b *bench) {
			b.installGood()
			b.system.atLoad = func() { appendTo(filepath.Join(b.kernel.Proc, "filesystems"), "\text4_splitfs\n") }
			b.system.loadError = unix.EEXIST
		}, Ready, "", "loaded"},
		"no journal in the kernel": {nil, func(b *bench) { b.installGood(); b.system.needError = unix.ENODEV },
			LoadFailed, "", "whose journal"},
		"it registers nothing": {nil, func(b *bench) { b.installGood(); b.system.silent = true },
			VerifyFailed, "", "did not register"},
		"no loop device": {nil,
			func(b *bench) { b.installGood(); b.trial = fmt.Errorf("attach: %w", errNoLoop) }, Ready, "", "not tried"},
		"it does not answer": {nil, func(b *bench) { b.installGood(); b.trial = errors.New("no relink") },
			VerifyFailed, "", "no relink"},
		"it was loaded before, its file is gone": {nil,
			func(b *bench) { must(b.system.load(-1)); b.system.loadError = unix.EIO }, Ready, "", "version 1.2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.files)
			c.prepare(b)
			m := b.manager()
			s := m.Ensure(b.ctx)
			if s.State != c.state || s.Why != c.why || !strings.Contains(s.Message, c.says) || s.Release != testRelease {
				t.Errorf("status %+v, wanted %s (%s) that says %q", s, c.state, c.why, c.says)
			}
			for fsType, want := range map[string]string{
				"xfs": "xfs", "ext4": map[bool]string{true: "ext4_splitfs", false: "ext4"}[c.state == Ready],
			} {
				if got := m.MountType(fsType); got != want {
					t.Errorf("%s is mounted as %s, wanted %s", fsType, got, want)
				}
			}
			if c.state == NotConfigured && b.system.loads+b.trials > 0 {
				t.Error("something was done that nobody asked for")
			}
			if died, err := (attempt{path: m.attempt.path, boot: "the next boot"}).died(); err != nil || died != "" {
				t.Errorf("the attempt is still noted: %q, %v", died, err)
			}
		})
	}
}

// TestRepeated: the same failure is not tried again; a new file or another policy is; a status is told once.
func TestRepeated(t *testing.T) {
	t.Run("passing trouble", func(t *testing.T) {
		b := newBench(t, nil)
		b.installGood()
		m := b.manager()
		b.system.needError = unix.EIO
		if s := m.Ensure(b.ctx); s.State != LoadFailed || b.system.loads != 0 {
			t.Errorf("status %+v", s)
		}
		b.system.needError, b.system.loadError = nil, unix.ENOMEM
		if s := m.Ensure(b.ctx); s.State != LoadFailed || b.system.loads != 1 {
			t.Errorf("status %+v", s)
		}
		b.system.loadError = nil
		if s := m.Ensure(b.ctx); s.State != Ready {
			t.Errorf("status %+v", s)
		}
	})
	b := newBench(t, nil)
	b.installGood()
	b.system.loadError = unix.ENOEXEC
	m := b.manager()
	for range 3 {
		if s := m.Ensure(b.ctx); s.State != LoadFailed {
			t.Fatalf("status %+v", s)
		}
	}
	if b.system.loads != 1 {
		t.Errorf("the kernel was asked %d times to load what it refuses", b.system.loads)
	}
	install(t, b.config.Dirs[0], testRelease,
		makeModule(machines["amd64"], append(goodEntries(), "description=another build")...))
	b.system.loadError = nil
	for range 3 {
		if s := m.Ensure(b.ctx); s.State != Ready {
			t.Fatalf("status with a new build: %+v", s)
		}
	}
	if b.system.loads != 2 || b.trials != 1 {
		t.Errorf("%d loads and %d trials in all, wanted 2 and 1", b.system.loads, b.trials)
	}
	if got := fmt.Sprint(b.changes); got != "[LoadFailed Ready]" {
		t.Errorf("told %s", got)
	}
}

// TestUnloadedByHand: a module that somebody removed comes back, and is tried again.
func TestUnloadedByHand(t *testing.T) {
	b := newBench(t, nil)
	b.installGood()
	m := b.manager()
	m.Ensure(b.ctx)
	must(os.WriteFile(filepath.Join(b.kernel.Proc, "filesystems"), []byte("\text4\n"), 0o644))
	if s := m.Ensure(b.ctx); s.State != Ready || b.system.loads != 2 || b.trials != 2 {
		t.Errorf("status %+v after %d loads and %d trials", s, b.system.loads, b.trials)
	}
}

// TestMachineWentDown: a module whose loading took the machine down is not loaded at the next boot; another build is,
// and so is the same one within the same boot, where only the node service had gone.
func TestMachineWentDown(t *testing.T) {
	b := newBench(t, nil)
	b.installGood()
	noted := ""
	b.system.atLoad = func() {
		content, err := os.ReadFile(filepath.Join(b.config.StateDir, "attempt.json"))
		must(err)
		noted = string(content)
	}
	b.manager().Ensure(b.ctx)
	if !strings.Contains(noted, "boot-1") {
		t.Fatalf("while the module was loaded the note was %q", noted)
	}
	// The crash: the note is still there, nothing is loaded.
	reset := func(boot string) {
		must(os.WriteFile(filepath.Join(b.config.StateDir, "attempt.json"), []byte(noted), 0o600))
		must(os.WriteFile(filepath.Join(b.kernel.Proc, "filesystems"), []byte("\text4\n"), 0o644))
		must(os.WriteFile(filepath.Join(b.kernel.Proc, "sys/kernel/random/boot_id"), []byte(boot), 0o644))
	}
	reset("boot-1")
	if s := b.manager().Ensure(b.ctx); s.State != Ready {
		t.Errorf("same boot: %+v", s)
	}
	reset("boot-2")
	loads := b.system.loads
	m := b.manager()
	for range 2 {
		if s := m.Ensure(b.ctx); s.State != Suspended || !strings.Contains(s.Message, "--again") {
			t.Errorf("after the crash: %+v", s)
		}
	}
	if b.system.loads != loads {
		t.Error("it was loaded again")
	}
	if err := m.Again(); err != nil {
		t.Fatal(err)
	}
	if s := m.Ensure(b.ctx); s.State != Ready {
		t.Errorf("after the operator's word: %+v", s)
	}
	reset("boot-3")
	install(t, b.config.Dirs[0], testRelease,
		makeModule(machines["amd64"], append(goodEntries(), "description=repaired")...))
	if s := b.manager().Ensure(b.ctx); s.State != Ready {
		t.Errorf("another build: %+v", s)
	}
}

// TestRestart: another service in the same boot finds the same and tells nobody; in another boot, or when something has
// changed, it does. What was found is there for `module status`.
func TestRestart(t *testing.T) {
	b := newBench(t, nil)
	report, err := b.manager().Inspect(b.ctx)
	if err != nil || report.State != NoModuleForKernel {
		t.Errorf("foreseen: %+v, %v", report, err)
	}
	b.manager().Ensure(b.ctx)
	b.manager().Ensure(b.ctx)
	if got := fmt.Sprint(b.changes); got != "[NoModuleForKernel]" {
		t.Errorf("told %s", got)
	}
	b.installGood()
	if report, err = b.manager().Inspect(b.ctx); err != nil || report.State != NoModuleForKernel {
		t.Errorf("what the service found last: %+v, %v", report, err)
	}
	b.manager().Ensure(b.ctx)
	if report, err = b.manager().Inspect(b.ctx); err != nil || report.State != Ready ||
		report.Providers["ext4"] != "ext4-relink" || report.Loaded != "1.2" {
		t.Errorf("after loading: %+v, %v", report, err)
	}
	must(os.WriteFile(filepath.Join(b.kernel.Proc, "sys/kernel/random/boot_id"), []byte("boot-2"), 0o644))
	if report, err = b.manager().Inspect(b.ctx); err != nil || report.State != Pending ||
		!strings.Contains(report.Message, "module load") {
		t.Errorf("in another boot: %+v, %v", report, err)
	}
	b.manager().Ensure(b.ctx)
	if got := fmt.Sprint(b.changes); got != "[NoModuleForKernel Ready Ready]" {
		t.Errorf("told %s", got)
	}
	must(os.WriteFile(filepath.Join(b.config.StateDir, "status.json"), []byte("{"), 0o644))
	if _, err := b.manager().Inspect(b.ctx); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged state file: %v", err)
	}
	if s := b.manager().Ensure(b.ctx); s.State != Ready {
		t.Errorf("a service with a damaged state file: %+v", s)
	}
	if _, err := b.manager().Inspect(b.ctx); err != nil {
		t.Errorf("the state file was not written anew: %v", err)
	}
}

func TestRun(t *testing.T) {
	b := newBench(t, nil)
	m := b.manager()
	m.Ensure(b.ctx)
	b.installGood()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() { m.Run(ctx, time.Millisecond); close(done) }()
	for deadline := time.Now().Add(10 * time.Second); m.Status().State != Ready; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not ready after 10 s: %+v", m.Status())
		}
	}
	cancel()
	<-done
}

func TestUnload(t *testing.T) {
	const mounted = "36 35 7:0 / %s rw - ext4_splitfs /dev/loop0 rw\n"
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"not loaded": {nil, "not loaded"},
		"in use": {map[string]string{
			"sys/module/ext4_splitfs/refcnt": "2\n",
			"proc/1/mountinfo":               fmt.Sprintf(mounted, "/mnt/a") + fmt.Sprintf(mounted, "/mnt/b"),
		}, "2 file systems, mounted at /mnt/a, /mnt/b"},
		"in use somewhere else": {map[string]string{"sys/module/ext4_splitfs/refcnt": "1\n"}, "in other mount namespaces"},
		"only a mount is seen": {map[string]string{
			"sys/module/ext4_splitfs/refcnt": "0\n", "proc/self/mountinfo": fmt.Sprintf(mounted, "/mnt"),
		}, "mounted at /mnt"},
		"free": {map[string]string{
			"sys/module/ext4_splitfs/refcnt": "0\n", "proc/1/mountinfo": "36 35 7:0 / / rw - ext4 /dev/vda rw\n",
		}, ""},
	} {
		k := fakeKernel(t, c.files)
		err := unload(k, &fakeSystem{kernel: k})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, wanted %q", name, err, c.says)
		}
		left, leftErr := k.loaded()
		if leftErr != nil || (left == "") != (name == "free" || name == "not loaded") {
			t.Errorf("%s: loaded afterwards: %q, %v", name, left, leftErr)
		}
	}
}

// TestAskStock: the kernel's own file systems have no relink, and the answer says so.
func TestAskStock(t *testing.T) {
	if err := Ask(t.TempDir()); err == nil {
		t.Error("a stock file system answered")
	} else if !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("asking a stock file system: %v", err)
	}
}

// TestTrialStock runs the real trial on this machine. Without the module it fails at the mount, says so, and leaves
// nothing behind.
func TestTrialStock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches a loop device and mounts a file system")
	}
	k, err := Running()
	if err != nil {
		t.Fatal(err)
	}
	present, err := k.registered()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = Trial(context.Background(), dir)
	if present && err != nil || !present && (err == nil || !strings.Contains(err.Error(), "mount")) {
		t.Errorf("the module is loaded: %v; the trial: %v", present, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
