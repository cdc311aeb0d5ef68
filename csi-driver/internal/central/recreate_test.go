// SPDX-License-Identifier: Apache-2.0

package central

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// waiting is a pod of a ReplicaSet that was not injected and has the claim of persistentVolume("a").
func waiting(name string, change func(*corev1.Pod)) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "uid-web", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1",
			Containers: []corev1.Container{
				{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}},
			},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-a"},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func evictions(client *fake.Clientset) (n int) {
	for _, action := range client.Actions() {
		if action.Matches("create", "pods/eviction") {
			n++
		}
	}
	return n
}

// TestRecreate: whom a controller makes anew is evicted when its node refuses it a volume, and nobody else.
func TestRecreate(t *testing.T) {
	strict := persistentVolume("a", "n1")
	strict.Spec.CSI.VolumeAttributes = map[string]string{"mode": "strict"}
	posix := strict.DeepCopy()
	posix.Spec.CSI.VolumeAttributes["mode"] = "posix"
	for _, c := range []struct {
		name  string
		pod   func(*corev1.Pod)
		posix bool
		age   time.Duration
		want  int
	}{
		{name: "not injected", age: recreateAfter, want: 1},
		{name: "too early", age: recreateAfter - time.Second},
		{name: "posix promises nothing", posix: true, age: recreateAfter},
		{name: "nobody would make it anew", pod: func(p *corev1.Pod) { p.OwnerReferences = nil }, age: time.Hour},
		{name: "an owner that is no controller", pod: func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
			age: time.Hour},
		{name: "runs", pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, age: time.Hour},
		{name: "on no node yet", pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }, age: time.Hour},
		{name: "is being deleted", pod: func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start}, []string{"x/y"}
		}, age: time.Hour},
		{name: "opted out", pod: func(p *corev1.Pod) { p.Labels = map[string]string{"splitfs.io/inject": "false"} },
			age: time.Hour},
		{name: "only reads", pod: func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true },
			age: time.Hour},
		{name: "another claim", pod: func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" },
			age: time.Hour},
		{name: "an exempt namespace", pod: func(p *corev1.Pod) { p.Namespace = "exempt" }, age: time.Hour},
	} {
		pv := strict
		if c.posix {
			pv = posix
		}
		client := fake.NewClientset(waiting("web-1", c.pod), pv, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
		})
		recorder := record.NewFakeRecorder(10)
		clock := clocktesting.NewFakePassiveClock(start)
		r := NewRecreate(client, newView(t, client), []string{"exempt"}, recorder, clock)
		if err := r.check(t.Context()); err != nil || evictions(client) != 0 {
			t.Errorf("%s: seen for the first time: %d evictions, %v", c.name, evictions(client), err)
		}
		clock.SetTime(start.Add(c.age))
		if err := r.check(t.Context()); err != nil || evictions(client) != c.want || len(recorder.Events) != c.want {
			t.Errorf("%s: %d evictions, %d events, %v", c.name, evictions(client), len(recorder.Events), err)
		}
	}
}

// TestRecreateIsBounded: pods that never get the library are made anew ever less often, and then no more; another
// controller's are.
func TestRecreateIsBounded(t *testing.T) {
	strict := persistentVolume("a", "n1")
	strict.Spec.CSI.VolumeAttributes = map[string]string{"mode": "strict"}
	client := fake.NewClientset(waiting("web-1", nil), strict, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	})
	clock := clocktesting.NewFakePassiveClock(start)
	r := NewRecreate(client, newView(t, client), nil, record.NewFakeRecorder(100), clock)
	var waits []time.Duration
	born := start
	for now := start; now.Before(start.Add(3 * time.Hour)); now = now.Add(30 * time.Second) {
		clock.SetTime(now)
		before := evictions(client)
		if err := r.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if evictions(client) > before { // the fake keeps it: it is its successor from now on
			waits = append(waits, now.Sub(born))
			born = now
			pod := waiting("web-1", func(p *corev1.Pod) { p.UID = types.UID(now.String()) })
			if _, err := client.CoreV1().Pods("default").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A successor is seen at the next look.
	const look = 30 * time.Second
	want := []time.Duration{
		time.Minute, 2*time.Minute + look, 4*time.Minute + look, 8*time.Minute + look, 16*time.Minute + look,
	}
	if len(waits) != len(want) {
		t.Fatalf("evicted after %v", waits)
	}
	for i := range want {
		if waits[i] != want[i] {
			t.Errorf("evicted after %v", waits)
		}
	}
	other := waiting("other-1", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-other" })
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := evictions(client)
	if err := r.check(t.Context()); err != nil || evictions(client) != before {
		t.Errorf("another controller's pod, at once: %v", err)
	}
	clock.SetTime(clock.Now().Add(recreateAfter))
	if err := r.check(t.Context()); err != nil || evictions(client) != before+1 {
		t.Errorf("another controller's pod: %v", err)
	}
}

// TestRecreateReplicas: how often pods were made anew counts, not how many pods a controller has.
func TestRecreateReplicas(t *testing.T) {
	strict := persistentVolume("a", "n1")
	strict.Spec.CSI.VolumeAttributes = map[string]string{"mode": "strict"}
	client := fake.NewClientset(strict, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	names := []string{"web-1", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7", "web-8"}
	for _, name := range names {
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), waiting(name, nil),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	clock := clocktesting.NewFakePassiveClock(start)
	r := NewRecreate(client, newView(t, client), nil, record.NewFakeRecorder(100), clock)
	look := func(after time.Duration, want int) {
		t.Helper()
		clock.SetTime(start.Add(after))
		if err := r.check(t.Context()); err != nil || evictions(client) != want {
			t.Errorf("after %v: %d evictions, wanted %d, %v", after, evictions(client), want, err)
		}
	}
	look(0, 0)
	look(recreateAfter, len(names))
	for _, name := range names { // their successors are no better
		pod := waiting(name, func(p *corev1.Pod) { p.UID = types.UID("uid-2-" + name) })
		if _, err := client.CoreV1().Pods("default").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	look(recreateAfter, len(names))
	look(3*recreateAfter-time.Second, len(names))
	look(3*recreateAfter, 2*len(names))
}

// TestRecreateClockSet: the time at which the API server says that a pod was created tells nothing on a machine whose
// clock was set since, or differs from the server's.
func TestRecreateClockSet(t *testing.T) {
	strict := persistentVolume("a", "n1")
	strict.Spec.CSI.VolumeAttributes = map[string]string{"mode": "strict"}
	for name, created := range map[string]time.Time{
		"a day back": start.Add(-24 * time.Hour), "a day ahead": start.Add(24 * time.Hour),
	} {
		client := fake.NewClientset(strict, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			waiting("web-1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(created) }))
		clock := clocktesting.NewFakePassiveClock(start)
		r := NewRecreate(client, newView(t, client), nil, record.NewFakeRecorder(10), clock)
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{0, 0}, {recreateAfter - time.Second, 0}, {recreateAfter, 1}} {
			clock.SetTime(start.Add(c.after))
			if err := r.check(t.Context()); err != nil || evictions(client) != c.want {
				t.Errorf("created %s, seen for %v: %d evictions, %v", name, c.after, evictions(client), err)
			}
		}
	}
}

// TestRecreateReleased: a volume that was kept when its claim was deleted says nothing of the pods of a later claim of
// that name, which has another volume. Such a pod may wait for its image, and is left alone.
func TestRecreateReleased(t *testing.T) {
	released := persistentVolume("a", "n1")
	released.Spec.CSI.VolumeAttributes = map[string]string{"mode": "strict"}
	released.Status.Phase = corev1.VolumeReleased
	client := fake.NewClientset(released, waiting("web-1", nil), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	})
	clock := clocktesting.NewFakePassiveClock(start)
	r := NewRecreate(client, newView(t, client), nil, record.NewFakeRecorder(10), clock)
	for _, after := range []time.Duration{0, recreateAfter, time.Hour} {
		clock.SetTime(start.Add(after))
		if err := r.check(t.Context()); err != nil || evictions(client) != 0 {
			t.Errorf("after %v: %d evictions, %v", after, evictions(client), err)
		}
	}
}
