// SPDX-License-Identifier: Apache-2.0

// Package node does the work behind the CSI calls on one node. It knows nothing of gRPC and takes no per-volume locks:
// package driver holds the volume's lock around every call.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const (
	// podsName and ownName are below the directory of the agents' supervisor: what each pod sees, and where every socket
	// is shown.
	podsName, ownName = "pods", "own"
	// snapshotsDir is below the state directory.
	snapshotsDir = "snapshots"
	// dataDir is what a pod sees of a volume; the control directory beside it stays out of its reach.
	dataDir = "data"
	// cleanupTimeout bounds undoing a failed call, which happens also when the caller has gone.
	cleanupTimeout = 30 * time.Second
	// publishWait is how long publishing waits for an agent that is just being restarted.
	publishWait = 10 * time.Second
	// resumeWait is how long the library of a new version waits for the agents of that version.
	resumeWait = 5 * time.Second
)

// Config of a Node.
type Config struct {
	Name string
	// StateDir keeps one state file per volume.
	StateDir string
	// InjectDir is what pods see at /opt/splitfs; Library is where its libsplit.so comes from.
	InjectDir string
	Library   string
	CLI       splitfs.CLI
	// Pool is the size of the staging pool of volumes whose class does not say it; LogReserve is the room for operation
	// logs of each. Both come on top of the promised size.
	Pool, LogReserve int64

	// FreezeLimit is how long the writers of a volume may wait while it is copied where its storage cannot be shared; 0: a
	// second.
	FreezeLimit time.Duration

	MaxVolumes int64
	Managers   device.Managers
	// Module says how file systems are mounted; nil: as what they are.
	Module Module
	Events events.Recorder
	// Sysfs is where sysfs is; "": /sys. Proc is where procfs is; "": /proc.
	Sysfs, Proc string
	// Owner says which pod, by UID, a process of the node belongs to; nil: that is not known of any.
	Owner func(pid int) (pod, container string)
	// Claims is asked for volumes that the cluster has forgotten; nil: nobody is.
	Claims Claims
	// ClaimGrace is how long a volume may wait for its PersistentVolume, which is made after it; 0: ten minutes.
	ClaimGrace time.Duration
	// Pods knows how containers are configured; nil: there is no cluster.
	Pods Pods
	// Promises is asked before a pod gets a volume; nil: nobody is.
	Promises Promises
	// AgentsDir is the directory of the agents' supervisor; on the same file system as InjectDir.
	AgentsDir string
	// AgentsSocket is where a supervisor in another process is asked for agents, which outlive the node service; "": they
	// end with it.
	AgentsSocket string
	// Agent overrides timeouts of a supervisor in this process; Dir and OnDeath are set here.
	Agent agent.Config
}

// Agents keeps volumes served: a supervisor in this process or in another one.
type Agents interface {
	// Watch keeps a volume served and returns at once.
	Watch(id string, v agent.Volume) error
	// Start keeps it served and waits until its agent is ready; when that fails the volume is not kept.
	Start(ctx context.Context, id string, v agent.Volume) error
	WaitReady(ctx context.Context, id string) error
	// Update is Watch for a volume that is shown to other pods now: when it returns it is.
	Update(ctx context.Context, id string, v agent.Volume) error
	// Stop returns when the agent's process is gone. It is no error when there is none.
	Stop(ctx context.Context, id string) error
	// State is what is known of the agent; Ready asks.
	State(id string) (state agent.State, ok bool)
	Ready(ctx context.Context, id string) (bool, error)
	Shutdown()
}

// Module is what a Node needs of the kernel module's manager.
type Module interface {
	// MountType returns the type to mount a file system with that was made as fsType.
	MountType(fsType string) string
	Status() module.Status
}

type noModule struct{}

func (noModule) MountType(fsType string) string { return fsType }
func (noModule) Status() module.Status          { return module.Status{State: module.NotConfigured} }

// Node is one node's volumes.
type Node struct {
	config Config
	store  *volume.Store
	// snapshots are kept like volumes, in a directory of their own.
	snapshots *volume.Store
	mounter   *mounts.Mounter
	agents    Agents
	program   program
	library   library
	eraser    *eraser

	orphansMu sync.Mutex
	orphans   []Orphan
	// unclaimed is since when volumes have no PersistentVolume.
	unclaimed *sightings
}

// New opens the node's state. Resume brings its volumes back into service.
func New(ctx context.Context, config Config) (*Node, error) {
	if err := checkNodeName(config.Name); err != nil {
		return nil, err
	}
	if config.Events == nil {
		config.Events = events.Discard{}
	}
	if config.Module == nil {
		config.Module = noModule{}
	}
	config.Sysfs, config.Proc = cmp.Or(config.Sysfs, "/sys"), cmp.Or(config.Proc, "/proc")
	config.FreezeLimit = cmp.Or(config.FreezeLimit, time.Second)
	config.ClaimGrace = cmp.Or(config.ClaimGrace, claimGrace)
	store, err := volume.OpenStore(config.StateDir)
	if err != nil {
		return nil, err
	}
	snapshots, err := volume.OpenSnapshots(filepath.Join(config.StateDir, snapshotsDir))
	if err != nil {
		return nil, err
	}
	n := &Node{
		config: config, store: store, snapshots: snapshots, mounter: mounts.New(),
		library: library{source: config.Library, dir: config.InjectDir, pods: filepath.Join(config.AgentsDir, podsName),
			lock: &sync.Mutex{}, seen: newSightings()}, eraser: newEraser(), unclaimed: newSightings(),
	}
	if err := n.library.prepareDirs(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.ownDir(), 0o700); err != nil {
		return nil, fmt.Errorf("directory of the agents' sockets: %w", err)
	}
	if err := os.MkdirAll(n.policiesDir(), 0o700); err != nil {
		return nil, fmt.Errorf("directory of policies for programs without the library: %w", err)
	}
	if err := volume.RemoveUnfinished(n.library.dir); err != nil {
		return nil, err
	}
	if config.AgentsSocket != "" {
		n.program = program{source: config.CLI.Binary, dir: filepath.Join(config.AgentsDir, programsName)}
		n.agents = agent.NewClient(ctx, config.AgentsSocket, n.agentDied)
		return n, nil
	}
	n.program = program{source: config.CLI.Binary}
	supervisor := config.Agent
	supervisor.Dir, supervisor.OnDeath = config.AgentsDir, n.agentDied
	n.agents, err = agent.New(ctx, supervisor)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// checkNodeName refuses a node whose name cannot be the value of a label. A Node's name can be longer than that, and
// kubelet, the scheduler and the snapshot controller know a volume's node by a label: kubelet would refuse the driver
// without saying why to anybody who looks here.
func checkNodeName(name string) error {
	if name == "" {
		return errors.New("the node has no name; set --node-name or NODE_NAME")
	}
	if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
		return fmt.Errorf("the node's name %q cannot be the value of the label %s, by which volumes are bound to their "+
			"node: %s; register the node under another name (kubelet's --hostname-override)", name, contract.TopologyKey,
			strings.Join(problems, "; "))
	}
	return nil
}

// Name returns the node's name.
func (n *Node) Name() string { return n.config.Name }

// MaxVolumes returns how many volumes can be published here at a time.
func (n *Node) MaxVolumes() int64 { return n.config.MaxVolumes }

// Check says whether volumes can be made and used now.
func (n *Node) Check(ctx context.Context) error {
	errs := n.config.CLI.Check()
	for _, m := range n.config.Managers {
		errs = errors.Join(errs, m.Check(ctx))
	}
	return errs
}

// Resume finishes what a crash interrupted and starts the agents of all staged volumes. It is called once, before any
// request. A volume that cannot be resumed does not keep the others from being served.
func (n *Node) Resume(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if err := n.library.removeStaleSockets(); err != nil {
		logger.Error(err, "Some stale sockets are left")
	}
	if err := n.program.install(); err != nil {
		logger.Error(err, "Agents go on with the program they have")
	}
	records, err := n.store.List()
	if err != nil {
		logger.Error(err, "Some volumes have no usable state and are left alone")
	}
	if err := n.resumeShared(ctx); err != nil {
		logger.Error(err, "Not all that copies in the making share is known, so less may be free than it seems")
	}
	if err := n.resumeCopies(ctx, records); err != nil {
		logger.Error(err, "Cannot take down everything that copies in the making had left")
	}
	if err := n.resumeSnapshots(ctx); err != nil {
		logger.Error(err, "Cannot finish the deletion of snapshots")
	}
	if err := n.resumeErasing(); err != nil {
		logger.Error(err, "Cannot go on with everything that was being erased")
	}
	for _, rec := range records {
		if err := n.resumeVolume(ctx, rec); err != nil {
			logger.Error(err, "Cannot resume a volume", "volume-id", rec.ID)
		}
	}
	n.waitForAgents(ctx, records)
	// After the agents: they know the library before this one, which programs that run have, and those before them may not
	// know this one.
	if err := n.library.install(); err != nil {
		// Volumes work without it; publishing the library tries again and tells the pod.
		logger.Error(err, "The library cannot be offered to pods")
	}
	return nil
}

// waitForAgents gives the agents of all volumes that were resumed time to be replaced.
func (n *Node) waitForAgents(ctx context.Context, records []*volume.Record) {
	wait, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	for _, rec := range records {
		if _, watched := n.agents.State(rec.ID); !watched {
			continue
		}
		if err := n.agents.WaitReady(wait, rec.ID); err != nil {
			klog.FromContext(ctx).Error(err, "Volume is not served yet", "volume-id", rec.ID)
		}
	}
}

func (n *Node) resumeVolume(ctx context.Context, rec *volume.Record) error {
	logger := klog.FromContext(ctx)
	switch rec.Phase {
	case volume.PhaseDeleting:
		logger.Info("Finishing an interrupted deletion", "volume-id", rec.ID)
		return n.Delete(ctx, rec.ID)
	case volume.PhaseErasing:
		return nil
	}
	if err := n.forgetUnmounted(rec); err != nil {
		return err
	}
	if rec.Staged == nil {
		return nil
	}
	mounted, err := mounts.At(rec.Staged.Path)
	if err != nil {
		return err
	}
	if rec.Block {
		return nil // it has no agent
	}
	if mounted == nil { // the node was rebooted; kubelet stages the volume again when a pod needs it
		logger.V(2).Info("Volume was staged and is not mounted any more", "volume-id", rec.ID, "path", rec.Staged.Path)
		return nil
	}
	logger.Info("Starting the agent of a staged volume", "volume-id", rec.ID, "path", rec.Staged.Path)
	if err := n.writePolicies(rec); err != nil {
		return err
	}
	return n.agents.Watch(rec.ID, n.served(rec))
}

// forgetUnmounted drops targets that are not mounted any more from a volume's record.
func (n *Node) forgetUnmounted(rec *volume.Record) error {
	changed := false
	for target := range rec.Published {
		mounted, err := mounts.At(target)
		if err != nil {
			return err
		}
		if mounted == nil {
			delete(rec.Published, target)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return n.store.PutReleasing(rec)
}

// Shutdown stops the eraser, and agents that are supervised here. Volumes stay mounted and applications keep the leases
// they have.
func (n *Node) Shutdown() {
	n.eraser.queue.ShutDown()
	n.agents.Shutdown()
}

// agentDied tells the users of a volume. The agent comes back by itself.
func (n *Node) agentDied(ctx context.Context, id string, cause error) {
	rec, err := n.store.Get(id)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell a volume's users that its agent died")
		return
	}
	message := fmt.Sprintf(
		"the agent of volume %s on node %s died and is being restarted: %v; applications keep what they leased", id,
		n.config.Name, cause)
	n.notifyUsers(ctx, rec, true, events.ReasonAgentDied, message)
}

// notifyUsers sends an event to the claim of a volume and to each pod it is published for.
func (n *Node) notifyUsers(ctx context.Context, rec *volume.Record, warning bool, reason, message string) {
	n.config.Events.OnPVC(ctx, rec.PVC, warning, reason, message)
	for _, p := range rec.Published {
		n.config.Events.OnPod(ctx, p.Pod, warning, reason, message)
	}
}

// get returns the record of a volume that is fully there.
func (n *Node) get(id string) (*volume.Record, error) {
	rec, err := n.store.Get(id)
	if err != nil {
		return nil, err
	}
	if rec.Phase == volume.PhaseErasing {
		return nil, beingErased("volume " + id)
	}
	if rec.Phase != volume.PhaseReady {
		return nil, fmt.Errorf("volume %s: %w: it is in phase %q", id, volume.ErrPrecondition, rec.Phase)
	}
	return rec, nil
}

func (n *Node) root(rec *volume.Record) string { return rec.Staged.Path }

// ownDir is a directory that shows all sockets, to nobody but root on the node.
func (n *Node) ownDir() string { return filepath.Join(n.config.AgentsDir, ownName) }

// served is what the agent of a staged volume needs to know of it.
func (n *Node) served(rec *volume.Record) agent.Volume {
	return agent.Volume{
		Root: n.root(rec), AgentsDir: n.ownDir(), Shown: n.shownTo(rec), Program: n.program.path(), Gate: true,
		Options: n.config.CLI.AgentOptions(n.poolServed(rec), n.policiesFile(rec)),
	}
}

// poolServed returns the size of a volume's staging pool. Of one whose record does not say it, what was promised for
// pool and logs together bounds it: a node's pool that was raised since must not take the room of the volume's user.
func (n *Node) poolServed(rec *volume.Record) int64 {
	if rec.Pool != 0 {
		return rec.Pool
	}
	return min(n.config.Pool, max(rec.Overhead-n.config.LogReserve, volume.MinPool))
}

func (n *Node) data(rec *volume.Record) string { return filepath.Join(n.root(rec), dataDir) }

// detached returns a context for undoing something after the caller's own may be done.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}
