// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/status"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const (
	volumesPerNode = 64
	nodeName       = "node-%04d"
	className      = "splitfs-strict"
	nodeCapacity   = 100 * volume.GiB
	claimSize      = 64 * volume.MiB
	// selectedNode is the annotation by which the scheduler asks for a volume on a node.
	selectedNode = "volume.kubernetes.io/selected-node"
)

var (
	getOptions    = metav1.GetOptions{}
	createOptions = metav1.CreateOptions{}
	updateOptions = metav1.UpdateOptions{}
)

// simulated is a node without a machine. What its status writer sees is what a node service would report.
type simulated struct {
	name   string
	writer *status.Writer

	mu      sync.Mutex
	reports []node.Report
}

func (s *simulated) Reports(context.Context) ([]node.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]node.Report(nil), s.reports...), nil
}

func (*simulated) Erasures([]node.Report) ([]node.Erasure, error) { return nil, nil }

func (s *simulated) Devices(context.Context) []node.DeviceReport {
	return []node.DeviceReport{{Name: volume.DeviceEmulated, Emulated: true, Available: nodeCapacity}}
}

func (s *simulated) Memory(context.Context) ([]nvdimm.Range, error) { return nil, nil }
func (s *simulated) LibraryDigest() (string, error)                 { return "0", nil }
func (s *simulated) Check(context.Context) error                    { return nil }
func (s *simulated) Status() module.Status {
	return module.Status{State: module.NotConfigured, Message: "nobody asked for it"}
}

func (s *simulated) Providers() map[string]string {
	return map[string]string{volume.XFS: "reflink", volume.Ext4: "copy"}
}

// simulation is all nodes, and what csi-provisioner does on each of them.
type simulation struct {
	cluster *cluster
	options options
	nodes   map[string]*simulated
	queue   workqueue.TypedRateLimitingInterface[string]
	claims  cache.SharedIndexInformer
	volumes int

	mu       sync.Mutex
	selected map[string]time.Time // when a node was chosen, by claim
	bound    map[string]time.Time // by claim
	shown    map[string]time.Time // by volume ID
}

func startNodes(ctx context.Context, c *cluster, o options) (*simulation, error) {
	s := &simulation{
		cluster: c, options: o, nodes: map[string]*simulated{},
		selected: map[string]time.Time{}, bound: map[string]time.Time{}, shown: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(o.concurrency)
	for i := range o.nodes {
		n := &simulated{name: fmt.Sprintf(nodeName, i)}
		s.nodes[n.name] = n
		group.Go(func() error { return s.createNode(groupCtx, n.name) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := s.watch(ctx); err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		writerCluster, err := status.NewCluster(rest.CopyConfig(c.nodes))
		if err != nil {
			return nil, err
		}
		n.writer = status.NewWriter(status.Config{
			NodeName: n.name, Node: n, Module: n, Cluster: writerCluster, Interval: 30 * time.Second, Heartbeat: 5 * time.Minute,
		})
		go n.writer.Run(klog.NewContext(ctx, klog.LoggerWithValues(klog.Background(), "node", n.name)))
	}
	for range o.concurrency {
		go s.provision(ctx)
	}
	return s, s.waitShownNodes(ctx)
}

func (s *simulation) createNode(ctx context.Context, name string) error {
	clients := s.cluster.clients
	made, err := clients.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, contract.TopologyKey: name},
	}}, createOptions)
	if err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	made.Status.Capacity = corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceCPU: resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("128Gi"),
	}
	made.Status.Allocatable = made.Status.Capacity
	if _, err := clients.CoreV1().Nodes().UpdateStatus(ctx, made, updateOptions); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	if _, err := clients.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: contract.Driver, NodeID: name, TopologyKeys: []string{contract.TopologyKey},
			Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(volumesPerNode))},
		}}},
	}, createOptions); err != nil {
		return fmt.Errorf("create CSINode %s: %w", name, err)
	}
	if _, err := clients.StorageV1().CSIStorageCapacities(namespace).Create(ctx, &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "csisc-" + name}, StorageClassName: className,
		Capacity:     resource.NewQuantity(nodeCapacity, resource.BinarySI),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{contract.TopologyKey: name}},
	}, createOptions); err != nil {
		return fmt.Errorf("create the capacity of node %s: %w", name, err)
	}
	return nil
}

// watch notes when claims are bound and SplitFSVolumes appear, and hands claims to the provisioner.
func (s *simulation) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(s.cluster.clients, 0)
	s.claims = factory.Core().V1().PersistentVolumeClaims().Informer()
	see := func(object any) {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		switch {
		case !ok:
		case claim.Status.Phase == corev1.ClaimBound:
			s.note(s.bound, claim.Name)
		case claim.Annotations[selectedNode] != "":
			s.note(s.selected, claim.Name)
			s.queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	if _, err := s.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) },
	}); err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(s.cluster.admin)
	if err != nil {
		return err
	}
	volumes := metadatainformer.NewFilteredMetadataInformer(objects, v1alpha1.VolumeResource, "", 0, cache.Indexers{},
		nil).Informer()
	if _, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if v, ok := object.(*metav1.PartialObjectMetadata); ok {
			s.note(s.shown, v.Name)
		}
	}}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	go volumes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), s.claims.HasSynced, volumes.HasSynced) {
		return fmt.Errorf("watch claims and volumes: %w", ctx.Err())
	}
	return nil
}

// note keeps when something was seen first.
func (s *simulation) note(times map[string]time.Time, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := times[name]; !known {
		times[name] = time.Now()
	}
}

// provision does on behalf of all nodes what csi-provisioner does on its own one.
func (s *simulation) provision(ctx context.Context) {
	for {
		key, shutdown := s.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		if err := s.provisionClaim(ctx, key); err != nil {
			klog.ErrorS(err, "Cannot provision", "claim", key)
			s.queue.AddRateLimited(key)
		} else {
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

func (s *simulation) provisionClaim(ctx context.Context, key string) error {
	object, exists, err := s.claims.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return err
	}
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	n := s.nodes[claim.Annotations[selectedNode]]
	id := volume.IDFromName(name)
	rec := &volume.Record{
		ID: id, Name: name, Phase: volume.PhaseReady, Mode: contract.Strict, Device: volume.DeviceEmulated,
		FSType: volume.XFS,
		PVC:    volume.PVC{Namespace: claim.Namespace, Name: claim.Name}, Size: claimSize, DeviceSize: 4 * claimSize,
	}
	n.mu.Lock()
	known := false
	for _, r := range n.reports {
		known = known || r.Record.ID == id
	}
	if !known {
		n.reports = append(n.reports, node.Report{Record: rec, Emulated: true})
	}
	n.mu.Unlock()
	n.writer.Poke()
	_, err = s.cluster.clients.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": contract.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: className,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: contract.Driver, VolumeHandle: id, FSType: volume.XFS,
				VolumeAttributes: map[string]string{"mode": string(contract.Strict), "device": volume.DeviceEmulated},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: contract.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{n.name}},
					},
				}},
			}},
		},
	}, createOptions)
	return ignoreExists(err)
}
