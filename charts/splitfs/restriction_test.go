// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

const nodeService = "system:serviceaccount:" + charttest.Namespace + ":splitfs-node"

// TestNodeRestriction: the policy is for the account of the node services, denies, and is there when there is something to restrict.
func TestNodeRestriction(t *testing.T) {
	objects := charttest.Render(t)
	policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy", "splitfs-node-restriction")
	binding := find[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, "ValidatingAdmissionPolicyBinding", "splitfs-node-restriction")
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || binding.Spec.PolicyName != policy.Name ||
		len(binding.Spec.ValidationActions) != 1 || binding.Spec.ValidationActions[0] != admissionregistrationv1.Deny {
		t.Errorf("policy %+v, binding %+v", policy.Spec, binding.Spec)
	}
	if condition := policy.Spec.MatchConditions[0].Expression; !strings.Contains(condition, "'"+nodeService+"'") {
		t.Errorf("the policy is for %s", condition)
	}
	for _, object := range charttest.Render(t, "--set", "status.enabled=false") {
		if object.GetName() == policy.Name {
			t.Errorf("%s restricts nothing", object.GetKind())
		}
	}
}

// TestNodeServiceWritesItsOwn: on a real API server a node service may make, change and remove the objects of its own node and volumes,
// and none of another's; one whose token names no node may write nothing; and all others are not touched by the policy.
func TestNodeServiceWritesItsOwn(t *testing.T) {
	objects := charttest.Render(t)
	env := charttest.StartAPIServer(t)
	admin := charttest.NewClient(t, env.Config)
	charttest.CreateNamespace(t, admin, charttest.Namespace)
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if err := charttest.Apply(t.Context(), admin, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	as := func(extra map[string][]string) client.Client {
		config := rest.CopyConfig(env.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: nodeService, Groups: []string{"system:serviceaccounts", "system:authenticated"}, Extra: extra}
		return charttest.NewClient(t, config)
	}
	one := as(map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}})
	two := as(map[string][]string{"authentication.kubernetes.io/node-name": {"node-2"}})
	nobody := as(nil)

	object := func(kind, name, node string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "splitfs.io/v1alpha1", "kind": kind}}
		o.SetName(name)
		if node != "" {
			o.SetLabels(map[string]string{"csi.splitfs.io/node": node})
		}
		return o
	}
	apply := func(c client.Client, kind, name, node string) error {
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object(kind, name, node)), client.FieldOwner("test"), client.ForceOwnership)
	}
	status := func(c client.Client, kind, name, nodeName string) error {
		o := object(kind, name, "")
		o.Object["status"] = map[string]any{"nodeName": nodeName}
		if kind == "SplitFSNode" {
			o.Object["status"] = map[string]any{"volumeCount": int64(1)}
		}
		return c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership)
	}
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	denied := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "SplitFS: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	charttest.Eventually(t, "node 1 makes its object", func() error { return apply(one, "SplitFSNode", "node-1", "") })
	charttest.Eventually(t, "the policy has effect", func() error {
		if err := apply(nobody, "SplitFSNode", "probe", ""); err == nil || !strings.Contains(err.Error(), "SplitFS: ") {
			return fmt.Errorf("not denied: %v", err)
		}
		return nil
	})

	allowed("its own status", status(one, "SplitFSNode", "node-1", ""))
	allowed("a volume of its own", apply(one, "SplitFSVolume", "vol-1", "node-1"))
	allowed("its own volume's status", status(one, "SplitFSVolume", "vol-1", "node-1"))
	allowed("a volume of node 2", apply(two, "SplitFSVolume", "vol-2", "node-2"))

	denied("another node's object", apply(one, "SplitFSNode", "node-2", ""))
	denied("another node's status", status(two, "SplitFSNode", "node-1", ""))
	denied("a volume for another node", apply(one, "SplitFSVolume", "vol-3", "node-2"))
	denied("a volume of no node", apply(one, "SplitFSVolume", "vol-3", ""))
	denied("another node's volume", status(one, "SplitFSVolume", "vol-2", "node-2"))
	denied("another node's volume, as one's own", apply(one, "SplitFSVolume", "vol-2", "node-1"))
	denied("one's own volume, given away", apply(one, "SplitFSVolume", "vol-1", "node-2"))
	denied("one's own volume, said to be elsewhere", status(one, "SplitFSVolume", "vol-1", "node-2"))
	denied("the removal of another node's volume", one.Delete(t.Context(), object("SplitFSVolume", "vol-2", "")))
	denied("a token without a node", status(nobody, "SplitFSVolume", "vol-1", "node-1"))

	allowed("the removal of its own volume", one.Delete(t.Context(), object("SplitFSVolume", "vol-1", "")))
	allowed("an administrator", apply(admin, "SplitFSVolume", "vol-2", "node-1"))
}
