// SPDX-License-Identifier: Apache-2.0

// Package modify carries changes of a volume, which csi-resizer asks the controller for, to the node that has the
// volume, and the answer back. Both are on the PersistentVolume, so nothing is lost when one of the two is away, and
// nobody has to reach a node by network.
package modify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const (
	// Label is on a PersistentVolume as long as its node has not answered; its value is LabelValue of the node.
	Label = contract.Driver + "/modify"
	// requestAnnotation is what the controller asks for, answerAnnotation what the node did last.
	requestAnnotation = contract.Driver + "/modify"
	answerAnnotation  = contract.Driver + "/modified"
)

// Answer is what a node did with a request.
type Answer struct {
	Request volume.Changes `json:"request"`
	// Refused says why nothing was changed; empty: everything was.
	Refused string `json:"refused,omitempty"`
}

// LabelValue stands for a node: its name can be longer than a label's value.
func LabelValue(node string) string {
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:16])
}

// Requested returns what a PersistentVolume's node is asked for; ok is false when it is asked for nothing.
func Requested(pv *corev1.PersistentVolume) (changes volume.Changes, ok bool, err error) {
	text, ok := pv.Annotations[requestAnnotation]
	if !ok {
		return changes, false, nil
	}
	if err := json.Unmarshal([]byte(text), &changes); err != nil {
		return changes, false, fmt.Errorf("annotation %s of PersistentVolume %s: %w", requestAnnotation, pv.Name, err)
	}
	return changes, true, nil
}

// Answered returns what the node did with a request that is still the one on the PersistentVolume.
func Answered(pv *corev1.PersistentVolume, changes volume.Changes) (answer Answer, ok bool) {
	if requested, asked, err := Requested(pv); err != nil || !asked || requested != changes {
		return answer, false
	}
	if err := json.Unmarshal([]byte(pv.Annotations[answerAnnotation]), &answer); err != nil {
		return answer, false // there is none, or none of ours
	}
	return answer, answer.Request == changes
}

// metadata is a merge patch; nil removes a key.
type metadata struct {
	ResourceVersion string         `json:"resourceVersion,omitempty"`
	Labels          map[string]any `json:"labels,omitempty"`
	Annotations     map[string]any `json:"annotations,omitempty"`
}

func patch(m metadata) ([]byte, error) { return json.Marshal(map[string]any{"metadata": m}) }

// Ask returns the patch by which the controller asks a node.
func Ask(node string, changes volume.Changes) ([]byte, error) {
	text, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	return patch(metadata{
		Labels:      map[string]any{Label: LabelValue(node)},
		Annotations: map[string]any{requestAnnotation: string(text), answerAnnotation: nil},
	})
}

// Forget returns the patch that ends a request which was refused: the next one is asked anew.
func Forget() ([]byte, error) {
	return patch(metadata{
		Labels: map[string]any{Label: nil}, Annotations: map[string]any{requestAnnotation: nil, answerAnnotation: nil},
	})
}

// reply returns the patch by which the node answers what it read on pv; it fails when something else is asked for
// since.
func reply(pv *corev1.PersistentVolume, answer Answer, mode contract.Mode) ([]byte, error) {
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{answerAnnotation: string(text)}
	if mode != "" {
		annotations[contract.AnnotationVolumeMode] = string(mode)
	}
	return patch(metadata{
		ResourceVersion: pv.ResourceVersion, Labels: map[string]any{Label: nil}, Annotations: annotations,
	})
}
