// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"splitfs.io/splitfs/csi-driver/internal/driver"
	"splitfs.io/splitfs/csi-driver/internal/modify"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	answerPoll = 100 * time.Millisecond
	// answerTimeout is how long a call waits for the volume's node. It is shorter than csi-resizer waits, so that the
	// claim's event says who is waited for; the next call goes on waiting.
	answerTimeout = 20 * time.Second
)

// ControllerModifyVolume implements csi.ControllerServer. The volume's node makes the change; when this returns it is
// in the volume's state there, and on the PersistentVolume for the injector.
func (c *Controller) ControllerModifyVolume(ctx context.Context,
	req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := c.modify(ctx, req); err != nil {
		return nil, driver.StatusOf(err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (c *Controller) modify(ctx context.Context, req *csi.ControllerModifyVolumeRequest) error {
	id := req.GetVolumeId()
	if id == "" {
		return fmt.Errorf("%w: the request has no volume ID", volume.ErrInvalid)
	}
	changes, err := volume.ParseChanges(req.GetMutableParameters())
	if err != nil {
		return err
	}
	if err := c.view.Check(ctx); err != nil {
		return err
	}
	pv, err := c.view.volume(id)
	if err != nil {
		return err
	}
	nodeName := nodeOf(pv)
	if nodeName == "" {
		return fmt.Errorf("volume %s: %w: PersistentVolume %s does not say which node it is on", id, volume.ErrPrecondition,
			pv.Name)
	}
	if changes == (volume.Changes{}) {
		return nil
	}
	answer, err := c.ask(ctx, pv.Name, nodeName, changes)
	if wait.Interrupted(err) {
		return fmt.Errorf("volume %s: %w: its node, %s, has not changed it yet; it does as soon as its node service runs "+
			"and the volume is not busy", id, volume.ErrUnavailable, nodeName)
	}
	if err != nil {
		return fmt.Errorf("ask node %s to change volume %s: %w", nodeName, id, err)
	}
	if answer.Refused == "" {
		return nil
	}
	if err := c.patch(ctx, pv.Name, modify.Forget); err != nil {
		return fmt.Errorf("volume %s: forget a change that was refused: %w", id, err)
	}
	return fmt.Errorf("%w: node %s refused: %s", volume.ErrInvalid, nodeName, answer.Refused)
}

// ask returns the node's answer to a request, which it makes unless it has been made. What is seen of the
// PersistentVolume may be old: a request that seems to be there can be one that was refused and is about to be
// forgotten, so it is looked for until it is answered.
func (c *Controller) ask(ctx context.Context, pvName, nodeName string,
	changes volume.Changes) (answer modify.Answer, err error) {
	made := false
	err = wait.PollUntilContextTimeout(ctx, answerPoll, answerTimeout, true, func(ctx context.Context) (bool, error) {
		pv, err := c.view.volumes.Get(pvName)
		if err != nil {
			return false, err
		}
		var answered bool
		if answer, answered = modify.Answered(pv, changes); answered || made {
			return answered, nil
		}
		if requested, asked, err := modify.Requested(pv); err == nil && asked && requested == changes {
			return false, nil
		}
		made = true
		return false, c.patch(ctx, pvName, func() ([]byte, error) { return modify.Ask(nodeName, changes) })
	})
	return answer, err
}

func (c *Controller) patch(ctx context.Context, name string, content func() ([]byte, error)) error {
	raw, err := content()
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}
