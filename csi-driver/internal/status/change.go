// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
)

// merged returns the conditions that hold now, with the time of transition of those whose status is the one they had
// before.
func merged(before, now []metav1.Condition, at time.Time) []metav1.Condition {
	result := make([]metav1.Condition, 0, len(now))
	for _, c := range now {
		c.LastTransitionTime = metav1.NewTime(at)
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		result = append(result, c)
	}
	return result
}

// nodeFingerprint is the same for two statuses that are not worth a write of their own: numbers that drift all the
// time, as free space does, are refreshed with the next one.
func nodeFingerprint(s v1alpha1.SplitFSNodeStatus) (string, error) {
	s.HeartbeatTime = metav1.Time{}
	s.Available = nil
	if s.Pool != nil {
		s.Pool = &v1alpha1.Pool{Size: s.Pool.Size}
	}
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		s.Devices[i].Available = nil
		s.Devices[i].Regions = slices.Clone(s.Devices[i].Regions)
		for j := range s.Devices[i].Regions {
			s.Devices[i].Regions[j].Available = nil
		}
	}
	return fingerprint(s)
}

func volumeFingerprint(s v1alpha1.SplitFSVolumeStatus) (string, error) {
	if s.Pool != nil {
		s.Pool = &v1alpha1.Pool{Size: s.Pool.Size}
	}
	return fingerprint(s)
}

func fingerprint(s any) (string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode a status: %w", err)
	}
	return string(raw), nil
}

func poolUsed(s v1alpha1.SplitFSVolumeStatus) int64 {
	if s.Pool == nil {
		return 0
	}
	return s.Pool.Used.Value()
}

// drifted says whether the use of a pool has changed by a tenth of it.
func drifted(before, now int64, s v1alpha1.SplitFSVolumeStatus) bool {
	if s.Pool == nil {
		return false
	}
	change := now - before
	if change < 0 {
		change = -change
	}
	return change*10 >= s.Pool.Size.Value() && change > 0
}
