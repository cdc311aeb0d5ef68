// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"splitfs.io/splitfs/internal/contract"
)

const ours = "csi.splitfs.io"

// countingReader is the API server's side: it counts the reads that the cache could not answer.
type countingReader struct {
	client.Reader
	gets int
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	r.gets++
	return r.Reader.Get(ctx, key, object, options...)
}

func class(name, provisioner string, parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: parameters,
	}
}

func defaultClass(name, provisioner string, age time.Duration) *storagev1.StorageClass {
	c := class(name, provisioner, map[string]string{"mode": "sync"})
	c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	c.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0).Add(-age))
	return c
}

func claim(class *string, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class, VolumeName: volume}}
}

func pv(driver, class string, attributes map[string]string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeAttributes: attributes,
			}}}}
}

func claimVolume() *corev1.Volume {
	return &corev1.Volume{
		Name:         "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
	}
}

func ephemeralVolume(class *string) *corev1.Volume {
	return &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class},
		}}}}
}

// indexed has the index that a Resolver's cache must have.
func indexed(objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithObjects(objects...).WithIndex(&corev1.PersistentVolume{}, ReservedIndex,
		ReservedFor).Build()
}

// trimmed is how the informers keep objects.
func trimmed(t *testing.T, objects []client.Object) []client.Object {
	t.Helper()
	kept := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		o, err := Trim(object.DeepCopyObject())
		if err != nil {
			t.Fatalf("Trim: %v", err)
		}
		kept = append(kept, o.(client.Object))
	}
	return kept
}

// What a cluster has of other drivers costs little more than its name.
func TestTrimForeign(t *testing.T) {
	foreign := pv("other", "fast", map[string]string{"key": "value"})
	foreign.Labels = map[string]string{"some": "label"}
	foreign.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	want := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	if got := trimmed(t, []client.Object{foreign})[0]; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("kept %+v", got)
	}
}

func to[T any](v T) *T { return &v }

func TestResolve(t *testing.T) {
	block := claim(to("fast"), "")
	block.Spec.VolumeMode = to(corev1.PersistentVolumeBlock)
	strictClass := class("fast", ours, map[string]string{"mode": "strict"})
	attributes := func(name string, parameters map[string]string) client.Object {
		return &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: ours, Parameters: parameters,
		}
	}
	withAttributes := func(c *corev1.PersistentVolumeClaim, name string) *corev1.PersistentVolumeClaim {
		c.Spec.VolumeAttributesClassName = &name
		return c
	}
	changed := pv(ours, "fast", map[string]string{"mode": "strict"})
	changed.Annotations = map[string]string{"csi.splitfs.io/mode": "sync"}
	reserved := func(volume *corev1.PersistentVolume, name string, uid types.UID) *corev1.PersistentVolume {
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: name, UID: uid}
		return volume
	}
	strictVolume := func() *corev1.PersistentVolume { return pv(ours, "gone", map[string]string{"mode": "strict"}) }
	localVolume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}

	tests := []struct {
		name string
		// cached is what the informers know; live is what the API server knows besides.
		cached, live []client.Object
		volume       *corev1.Volume
		want         Kind
		mode         contract.Mode
		reason       string
		liveGets     int
	}{
		{name: "class of ours", cached: []client.Object{claim(to("fast"), ""), strictClass}, want: Ours, mode: "strict"},
		{name: "class without a mode", cached: []client.Object{claim(to("plain"), ""), class("plain", ours, nil)}, want: Ours,
			mode: "posix"},
		{name: "class of another driver", cached: []client.Object{claim(to("ebs"), ""), class("ebs", "ebs.csi.aws.com", nil)},
			want: Foreign},
		{name: "a driver whose name contains ours",
			cached: []client.Object{claim(to("x"), ""), class("x", "csi.splitfs.io.example.com", nil)}, want: Foreign},
		{name: "raw block", cached: []client.Object{block, strictClass}, want: Foreign},
		{name: "bound, the volume says the mode",
			cached: []client.Object{claim(to("fast"), "pv"), pv(ours, "fast", map[string]string{"mode": "sync"}), strictClass},
			want:   Ours, mode: "sync"},
		{name: "bound, the volume was changed",
			cached: []client.Object{withAttributes(claim(to("fast"), "pv"), "other"), changed, strictClass}, want: Ours,
			mode: "sync"},
		{name: "a VolumeAttributesClass says the mode",
			cached: []client.Object{
				withAttributes(claim(to("fast"), ""), "slow"), strictClass, attributes("slow", map[string]string{"mode": "posix"}),
			},
			want: Ours, mode: "posix", liveGets: 1},
		{name: "a VolumeAttributesClass says something else",
			cached: []client.Object{
				withAttributes(claim(to("fast"), ""), "slow"), strictClass, attributes("slow", map[string]string{"erase": "none"}),
			},
			want: Ours, mode: "strict", liveGets: 1},
		{name: "a VolumeAttributesClass that does not exist",
			cached: []client.Object{withAttributes(claim(to("fast"), ""), "slow"), strictClass},
			want:   Unknown, reason: `VolumeAttributesClass "slow" does not exist`, liveGets: 3},
		{name: "a name of a VolumeAttributesClass that is a path",
			cached: []client.Object{withAttributes(claim(to("fast"), ""), "../x"), strictClass}, want: Unknown,
			reason: "cannot exist", liveGets: 1},
		{name: "bound, the class says the mode",
			cached: []client.Object{claim(to("fast"), "pv"), pv(ours, "fast", nil), strictClass}, want: Ours, mode: "strict"},
		{name: "bound, the class is gone",
			cached: []client.Object{claim(to("gone"), "pv"), pv(ours, "gone", map[string]string{"mode": "sync"})}, want: Ours,
			mode: "sync"},
		{name: "bound without class", cached: []client.Object{claim(to(""), "pv"), pv(ours, "", nil)}, want: Ours,
			mode: "posix"},
		{name: "bound to another driver, class of ours",
			cached: []client.Object{claim(to("fast"), "pv"), pv("other", "fast", nil), strictClass}, want: Foreign},
		{name: "bound to no CSI volume", cached: []client.Object{claim(to("fast"), "pv"), localVolume, strictClass},
			want: Foreign},
		{name: "bound to a volume nobody knows", cached: []client.Object{claim(to("fast"), "pv"), strictClass}, want: Ours,
			mode: "strict", liveGets: 1},
		{name: "a volume is reserved for it, its class does not exist",
			cached: []client.Object{claim(to("gone"), ""), reserved(strictVolume(), "c", "")}, want: Ours, mode: "strict"},
		{name: "a volume is reserved for it, no class wanted",
			cached: []client.Object{claim(to(""), ""), reserved(strictVolume(), "c", "")}, want: Ours, mode: "strict"},
		{name: "a reserved volume says more than the class",
			cached: []client.Object{claim(to("plain"), ""), class("plain", ours, nil), reserved(strictVolume(), "c", "")},
			want:   Ours, mode: "strict"},
		{name: "a volume is reserved for another claim",
			cached: []client.Object{claim(to(""), ""), reserved(strictVolume(), "d", "")}, want: Unknown,
			reason: "asks for no StorageClass", liveGets: 1},
		{name: "a volume was bound to an earlier claim of the name",
			cached: []client.Object{claim(to(""), ""), reserved(strictVolume(), "c", "earlier")},
			want:   Unknown, reason: "asks for no StorageClass", liveGets: 1},
		{name: "default class", cached: []client.Object{claim(nil, ""), defaultClass("d", ours, 0)}, want: Ours,
			mode: "sync"},
		{name: "the newest default class",
			cached: []client.Object{claim(nil, ""), defaultClass("a-old", ours, time.Hour), defaultClass("b-new", "other", 0)},
			want:   Foreign},
		{name: "of equally old default classes the first by name",
			cached: []client.Object{claim(nil, ""), defaultClass("b", "other", 0), defaultClass("a", ours, 0)}, want: Ours,
			mode: "sync"},
		{name: "no default class", cached: []client.Object{claim(nil, "")}, want: Unknown, reason: "no default class",
			liveGets: 1},
		{name: "no class wanted, not bound", cached: []client.Object{claim(to(""), "")}, want: Unknown,
			reason: "asks for no StorageClass", liveGets: 1},
		{name: "class does not exist", cached: []client.Object{claim(to("typo"), "")}, want: Unknown,
			reason: `StorageClass "typo" does not exist`, liveGets: 3},
		{name: "claim does not exist", want: Unknown, reason: `PersistentVolumeClaim "ns/c" does not exist`, liveGets: 1},
		{name: "claim only live", cached: []client.Object{strictClass}, live: []client.Object{claim(to("fast"), "")},
			want: Ours, mode: "strict", liveGets: 1},
		{name: "claim and class only live", live: []client.Object{claim(to("fast"), ""), strictClass}, want: Ours,
			mode: "strict", liveGets: 2},
		{name: "cached claim is older than its binding", cached: []client.Object{claim(to(""), "")},
			live: []client.Object{claim(to(""), "pv"), pv(ours, "", map[string]string{"mode": "strict"})},
			want: Ours, mode: "strict", liveGets: 2},
		{name: "ephemeral", cached: []client.Object{strictClass}, volume: ephemeralVolume(to("fast")), want: Ours,
			mode: "strict"},
		{name: "ephemeral with the default class", cached: []client.Object{defaultClass("d", ours, 0)},
			volume: ephemeralVolume(nil), want: Ours, mode: "sync"},
		{name: "ephemeral of another driver", cached: []client.Object{class("x", "other", nil)},
			volume: ephemeralVolume(to("x")), want: Foreign},
		{name: "ephemeral that shows the library",
			cached: []client.Object{class("l", ours, map[string]string{"splitfs.io/kind": "library"})},
			volume: ephemeralVolume(to("l")), want: Foreign},
		{name: "bound to a volume that shows the library",
			cached: []client.Object{claim(to("l"), "pv"), pv(ours, "l", map[string]string{"splitfs.io/kind": "library"})},
			want:   Foreign},
		{name: "emptyDir", volume: &corev1.Volume{
			Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}, want: Foreign},
		{name: "claim without a name",
			volume: &corev1.Volume{
				Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}},
			}, want: Foreign},
		{name: "a claim name that is a path", volume: &corev1.Volume{
			Name: "v",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: "../secrets/x",
			}},
		}, want: Foreign},
		{name: "a class name that is a path", volume: ephemeralVolume(to("../x")), want: Unknown, reason: "cannot exist"},
		{name: "ephemeral without a template", volume: &corev1.Volume{
			Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}},
		}, want: Foreign},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			live := test.live
			if live == nil {
				live = test.cached
			}
			server := &countingReader{Reader: fake.NewClientBuilder().WithObjects(live...).Build()}
			resolver := &Resolver{Cached: indexed(trimmed(t, test.cached)...), Live: server}
			volume := test.volume
			if volume == nil {
				volume = claimVolume()
			}
			verdict, err := resolver.Resolve(t.Context(), "ns", volume)
			if err != nil {
				t.Fatalf("Resolve: %v", err)
			}
			if verdict.Kind != test.want || verdict.Mode != test.mode || !strings.Contains(verdict.Reason, test.reason) {
				t.Errorf("verdict = %+v, want kind %d, mode %q, reason with %q", verdict, test.want, test.mode, test.reason)
			}
			if (verdict.Kind == Unknown) != (verdict.Reason != "") {
				t.Errorf("an unknown volume, and no other, needs a reason: %+v", verdict)
			}
			if server.gets != test.liveGets {
				t.Errorf("%d live reads, want %d", server.gets, test.liveGets)
			}
		})
	}
}

func withWrongAttributes(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.Spec.VolumeAttributesClassName = to("bad")
	return c
}

func TestResolveWrongMode(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"class": {claim(to("bad"), ""), class("bad", ours, map[string]string{"mode": "turbo"})},
		"attributes class": {withWrongAttributes(claim(to("fast"), "")), class("fast", ours, nil),
			&storagev1.VolumeAttributesClass{
				ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Parameters: map[string]string{"mode": "turbo"},
			}},
		"volume": {claim(to("gone"), "pv"), pv(ours, "gone", map[string]string{"mode": "turbo"})},
	} {
		reader := indexed(objects...)
		_, err := (&Resolver{Cached: reader, Live: reader}).Resolve(t.Context(), "ns", claimVolume())
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "turbo") ||
			!strings.Contains(err.Error(), "posix, sync, strict") {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

type brokenReader struct{ client.Reader }

func (brokenReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection refused")
}

func (brokenReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("connection refused")
}

// TestResolveFailedRead: a volume that cannot be read is neither ours nor foreign.
func TestResolveFailedRead(t *testing.T) {
	empty := indexed()
	for name, resolver := range map[string]*Resolver{
		"cache":      {Cached: brokenReader{}, Live: empty},
		"API server": {Cached: empty, Live: brokenReader{}},
	} {
		if verdict, err := resolver.Resolve(t.Context(), "ns", claimVolume()); err == nil ||
			!strings.Contains(err.Error(), `"ns/c"`) {
			t.Errorf("%s: verdict %+v, error %v; want an error that names the claim", name, verdict, err)
		}
	}
	if _, err := (&Resolver{Cached: brokenReader{}, Live: empty}).Resolve(t.Context(), "ns",
		ephemeralVolume(nil)); err == nil {
		t.Error("failed list of classes: no error")
	}
}
