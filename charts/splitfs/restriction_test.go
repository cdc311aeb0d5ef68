// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

const (
	nodeService = "system:serviceaccount:" + charttest.Namespace + ":splitfs-node"
	provisioner = "system:serviceaccount:" + charttest.Namespace + ":splitfs-provisioner"
)

// TestNodeRestriction: the policy is for the accounts of the node services and their provisioners, and denies.
func TestNodeRestriction(t *testing.T) {
	objects := charttest.Render(t)
	policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy",
		"splitfs-node-restriction")
	binding := find[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects,
		"ValidatingAdmissionPolicyBinding", "splitfs-node-restriction")
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || binding.Spec.PolicyName != policy.Name ||
		len(binding.Spec.ValidationActions) != 1 || binding.Spec.ValidationActions[0] != admissionregistrationv1.Deny {
		t.Errorf("policy %+v, binding %+v", policy.Spec, binding.Spec)
	}
	for _, account := range []string{nodeService, provisioner} {
		if condition := policy.Spec.MatchConditions[0].Expression; !strings.Contains(condition, "'"+account+"'") {
			t.Errorf("the policy is for %s, and not for %s", condition, account)
		}
	}
}

// TestNodeServiceWritesItsOwn: on a real API server a node service may make, change and remove the objects of its own
// node and volumes, and none of another's; one whose token names no node may write nothing; and all others are not
// touched by the policy.
func TestNodeServiceWritesItsOwn(t *testing.T) {
	config, admin := startWith(t,
		"CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding")
	as := func(extra map[string][]string) client.Client { return impersonate(t, config, nodeService, extra) }
	one := as(onNode("node-1"))
	two := as(onNode("node-2"))
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
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object(kind, name, node)),
			client.FieldOwner("test"), client.ForceOwnership)
	}
	status := func(c client.Client, kind, name, nodeName string) error {
		o := object(kind, name, "")
		o.Object["status"] = map[string]any{"nodeName": nodeName}
		if kind == "SplitFSNode" {
			o.Object["status"] = map[string]any{"volumeCount": int64(1)}
		}
		return c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"),
			client.ForceOwnership)
	}
	allowed, denied := verdicts(t)
	charttest.Eventually(t, "node 1 makes its object", func() error { return apply(one, "SplitFSNode", "node-1", "") })
	charttest.Eventually(t, "the policy has effect", func() error {
		if err := apply(nobody, "SplitFSNode", "probe", ""); err == nil || !strings.Contains(err.Error(), "SplitFS: ") {
			return fmt.Errorf("not denied: %w", err)
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

// verdicts are what the calls of a test are to meet: nothing, or a refusal of the policy.
func verdicts(t *testing.T) (allowed, denied func(what string, err error)) {
	allowed = func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	denied = func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "SplitFS: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	return allowed, denied
}

// startWith returns an API server that has the chart's objects of these kinds, and its administrator.
func startWith(t *testing.T, kinds ...string) (*rest.Config, client.Client) {
	t.Helper()
	env := charttest.StartAPIServer(t)
	admin := charttest.NewClient(t, env.Config)
	charttest.CreateNamespace(t, admin, charttest.Namespace)
	for _, object := range charttest.Render(t) {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		if err := charttest.Apply(t.Context(), admin, object); err != nil {
			t.Fatal(err)
		}
	}
	return env.Config, admin
}

// onNode is what the token of a pod says of the node that the pod runs on.
func onNode(name string) map[string][]string {
	return map[string][]string{"authentication.kubernetes.io/node-name": {name}}
}

func impersonate(t *testing.T, config *rest.Config, account string, extra map[string][]string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + charttest.Namespace, "system:authenticated"},
		Extra:    extra,
	}
	return charttest.NewClient(t, config)
}

// TestProvisionerWritesItsOwn: a provisioner makes, changes and removes the volumes and capacities of its own node, and
// of claims that wait for a volume there it changes nothing that was asked for.
func TestProvisionerWritesItsOwn(t *testing.T) {
	config, admin := startWith(t,
		"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding")
	one := impersonate(t, config, provisioner, onNode("node-1"))
	two := impersonate(t, config, provisioner, onNode("node-2"))
	nodeTwo := impersonate(t, config, nodeService, onNode("node-2"))
	create := func(c client.Client, o client.Object) error { return c.Create(t.Context(), o) }
	annotate := func(c client.Client, o client.Object) error {
		return c.Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"a": "b"}}}`)))
	}
	allowed, denied := verdicts(t)
	charttest.Eventually(t, "the policy has effect", func() error {
		if err := create(one, persistentVolume("probe", "node-2", "csi.splitfs.io")); err == nil ||
			!strings.Contains(err.Error(), "SplitFS: ") {
			return fmt.Errorf("not denied: %w", err)
		}
		return nil
	})
	allowed("a volume of its own", create(one, persistentVolume("own", "node-1", "csi.splitfs.io")))
	allowed("a volume of node 2", create(two, persistentVolume("other", "node-2", "csi.splitfs.io")))
	denied("a volume of another driver", create(one, persistentVolume("foreign", "node-1", "other.example.com")))
	hostPath := persistentVolume("host", "node-1", "csi.splitfs.io")
	hostPath.Spec.CSI, hostPath.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/etc"}
	denied("a directory of a node", create(one, hostPath))
	everywhere := persistentVolume("everywhere", "node-1", "csi.splitfs.io")
	everywhere.Spec.NodeAffinity = nil
	denied("a volume of every node", create(one, everywhere))
	allowed("a note on its own volume", annotate(one, persistentVolume("own", "node-1", "csi.splitfs.io")))
	denied("a note on another node's volume", annotate(one, persistentVolume("other", "node-2", "csi.splitfs.io")))
	denied("a note of another node's service", annotate(nodeTwo, persistentVolume("own", "node-1", "csi.splitfs.io")))
	denied("the removal of another node's volume",
		two.Delete(t.Context(), persistentVolume("own", "node-1", "csi.splitfs.io")))
	allowed("the removal of its own volume", one.Delete(t.Context(), persistentVolume("own", "node-1", "csi.splitfs.io")))

	capacity := func(name, node string) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: charttest.Namespace}, StorageClassName: "splitfs-strict",
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"csi.splitfs.io/node": node}},
		}
	}
	allowed("its own capacity", create(one, capacity("one", "node-1")))
	denied("another node's capacity", create(one, capacity("two", "node-2")))
	denied("the removal of another node's capacity", two.Delete(t.Context(), capacity("one", "node-1")))

	named := func(change func(pv *corev1.PersistentVolume)) error {
		pv := persistentVolume("claimed", "node-1", "csi.splitfs.io")
		change(pv)
		return create(one, pv)
	}
	secret := &corev1.SecretReference{Namespace: "kube-system", Name: "everything"}
	for what, change := range map[string]func(pv *corev1.PersistentVolume){
		"a volume for whoever asks":          func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"one for any claim of a name":        func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" },
		"one whose name says another claim":  func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "uid-of-another" },
		"one whose name says another node":   func(pv *corev1.PersistentVolume) { pv.Name = "splitfs-node-2-uid-of-claimed" },
		"one that has another driver's name": func(pv *corev1.PersistentVolume) { pv.Name = "pvc-uid-of-claimed" },
		"what another driver made": func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.VolumeHandle = "vol-0123456789abcdef0"
		},
		"what another driver deletes": func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "other.example.com"}
		},
		"a Secret for kubelet to mount":  func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodePublishSecretRef = secret },
		"a Secret for kubelet to stage":  func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodeStageSecretRef = secret },
		"a Secret for kubelet to expand": func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodeExpandSecretRef = secret },
		"a Secret for the resizer": func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.ControllerExpandSecretRef = secret
		},
	} {
		denied(what, named(change))
	}
	allowed("the volume of a claim", named(func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "csi.splitfs.io"}
	}))
	for what, patch := range map[string]string{
		"its volume, for another claim": `{"spec": {"claimRef": {"uid": "uid-of-another"}}}`,
		"its volume, for all":           `{"spec": {"claimRef": null}}`,
		"its volume, of another class":  `{"spec": {"storageClassName": "other"}}`,
		"its volume, said to be another driver's": `{"metadata": {"annotations": ` +
			`{"pv.kubernetes.io/provisioned-by": "other.example.com"}}}`,
	} {
		denied(what, one.Patch(t.Context(), persistentVolume("claimed", "node-1", "csi.splitfs.io"),
			client.RawPatch(types.MergePatchType, []byte(patch))))
	}

	for name, node := range map[string]string{"waits-here": "node-1", "waits-there": "node-2"} {
		allowed("a claim", create(admin, waitingClaim(name, node)))
	}
	update := func(name string, change func(*corev1.PersistentVolumeClaim)) error {
		var claim corev1.PersistentVolumeClaim
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: charttest.Namespace, Name: name}, &claim); err != nil {
			t.Fatal(err)
		}
		change(&claim)
		return one.Update(t.Context(), &claim)
	}
	denied("the choice of another node, taken back",
		update("waits-there", func(c *corev1.PersistentVolumeClaim) {
			delete(c.Annotations, "volume.kubernetes.io/selected-node")
		}))
	denied("a claim that is bound by force",
		update("waits-here", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" }))
	allowed("the choice of its own node, taken back",
		update("waits-here", func(c *corev1.PersistentVolumeClaim) {
			delete(c.Annotations, "volume.kubernetes.io/selected-node")
		}))
	denied("a claim that does not wait for it any more",
		update("waits-here", func(c *corev1.PersistentVolumeClaim) { c.Annotations["a"] = "b" }))
}

// TestClaimBinding: a claim is bound to the volume that a node made for it only when it waits for one of that node, and
// to volumes that others made as ever.
func TestClaimBinding(t *testing.T) {
	_, admin := startWith(t, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	bind := func(name, node, provisioner, volume string) error {
		claim := waitingClaim(name, node)
		if provisioner != "" {
			claim.Annotations["volume.kubernetes.io/storage-provisioner"] = provisioner
		}
		if node == "" {
			claim.Annotations = nil
		}
		if err := admin.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		claim.Spec.VolumeName = strings.ReplaceAll(volume, "UID", string(claim.UID))
		return admin.Update(t.Context(), claim)
	}
	allowed, denied := verdicts(t)
	probes := 0
	charttest.Eventually(t, "the policy has effect", func() error {
		probes++
		if err := bind(fmt.Sprintf("probe-%d", probes), "node-2", "", "splitfs-node-1-UID"); err == nil ||
			!strings.Contains(err.Error(), "SplitFS: ") {
			return fmt.Errorf("not denied: %w", err)
		}
		return nil
	})
	denied("a claim that has chosen no node", bind("no-node", "", "", "splitfs-node-1-UID"))
	denied("a claim of another driver", bind("other-driver", "node-1", "other.example.com", "splitfs-node-1-UID"))
	allowed("a claim that waits for that node", bind("waits", "node-1", "", "splitfs-node-1-UID"))
	allowed("a volume of another driver", bind("other-volume", "", "", "pvc-UID"))
	allowed("a volume that another claim had", bind("reused", "", "", "splitfs-node-1-another"))
}

// persistentVolume is one that a node's provisioner makes for a claim of this name.
func persistentVolume(name, node, driver string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "splitfs-" + node + "-uid-of-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: "splitfs-" + strings.Repeat("0a", 16),
			}},
			ClaimRef: &corev1.ObjectReference{Namespace: charttest.Namespace, Name: name, UID: types.UID("uid-of-" + name)},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "csi.splitfs.io/node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
					},
				}},
			}},
		},
	}
}

func waitingClaim(name, node string) *corev1.PersistentVolumeClaim {
	class := "splitfs-strict"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: charttest.Namespace, Annotations: map[string]string{
			"volume.kubernetes.io/selected-node": node, "volume.kubernetes.io/storage-provisioner": "csi.splitfs.io",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
}
