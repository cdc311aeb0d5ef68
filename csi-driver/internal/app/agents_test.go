// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"splitfs.io/splitfs/csi-driver/internal/agent"
)

// supervise runs `splitfs-csi agents` of a data directory until the function that it returns is called.
func supervise(t *testing.T, dataDir string) (stop func()) {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan error, 1)
	o := agentsOptions{dataDir: dataDir, socket: filepath.Join(agentsDir(dataDir), "supervisor.sock")}
	go func() { done <- runAgents(ctx, o) }()
	var once bool
	stop = func() {
		cancel()
		if !once {
			once = true
			if err := <-done; err != nil {
				t.Errorf("the supervisor ended with %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// agentOf is what the supervisor says of a volume's agent, asked as the node service does.
func agentOf(t *testing.T, dataDir, id string) agent.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := agent.NewClient(ctx, filepath.Join(agentsDir(dataDir), "supervisor.sock"), nil)
	defer c.Shutdown()
	for ctx.Err() == nil {
		if state, ok := c.State(id); ok && state.Ready {
			return state
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no agent serves volume %s", id)
	return agent.State{}
}

// TestAgentsOutliveTheService: the node service ends and comes back, is replaced by one with another splitfs program,
// and the supervisor is replaced: the agent of a volume in use is the same but where another program or supervisor
// came, and no call of kubelet's disturbs it.
func TestAgentsOutliveTheService(t *testing.T) {
	s := startNode(t, "", "")
	s.stop()
	s.options.agentsSocket = filepath.Join(agentsDir(s.options.dataDir), "supervisor.sock")
	s.start()
	t.Cleanup(func() { s.stop() })
	stop := supervise(t, s.options.dataDir)

	v := s.createVolume(t, "xfs")
	v.stage(t)
	first := agentOf(t, s.options.dataDir, v.id)
	if want := agentsDir(s.options.dataDir) + "/program/"; len(first.Program) < len(want) ||
		first.Program[:len(want)] != want {
		t.Errorf("the agent runs %s, which the next image does not have", first.Program)
	}

	s.stop()
	if now := agentOf(t, s.options.dataDir, v.id); now.PID != first.PID || syscall.Kill(now.PID, 0) != nil {
		t.Errorf("the agent ended with the node service: %+v", now)
	}
	s.start()
	v.stage(t)
	if now := agentOf(t, s.options.dataDir, v.id); now.PID != first.PID {
		t.Errorf("the agent was replaced by the next node service: %+v", now)
	}

	s.stop()
	newer := filepath.Join(t.TempDir(), "splitfs")
	must(t, os.WriteFile(newer, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", s.options.binary), 0o755))
	s.options.binary = newer
	s.start()
	second := agentOf(t, s.options.dataDir, v.id)
	eventually(t, "the agent runs the newer program", func() error {
		if second = agentOf(t, s.options.dataDir, v.id); second.PID == first.PID || second.Program == first.Program ||
			second.Restarts != 0 {
			return fmt.Errorf("it is %+v", second)
		}
		return nil
	})
	eventually(t, "the older program is removed", func() error {
		if _, err := os.Stat(first.Program); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there: %w", first.Program, err)
		}
		return nil
	})

	supervise(t, s.options.dataDir)
	var third agent.State
	eventually(t, "the agent of the next supervisor", func() error {
		if third = agentOf(t, s.options.dataDir, v.id); third.PID == second.PID {
			return errors.New("it is the one before")
		}
		return nil
	})
	stop()
	if now := agentOf(t, s.options.dataDir, v.id); now.PID != third.PID {
		t.Errorf("the agent ended with the supervisor before: %+v", now)
	}
	v.unstage(t)
	if err := syscall.Kill(third.PID, 0); err == nil {
		t.Error("the agent is there after its volume was unstaged")
	}
	v.remove(t)
}

// stagedVolume is a volume of a service, and the calls of kubelet's for it.
type stagedVolume struct {
	s       *service
	id      string
	staging string
	context map[string]string
}

func (s *service) createVolume(t *testing.T, fsType string) *stagedVolume {
	t.Helper()
	created, err := csi.NewControllerClient(s.conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "pvc-agents", CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(fsType)}, Parameters: map[string]string{"mode": "strict"},
	})
	must(t, err)
	return &stagedVolume{
		s: s, id: created.GetVolume().GetVolumeId(), staging: filepath.Join(s.dir, "staging"),
		context: created.GetVolume().GetVolumeContext(),
	}
}

func (v *stagedVolume) stage(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(v.staging, 0o755))
	eventually(t, "the volume is staged", func() error {
		_, err := csi.NewNodeClient(v.s.conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: mountCapability("xfs"), VolumeContext: v.context,
		})
		return err
	})
}

func (v *stagedVolume) unstage(t *testing.T) {
	t.Helper()
	eventually(t, "the volume is unstaged", func() error {
		_, err := csi.NewNodeClient(v.s.conn).NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
			VolumeId: v.id, StagingTargetPath: v.staging,
		})
		return err
	})
}

func (v *stagedVolume) remove(t *testing.T) {
	t.Helper()
	_, err := csi.NewControllerClient(v.s.conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	must(t, err)
}
