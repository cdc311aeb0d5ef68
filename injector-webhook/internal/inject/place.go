// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/injector-webhook/internal/patch"
	"splitfs.io/splitfs/internal/contract"
)

// Place computes the patch that keeps a pod on the only node on which a volume of it can be made. What the pod itself
// says of that goes before, with a warning when it cannot work.
func Place(raw []byte, pod *corev1.Pod,
	volume, node string) (operations []jsonpatch.Operation, warning string, err error) {
	if wanted, said := pod.Spec.NodeSelector[contract.TopologyKey]; said && wanted != node ||
		pod.Spec.NodeName != "" && pod.Spec.NodeName != node {
		return nil, fmt.Sprintf(
			"volume %q is to be a copy of one on node %s and can be made nowhere else, but the pod asks for another node",
			volume, node), nil
	}
	if pod.Spec.NodeName != "" {
		return nil, "", nil
	}
	doc, err := patch.Parse(raw)
	if err != nil {
		return nil, "", err
	}
	if err := doc.EnsureObject("spec", "nodeSelector"); err != nil {
		return nil, "", err
	}
	if err := doc.Set(node, "spec", "nodeSelector", contract.TopologyKey); err != nil {
		return nil, "", err
	}
	return doc.Operations(), "", nil
}
