// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func copyOf(group, kind, name, volume string) *corev1.PersistentVolumeClaim {
	c := claim(to("fast"), volume)
	c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if group != "" {
		c.Spec.DataSource.APIGroup = &group
	}
	return c
}

func snapshotObject(kind, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(snapshotGroup.WithKind(kind))
	u.SetName(name)
	if kind == "VolumeSnapshot" {
		u.SetNamespace("ns")
	}
	return u
}

// TestPlace: the pod of a claim that is to be a copy runs where the original is.
func TestPlace(t *testing.T) {
	const group = "snapshot.storage.k8s.io"
	taken := func() client.Object {
		return snapshotObject("VolumeSnapshot", "snap", map[string]any{
			"status": map[string]any{"boundVolumeSnapshotContentName": "content"},
		})
	}
	content := func(driver string) client.Object {
		u := snapshotObject("VolumeSnapshotContent", "content", map[string]any{"spec": map[string]any{"driver": driver}})
		u.SetLabels(map[string]string{labelManagedBy: "n1"})
		return u
	}
	original := func(driver string) []client.Object {
		source := claim(to("fast"), "pv")
		source.Name = "source"
		volume := pv(driver, "fast", nil)
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "csi.splitfs.io/node", Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}},
				},
			}},
		}}
		return []client.Object{source, volume}
	}
	ephemeral := ephemeralVolume(to("fast"))
	ephemeral.Ephemeral.VolumeClaimTemplate.Spec.DataSource = copyOf(group, "VolumeSnapshot", "snap", "").Spec.DataSource
	for _, test := range []struct {
		name    string
		objects []client.Object
		volume  *corev1.Volume
		want    string
	}{
		{name: "of a snapshot", objects: []client.Object{copyOf(group, "VolumeSnapshot", "snap", ""), taken(), content(ours)},
			want: "n1"},
		{name: "of a claim", objects: append(original(ours), copyOf("", "PersistentVolumeClaim", "source", "")), want: "n2"},
		{name: "ephemeral, of a snapshot", objects: []client.Object{taken(), content(ours)}, volume: ephemeral, want: "n1"},
		{name: "bound already",
			objects: []client.Object{copyOf(group, "VolumeSnapshot", "snap", "pv"), taken(), content(ours)}},
		{name: "no copy", objects: []client.Object{claim(to("fast"), "")}},
		{name: "of another driver's snapshot",
			objects: []client.Object{copyOf(group, "VolumeSnapshot", "snap", ""), taken(), content("other")}},
		{name: "of another driver's claim",
			objects: append(original("other"), copyOf("", "PersistentVolumeClaim", "source", ""))},
		{name: "of a snapshot that does not exist", objects: []client.Object{copyOf(group, "VolumeSnapshot", "snap", "")}},
		{name: "of a snapshot that is not taken yet",
			objects: []client.Object{
				copyOf(group, "VolumeSnapshot", "snap", ""), snapshotObject("VolumeSnapshot", "snap", map[string]any{}),
			}},
		{name: "of something else", objects: []client.Object{copyOf("populators.example.com", "Dump", "snap", "")}},
		{name: "no claim", objects: nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var typed []client.Object
			for _, o := range test.objects {
				if _, is := o.(*unstructured.Unstructured); !is {
					typed = append(typed, o)
				}
			}
			volume := test.volume
			if volume == nil {
				volume = claimVolume()
			}
			got, err := (&Resolver{Cached: indexed(trimmed(t, typed)...), Live: indexed(test.objects...)}).Place(t.Context(),
				"ns", volume)
			if err != nil || got != test.want {
				t.Errorf("node %q, %v; want %q", got, err, test.want)
			}
		})
	}
	reader := indexed(copyOf(group, "VolumeSnapshot", "snap", ""))
	if _, err := (&Resolver{Cached: reader, Live: brokenReader{}}).Place(t.Context(), "ns", claimVolume()); err == nil {
		t.Error("a failed read: no error")
	}
	path, source := claimVolume(), ephemeralVolume(to("fast"))
	path.PersistentVolumeClaim.ClaimName = "../secrets/x"
	source.Ephemeral.VolumeClaimTemplate.Spec.DataSource = copyOf(group, "VolumeSnapshot", "../../secrets/x",
		"").Spec.DataSource
	for _, volume := range []*corev1.Volume{path, source} {
		if node, err := (&Resolver{Cached: brokenReader{}, Live: brokenReader{}}).Place(t.Context(), "ns",
			volume); node != "" || err != nil {
			t.Errorf("a name that is a path was asked for: %q, %v", node, err)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: "volumesnapshots"}, "snap",
		errors.New("RBAC"))
	if err := ignoreUnknown(forbidden); err != nil {
		t.Errorf("without the right to look: %v", err)
	}
}
