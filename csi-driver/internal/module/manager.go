// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Config of a Manager.
type Config struct {
	// Enabled: the operator wants the module. When not, the manager only says what it sees.
	Enabled bool
	// Dirs are where modules are looked for, one directory per kernel release below each; the first that has one wins.
	Dirs []string
	// StateDir keeps the note of an attempt, and the file system of the trial while it runs.
	StateDir string
	Kernel   Kernel
	// OnChange is told of every new status that says something else than the one before; a restart within the same boot is
	// no change. It must not call the manager.
	OnChange func(ctx context.Context, before, now Status)

	system system
	trial  func(ctx context.Context, dir string) error
	now    func() time.Time
}

// Manager brings the module into use and says how far it got. It never unloads it.
type Manager struct {
	config  Config
	system  system
	attempt attempt

	// run serializes Ensure; mu guards what others read meanwhile. Lock order: run, then mu.
	run      sync.Mutex
	failed   failure // guarded by run
	verified bool    // guarded by run: the trial succeeded in the life of this manager
	untried  bool    // guarded by run: it could not be made, and each volume is asked when it is mounted

	mu     sync.Mutex
	status Status
	told   Status // what OnChange knows
}

// failure is how the kernel refused one module's file. Trying the same again cannot end otherwise, but fills the
// kernel's log.
type failure struct {
	sha256 string
	policy policy
	err    error
}

// NewManager returns a Manager. Nothing is loaded before Ensure.
func NewManager(config Config) (*Manager, error) {
	if config.system == nil {
		config.system = realSystem{}
	}
	if config.trial == nil {
		config.trial = Trial
	}
	if config.now == nil {
		config.now = time.Now
	}
	boot, err := config.Kernel.bootID()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config: config, system: config.system,
		attempt: attempt{path: filepath.Join(config.StateDir, "attempt.json"), boot: boot},
		status:  Status{State: Pending, Message: "the node service has not looked yet", Release: config.Kernel.Release},
	}
	m.told = m.status
	// What cannot be read is written anew by the first Ensure; an event too many is all that comes of it.
	if before, err := m.saved(); err == nil && before.BootID == boot {
		m.told = before.Status
	}
	return m, nil
}

// Status returns what the last Ensure found.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// MountType returns the type that a file system made as fsType is to be mounted with: the module's for ext4 when the
// module is ready, else the same. What is on the device is ext4 in both cases.
func (m *Manager) MountType(fsType string) string {
	if fsType == volume.Ext4 && m.Status().State == Ready {
		return FileSystemType
	}
	return fsType
}

// Run keeps the status true until ctx is done: a module that was put there meanwhile is loaded, one that was unloaded
// by hand is noticed.
func (m *Manager) Run(ctx context.Context, interval time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
			m.Ensure(ctx)
		}
	}
}

// Ensure goes as far towards Ready as this node allows, and returns where it ended. It is called before volumes are
// served.
func (m *Manager) Ensure(ctx context.Context) Status {
	m.run.Lock()
	defer m.run.Unlock()
	s := Status{State: Ready, Release: m.config.Kernel.Release}
	if err := m.ensure(ctx, &s); err != nil {
		var o *outcome
		if errors.As(err, &o) {
			s.State, s.Why = o.state, o.why
		} else {
			s.State = LoadFailed
		}
		s.Message = err.Error()
	}
	m.observe(ctx, &s)
	m.set(ctx, s)
	return m.Status()
}

func (m *Manager) ensure(ctx context.Context, s *Status) error {
	k := m.config.Kernel
	if !m.config.Enabled {
		return &outcome{
			state: NotConfigured,
			err:   errors.New("the kernel module is not configured (module.enabled); volumes use what the kernel has itself"),
		}
	}
	present, err := k.registered()
	if err != nil {
		return err
	}
	if !present {
		m.verified = false
		if err := m.bringIn(ctx, s); err != nil {
			return err
		}
	}
	err = m.verify(ctx, s)
	// Whatever the module answered, the machine survived it.
	return errors.Join(err, m.attempt.end())
}

// choose finds a module that may be loaded here, and changes nothing.
func (m *Manager) choose(s *Status) (_ *candidate, p policy, err error) {
	if p, err = m.config.Kernel.policy(); err != nil {
		return nil, p, err
	}
	if !p.Supported {
		return nil, p, &outcome{
			state: Unsupported, err: errors.New("this kernel cannot load modules (it was built without CONFIG_MODULES)"),
		}
	}
	c, err := find(m.config.Dirs, s.Release)
	if err != nil {
		return nil, p, buildExplains(err, m.config.Dirs, s.Release)
	}
	s.Path, s.Version, s.Signed = c.file.Name(), c.info.Version, c.info.Signed
	if err := m.allowed(c, p); err != nil {
		return nil, p, errors.Join(err, c.close())
	}
	return c, p, nil
}

// allowed says why a module is not loaded here, although it is a good one.
func (m *Manager) allowed(c *candidate, p policy) error {
	if p.Disabled {
		return &outcome{
			state: LoadRefused, why: WhyModulesDisabled,
			err: errors.New("kernel.modules_disabled is set: no module can be loaded before the next boot"),
		}
	}
	if why := p.signatureNeeded(); why != "" && !c.info.Signed {
		o := &outcome{state: LoadRefused, why: WhySignature, err: fmt.Errorf(
			"%s, and %s is not signed; sign it with a key that the node trusts (module.signing, docs/module.md)", why,
			c.file.Name())}
		if p.lockedDown() {
			o.why = WhyLockdown
		}
		return o
	}
	died, err := m.attempt.died()
	if err != nil {
		return err
	}
	if died == c.sha256 {
		return &outcome{state: Suspended, err: fmt.Errorf(
			"the machine went down while %s was being loaded, so it is not loaded again by itself; look into the machine's "+
				"log, then run `splitfs-csi module load --again` or install another build", c.file.Name())}
	}
	return nil
}

// bringIn finds, checks and loads a module.
func (m *Manager) bringIn(ctx context.Context, s *Status) error {
	c, p, err := m.choose(s)
	if err != nil {
		return err
	}
	defer c.close()
	if m.failed.err != nil && m.failed.sha256 == c.sha256 && m.failed.policy == p {
		return m.failed.err
	}
	m.failed = failure{}
	return m.load(ctx, c, p)
}

// verify makes sure that what is loaded works. A module that fails stays loaded, for unloading it is the operator's
// decision, and no volume uses it.
func (m *Manager) verify(ctx context.Context, s *Status) error {
	fail := func(err error) error {
		return &outcome{
			state: VerifyFailed,
			err: fmt.Errorf("%w; volumes use the kernel's own ext4. The module stays loaded: `splitfs-csi module unload` or "+
				"the next boot removes it", err),
		}
	}
	present, err := m.config.Kernel.registered()
	if err != nil {
		return err
	}
	if !present {
		return fail(fmt.Errorf("the module was loaded and did not register the file system type %s", FileSystemType))
	}
	if !m.verified {
		if err := os.MkdirAll(m.config.StateDir, 0o755); err != nil {
			return fail(err)
		}
		err := m.config.trial(ctx, m.config.StateDir)
		m.untried = errors.Is(err, errNoLoop)
		if err != nil && !m.untried {
			return fail(err)
		}
		m.verified = true
	}
	if s.Loaded, err = m.config.Kernel.loaded(); err != nil {
		return err
	}
	answered := "answered"
	if m.untried {
		answered = "not tried for want of a loop device (each volume is asked when it is mounted)"
	}
	s.Message = fmt.Sprintf("version %s is loaded and %s; ext4 volumes that are staged from now on use it", s.Loaded,
		answered)
	if newer, err := find(m.config.Dirs, s.Release); err == nil {
		s.Path, s.Version, s.Signed = newer.file.Name(), newer.info.Version, newer.info.Signed
		if newer.info.Version != s.Loaded && newer.info.Version != "" && s.Loaded != "unknown" {
			s.Message += fmt.Sprintf("; version %s is there and comes into use with the next boot", newer.info.Version)
		}
		return newer.close()
	}
	return nil // loaded by somebody else, or its file was removed since: both are no reason not to use it
}

// observe adds what the kernel shows, whatever happened.
func (m *Manager) observe(ctx context.Context, s *Status) {
	var loadedErr, usersErr error
	s.Loaded, loadedErr = m.config.Kernel.loaded()
	s.Users, usersErr = m.config.Kernel.users()
	if err := errors.Join(loadedErr, usersErr); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot ask for the kernel module")
	}
}

func (m *Manager) set(ctx context.Context, s Status) {
	m.mu.Lock()
	before := m.status
	changed := !before.Same(s)
	s.Since = before.Since
	if changed {
		s.Since = m.config.now().UTC().Truncate(time.Second)
	}
	m.status = s
	told := m.told
	m.told = s
	m.mu.Unlock()
	if !changed {
		return
	}
	if err := m.save(s); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot keep the state of the kernel module for `splitfs-csi module status`")
	}
	klog.FromContext(ctx).Info("Kernel module", "state", s.State, "why", s.Why, "message", s.Message, "release", s.Release,
		"loaded", s.Loaded, "path", s.Path, "version", s.Version)
	if m.config.OnChange != nil && !told.Same(s) {
		m.config.OnChange(ctx, told, s)
	}
}

// Again allows a module to be loaded although the machine went down when it was loaded last.
func (m *Manager) Again() error { return m.attempt.end() }
