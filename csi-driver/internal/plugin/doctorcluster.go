// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// oldestServer is the oldest Kubernetes that the chart installs on (kubeVersion in Chart.yaml).
const oldestServer = "1.30.0"

func (d *doctor) checkServer(context.Context) {
	const what = "Kubernetes"
	client, err := discovery.NewDiscoveryClientForConfig(d.cluster.config)
	if err != nil {
		d.failed(what, err)
		return
	}
	info, err := client.ServerVersion()
	if err != nil {
		d.failed(what, fmt.Errorf("ask for the API server's version: %w", err))
		return
	}
	parsed, err := version.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		d.add(warning, what, "the API server calls its version %q", info.GitVersion)
	case parsed.LessThan(version.MustParseGeneric(oldestServer)):
		d.add(failure, what, "version %s; SplitFS needs %s or newer", info.GitVersion, oldestServer)
	default:
		d.add(good, what, "version %s", info.GitVersion)
	}
}

func (d *doctor) checkDriver(ctx context.Context) {
	const what = "CSIDriver"
	var driver storagev1.CSIDriver
	if err := d.cluster.client.Get(ctx, client.ObjectKey{Name: contract.Driver}, &driver); err != nil {
		if apierrors.IsNotFound(err) {
			d.add(failure, what, "%s does not exist; install the chart (docs/chart.md)", contract.Driver)
			return
		}
		d.failed(what, err)
		return
	}
	if pod := driver.Spec.PodInfoOnMount; pod == nil || !*pod {
		d.add(failure, what,
			"%s has podInfoOnMount: false, so nodes are not told for which pod they mount; upgrade the release", contract.Driver)
		return
	}
	d.add(good, what, "%s, lifecycle modes %v", contract.Driver, driver.Spec.VolumeLifecycleModes)
}

// part is a workload of the release.
type part struct {
	kind, name    string
	wanted, ready int32
	// settled: every pod is of the newest template.
	settled bool
	images  []string
}

func (d *doctor) checkParts(ctx context.Context) {
	var parts []part
	for _, name := range []string{"splitfs-node", "splitfs-agents", "splitfs-provisioner"} {
		var set appsv1.DaemonSet
		if !d.getPart(ctx, "DaemonSet", name, &set) {
			continue
		}
		s := set.Status
		parts = append(parts, part{"DaemonSet", name, s.DesiredNumberScheduled, s.NumberReady,
			s.ObservedGeneration >= set.Generation && s.UpdatedNumberScheduled >= s.DesiredNumberScheduled,
			images(&set.Spec.Template)})
	}
	for _, name := range []string{"splitfs-controller", injectorName} {
		var deployment appsv1.Deployment
		if !d.getPart(ctx, "Deployment", name, &deployment) {
			continue
		}
		wanted := int32(1)
		if deployment.Spec.Replicas != nil {
			wanted = *deployment.Spec.Replicas
		}
		s := deployment.Status
		parts = append(parts, part{
			"Deployment", name, wanted, s.ReadyReplicas,
			s.ObservedGeneration >= deployment.Generation && s.UpdatedReplicas >= wanted, images(&deployment.Spec.Template),
		})
	}
	tags := map[string][]string{}
	for _, p := range parts {
		d.judge(&p)
		for _, image := range p.images {
			tags[tag(image)] = append(tags[tag(image)], p.name)
		}
	}
	if len(tags) > 1 {
		d.add(warning, "versions",
			"the parts have images of different versions: %s; an upgrade that has not ended, or values that name single tags",
			whoHas(tags))
	}
}

func (d *doctor) getPart(ctx context.Context, kind, name string, object client.Object) bool {
	err := d.cluster.client.Get(ctx, client.ObjectKey{Namespace: d.cluster.release, Name: name}, object)
	if apierrors.IsNotFound(err) {
		d.add(failure, name, "%s %s does not exist in namespace %s; --splitfs-namespace names another", kind, name,
			d.cluster.release)
	} else if err != nil {
		d.failed(name, err)
	}
	return err == nil
}

func (d *doctor) judge(p *part) {
	look := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/component=%s", d.cluster.release,
		strings.TrimPrefix(p.name, "splitfs-"))
	switch {
	case p.wanted == 0 && p.kind == "Deployment":
		d.add(failure, p.name, "is scaled to no replica")
	case p.wanted == 0:
		d.add(warning, p.name, "wants to run on no node: no node fits node.nodeSelector and node.affinity")
	case p.ready == 0:
		d.add(failure, p.name, "none of %s is ready; %s", count(int(p.wanted), "pod"), look)
	case p.ready < p.wanted:
		d.add(warning, p.name, "%d of %s are ready; %s", p.ready, count(int(p.wanted), "pod"), look)
	case !p.settled:
		d.add(warning, p.name, "is being replaced by a newer version")
	default:
		d.add(good, p.name, "%d of %d ready, %s", p.ready, p.wanted, strings.Join(p.images, ", "))
	}
}

func images(template *corev1.PodTemplateSpec) []string {
	list := make([]string, 0, len(template.Spec.Containers))
	for i := range template.Spec.Containers {
		list = append(list, template.Spec.Containers[i].Image)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// tag is an image's, or its digest.
func tag(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	if i := strings.IndexAny(name, ":@"); i >= 0 {
		return name[i+1:]
	}
	return "latest"
}

// certificateMargin is when an end of a CA certificate that comes near is worth a warning: it is renewed 90 days
// before.
const certificateMargin = 30 * 24 * time.Hour

func (d *doctor) checkWebhook(ctx context.Context) {
	const what = "webhook"
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := d.cluster.client.Get(ctx, client.ObjectKey{Name: injectorName}, &configuration); err != nil {
		if apierrors.IsNotFound(err) {
			d.add(failure, what, "MutatingWebhookConfiguration %s does not exist; pods get no library", injectorName)
			return
		}
		d.failed(what, err)
		return
	}
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		until, err := caEnd(w.ClientConfig.CABundle)
		switch {
		case err != nil:
			d.add(failure, what, "%s: %v; the log of the injector says why it issued none", w.Name, err)
			return
		case until.Before(d.settings.now()):
			d.add(failure, what, "%s: its CA certificate ended on %s; restart the injector", w.Name, until.Format(time.DateOnly))
			return
		case until.Before(d.settings.now().Add(certificateMargin)):
			d.add(warning, what, "%s: its CA certificate ends on %s and was not renewed", w.Name, until.Format(time.DateOnly))
			return
		}
	}
	if slices.ContainsFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Fail
	}) {
		d.add(good, what, "certificates are valid; pods that need the library wait for it")
		return
	}
	d.add(warning, what,
		"injector.failurePolicy is Ignore: while no injector answers, pods get volumes without the library that keeps "+
			"their mode's promise")
}

// caEnd is when the first of the certificates ends.
func caEnd(bundle []byte) (time.Time, error) {
	var end time.Time
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return end, fmt.Errorf("its caBundle holds what is no certificate: %w", err)
		}
		if end.IsZero() || certificate.NotAfter.Before(end) {
			end = certificate.NotAfter
		}
	}
	if end.IsZero() {
		return end, fmt.Errorf("it has no caBundle, so the API server trusts no injector")
	}
	return end, nil
}

func (d *doctor) checkClasses(ctx context.Context) {
	const what = "StorageClasses"
	classes, err := d.classes(ctx)
	if err != nil {
		d.failed(what, err)
		return
	}
	var names []string
	for i := range classes {
		class := &classes[i]
		if _, err := volume.ParseParams(class.Parameters); err != nil {
			d.add(failure, what, "%s can make no volume: %v", class.Name, err)
			return
		}
		if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
			d.add(failure, what, "%s can make no volume: its volumeBindingMode must be WaitForFirstConsumer", class.Name)
			return
		}
		names = append(names, class.Name)
	}
	if len(names) == 0 {
		d.add(warning, what, "none has the provisioner %s, so no claim can ask for a volume", contract.Driver)
		return
	}
	d.add(good, what, "%s", strings.Join(names, ", "))
}

// classes are those for data.
func (d *doctor) classes(ctx context.Context) ([]storagev1.StorageClass, error) {
	var list storagev1.StorageClassList
	if err := d.cluster.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list StorageClasses: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(class storagev1.StorageClass) bool {
		return class.Provisioner != contract.Driver ||
			class.Parameters[contract.VolumeKindAttribute] == contract.VolumeKindLibrary
	}), nil
}

// checkInjection sends a pod through admission, as one that is created would go, and throws it away there.
func (d *doctor) checkInjection(ctx context.Context) {
	const what, where = "injection", "/data"
	classes, err := d.classes(ctx)
	if err != nil || len(classes) == 0 {
		return // said already
	}
	pod := trial(d.cluster.namespace, classes[0].Name, where)
	switch err := d.cluster.client.Create(ctx, pod, client.DryRunAll); {
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "SplitFS"):
		d.add(skipped, what, "a pod in namespace %s: %v", d.cluster.namespace, err)
	case err != nil:
		d.add(failure, what, "a pod with a volume of class %s in namespace %s is refused: %v", classes[0].Name,
			d.cluster.namespace, err)
	default:
		if mode, ok := promise.GivenMode(&pod.Spec.Containers[0], where); ok {
			d.add(good, what, "a pod in namespace %s would get the library, and mode %s for class %s", d.cluster.namespace, mode,
				classes[0].Name)
			return
		}
		d.add(failure, what,
			"a pod in namespace %s would not get the library: no injector answers, or it does not look into this namespace "+
				"(-n names another)", d.cluster.namespace)
	}
}

// trial is a pod that every level of Pod Security admits.
func trial(namespace, class, where string) *corev1.Pod {
	no, yes, user := false, true, int64(65534)
	claim := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: *quantityOf(1 << 30)},
		},
	}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "splitfs-doctor-"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeRuntimeDefault,
				},
			},
			Volumes: []corev1.Volume{
				{Name: "data",
					VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: claim}}},
			},
			Containers: []corev1.Container{{
				Name: "doctor", Image: "splitfs.invalid/doctor",
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: where}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
