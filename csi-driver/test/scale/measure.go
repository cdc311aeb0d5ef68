// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// row is one column of the table: what was measured with so many volumes.
type row struct {
	volumes int
	// How long it took: the scheduler to choose a node, then the claim to be bound, and then the SplitFSVolume to be
	// there.
	selected, bound, shown latency
	requests               map[asker]float64 // per volume
	total                  float64
	idle                   map[asker]float64 // per minute
	memory                 map[string]int64
}

type latency struct{ p50, p99 time.Duration }

func latencyOf(all []time.Duration) latency {
	slices.Sort(all)
	return latency{all[len(all)/2], all[len(all)*99/100]}
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// waitShownNodes waits until every node has its object.
func (s *simulation) waitShownNodes(ctx context.Context) error {
	objects, err := dynamic.NewForConfig(s.cluster.admin)
	if err != nil {
		return err
	}
	return until(ctx, "every node has a SplitFSNode", 10*time.Minute, func() error {
		list, err := objects.Resource(v1alpha1.NodeResource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		if len(list.Items) != s.options.nodes {
			return fmt.Errorf("%d have one", len(list.Items))
		}
		return nil
	})
}

// claim makes a claim. With a node the scheduler has nothing to do with it.
func (s *simulation) claim(ctx context.Context, i int, node string) (name string, err error) {
	name = fmt.Sprintf("data-%05d", i)
	annotations := map[string]string{}
	if node != "" {
		annotations[selectedNode] = node
	}
	if _, err := s.cluster.clients.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(className), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)},
			},
		},
	}, createOptions); err != nil {
		return "", fmt.Errorf("create claim %s: %w", name, err)
	}
	return name, nil
}

// use makes a claim and a pod that uses it, as an application would.
func (s *simulation) use(ctx context.Context, i int) (claim string, err error) {
	if claim, err = s.claim(ctx, i, ""); err != nil {
		return "", err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("app-%05d", i)},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{
				{Name: "app", Image: "app", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}},
			},
			Volumes: []corev1.Volume{
				{Name: "data",
					VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
						ClaimName: claim,
					}}},
			},
		},
	}
	made, err := s.cluster.clients.CoreV1().Pods("default").Create(ctx, pod, createOptions)
	if err != nil {
		return "", fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	if made.Annotations["splitfs.io/status"] == "" {
		return "", fmt.Errorf("pod %s was not injected", pod.Name)
	}
	return claim, nil
}

// fill brings the number of volumes to n, as fast as it goes: without pods, on nodes that are chosen here, in turn.
func (s *simulation) fill(ctx context.Context, n int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.options.concurrency)
	for ; s.volumes < n; s.volumes++ {
		i := s.volumes
		group.Go(func() error {
			_, err := s.claim(groupCtx, i, fmt.Sprintf(nodeName, i%s.options.nodes))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.settled(ctx)
}

// settled waits until every claim is bound and every volume shown.
func (s *simulation) settled(ctx context.Context) error {
	return until(ctx, "all claims are bound and all volumes shown", 30*time.Minute, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.bound) != s.volumes || len(s.shown) != s.volumes {
			return fmt.Errorf("of %d volumes %d are bound and %d are shown", s.volumes, len(s.bound), len(s.shown))
		}
		return nil
	})
}

// measure adds the sample, one volume after another at the rate, and then watches the idle cluster.
func (s *simulation) measure(ctx context.Context, step int) (row, error) {
	r := row{volumes: step, requests: map[asker]float64{}, idle: map[asker]float64{}}
	before, totalBefore, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	started := map[string]time.Time{}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / s.options.rate))
	defer ticker.Stop()
	for ; s.volumes < step; s.volumes++ {
		<-ticker.C
		start := time.Now()
		claim, err := s.use(ctx, s.volumes)
		if err != nil {
			return r, err
		}
		started[claim] = start
	}
	if err := s.settled(ctx); err != nil {
		return r, err
	}
	after, totalAfter, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	for _, a := range askers {
		r.requests[a] = float64(after[a]-before[a]) / float64(len(started))
	}
	r.total = (totalAfter - totalBefore) / float64(len(started))
	if err := s.latencies(&r, started); err != nil {
		return r, err
	}
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(s.options.idle):
	}
	quiet, _, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	for _, a := range askers {
		r.idle[a] = float64(quiet[a]-after[a]) / s.options.idle.Minutes()
	}
	r.memory, err = s.cluster.memory()
	return r, err
}

func (s *simulation) counts(ctx context.Context) (map[asker]int64, float64, error) {
	requests, err := s.cluster.requests()
	if err != nil {
		return nil, 0, err
	}
	total, err := s.cluster.total(ctx)
	return requests, total, err
}

func (s *simulation) latencies(r *row, started map[string]time.Time) error {
	var selected, bound, shown []time.Duration
	s.mu.Lock()
	defer s.mu.Unlock()
	for claim, start := range started {
		object, exists, err := s.claims.GetIndexer().GetByKey("default/" + claim)
		if err != nil || !exists {
			return fmt.Errorf("claim %s: %w", claim, err)
		}
		id := volume.IDFromName("pvc-" + string(object.(*corev1.PersistentVolumeClaim).UID))
		selected = append(selected, s.selected[claim].Sub(start))
		bound = append(bound, s.bound[claim].Sub(s.selected[claim]))
		shown = append(shown, s.shown[id].Sub(s.selected[claim]))
	}
	r.selected, r.bound, r.shown = latencyOf(selected), latencyOf(bound), latencyOf(shown)
	return nil
}
