// SPDX-License-Identifier: Apache-2.0

// Package claims answers one question about a volume of a pod: is it one of ours, and which mode does it have by
// itself.
package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/internal/contract"
)

// Kind is the answer for one volume.
type Kind int

const (
	// Foreign volumes are none of our business.
	Foreign Kind = iota
	// Ours are served by the CSI driver csi.splitfs.io.
	Ours
	// Unknown volumes cannot be judged when the pod is created: what decides about them does not exist yet.
	Unknown
)

// Verdict is what is known about one volume of a pod.
type Verdict struct {
	Kind Kind
	// Mode of one of our volumes when the pod does not ask for another.
	Mode contract.Mode
	// Reason says, for Unknown, what is missing and what to do.
	Reason string
}

// InvalidError is returned for an object that names our driver and makes no sense: the pod could not run.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

// ReservedIndex is an index of PersistentVolumes that Cached must have: by the claim that each is reserved for, or
// bound to.
const ReservedIndex = "claim"

// ReservedFor is what ReservedIndex has of a volume: its claim, as namespace/name.
func ReservedFor(object client.Object) []string {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return nil
	}
	return []string{volume.Spec.ClaimRef.Namespace + "/" + volume.Spec.ClaimRef.Name}
}

// Resolver reads claims, volumes and classes. Cached reads come from informers; Live goes to the API server and is
// asked at most once for an object, only when the cache cannot answer.
type Resolver struct {
	Cached client.Reader
	Live   client.Reader
}

// IsCandidate says whether a volume could be ours at all. It needs no lookup.
func IsCandidate(volume *corev1.Volume) bool {
	return volume.PersistentVolumeClaim != nil || (volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil)
}

// Resolve judges one volume of a pod in a namespace.
func (r *Resolver) Resolve(ctx context.Context, namespace string, volume *corev1.Volume) (Verdict, error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return r.resolveClaim(ctx, namespace, volume.PersistentVolumeClaim.ClaimName)
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		// The claim will be made from the template after the pod: only the template can be judged.
		return r.resolveSpec(ctx, "the claim template of volume "+contract.Name(volume.Name),
			&volume.Ephemeral.VolumeClaimTemplate.Spec)
	}
	return Verdict{Kind: Foreign}, nil
}

func (r *Resolver) resolveClaim(ctx context.Context, namespace, name string) (Verdict, error) {
	if !canExist(name) {
		// There is no such claim. The API server refuses the pod by itself, with a better message, after us.
		return Verdict{Kind: Foreign}, nil
	}
	what := fmt.Sprintf("PersistentVolumeClaim %q", namespace+"/"+name)
	key := client.ObjectKey{Namespace: namespace, Name: name}
	claim := &corev1.PersistentVolumeClaim{}
	live, err := r.get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		return Verdict{Kind: Unknown, Reason: what + " does not exist; create it before the pod"}, nil
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("read %s: %w", what, err)
	}
	verdict, err := r.judge(ctx, what, claim)
	if err != nil || verdict.Kind != Unknown || live {
		return verdict, err
	}
	// The cache may be older than the event that decides (claim bound, default class filled in): look once at the real
	// thing.
	klog.FromContext(ctx).V(4).Info("Reading claim from the API server, the cached one is undecided",
		"claim", klog.KRef(namespace, name))
	if err := r.Live.Get(ctx, key, claim); err != nil {
		if apierrors.IsNotFound(err) {
			return Verdict{Kind: Unknown, Reason: what + " does not exist; create it before the pod"}, nil
		}
		return Verdict{}, fmt.Errorf("read %s: %w", what, err)
	}
	return r.judge(ctx, what, claim)
}

func (r *Resolver) judge(ctx context.Context, what string, claim *corev1.PersistentVolumeClaim) (Verdict, error) {
	if err := r.addReserved(ctx, claim); err != nil {
		return Verdict{}, err
	}
	return r.resolveSpec(ctx, what, &claim.Spec)
}

// addReserved completes a claim that is not bound yet: a volume made by hand may be reserved for it, and then nothing
// else will be bound to it, whatever its class says. Only volumes of ours are looked for, and only in the cache.
func (r *Resolver) addReserved(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" {
		return nil
	}
	list := &corev1.PersistentVolumeList{}
	if err := r.Cached.List(ctx, list, client.MatchingFields{
		ReservedIndex: claim.Namespace + "/" + claim.Name,
	}); err != nil {
		return fmt.Errorf("list the volumes reserved for PersistentVolumeClaim %q: %w", claim.Namespace+"/"+claim.Name, err)
	}
	for i := range list.Items {
		// One that was bound to an earlier claim of this name stays with that one.
		if ref := list.Items[i].Spec.ClaimRef; ref.UID == "" || ref.UID == claim.UID {
			claim.Spec.VolumeName = list.Items[i].Name
			return nil
		}
	}
	return nil
}

// resolveSpec judges a claim: by its volume once it is bound, by its class before.
func (r *Resolver) resolveSpec(ctx context.Context, what string,
	spec *corev1.PersistentVolumeClaimSpec) (Verdict, error) {
	if spec.VolumeMode != nil && *spec.VolumeMode == corev1.PersistentVolumeBlock {
		// A raw device has no files that could be served.
		return Verdict{Kind: Foreign}, nil
	}
	if spec.VolumeName != "" {
		verdict, found, err := r.resolveVolume(ctx, spec.VolumeName)
		if err != nil || found {
			return verdict, err
		}
	}
	class, missing, err := r.class(ctx, spec.StorageClassName)
	if err != nil {
		return Verdict{}, err
	}
	if class == nil {
		return Verdict{Kind: Unknown, Reason: what + " is not bound and " + missing}, nil
	}
	if class.Provisioner != contract.Driver || isLibrary(class.Parameters) {
		return Verdict{Kind: Foreign}, nil
	}
	mode, err := parseMode(class.Parameters,
		fmt.Sprintf("parameter %q of StorageClass %q", contract.ParameterMode, class.Name))
	if err != nil {
		return Verdict{}, err
	}
	changed, missing, err := r.attributesClass(ctx, spec.VolumeAttributesClassName)
	switch {
	case err != nil:
		return Verdict{}, err
	case missing != "":
		return Verdict{Kind: Unknown, Reason: what + " is not bound and " + missing}, nil
	case changed != "":
		mode = changed
	}
	return Verdict{Kind: Ours, Mode: mode}, nil
}

// attributesClass returns the mode that a volume will be made with by its VolumeAttributesClass, "" when that says
// nothing, or why it cannot be told. These classes are few and asked for only until a volume is bound, so they are read
// from the API server; one that does not know them has none.
func (r *Resolver) attributesClass(ctx context.Context, name *string) (mode contract.Mode, missing string, err error) {
	if name == nil || *name == "" {
		return "", "", nil
	}
	if !canExist(*name) {
		return "", "its VolumeAttributesClass " + contract.Name(*name) + " cannot exist", nil
	}
	class := &storagev1.VolumeAttributesClass{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: *name}, class); apierrors.IsNotFound(err) ||
		meta.IsNoMatchError(err) {
		return "", fmt.Sprintf("its VolumeAttributesClass %q does not exist; create the class before the pod", *name), nil
	} else if err != nil {
		return "", "", fmt.Errorf("read VolumeAttributesClass %q: %w", *name, err)
	}
	if _, says := class.Parameters[contract.ParameterMode]; !says {
		return "", "", nil
	}
	mode, err = parseMode(class.Parameters,
		fmt.Sprintf("parameter %q of VolumeAttributesClass %q", contract.ParameterMode, class.Name))
	return mode, "", err
}

// resolveVolume judges a bound PersistentVolume. What it was changed to counts, then what it was provisioned with; the
// class is asked only when the volume does not say, and may be gone by then.
func (r *Resolver) resolveVolume(ctx context.Context, name string) (verdict Verdict, found bool, err error) {
	volume := &corev1.PersistentVolume{}
	if _, err := r.get(ctx, client.ObjectKey{Name: name}, volume); err != nil {
		if apierrors.IsNotFound(err) {
			return Verdict{}, false, nil
		}
		return Verdict{}, false, fmt.Errorf("read PersistentVolume %q: %w", name, err)
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != contract.Driver || isLibrary(volume.Spec.CSI.VolumeAttributes) {
		return Verdict{Kind: Foreign}, true, nil
	}
	if changed, ok := volume.Annotations[contract.AnnotationVolumeMode]; ok {
		mode, err := parseMode(map[string]string{contract.ParameterMode: changed},
			fmt.Sprintf("annotation %q of PersistentVolume %q", contract.AnnotationVolumeMode, name))
		return Verdict{Kind: Ours, Mode: mode}, true, err
	}
	if _, said := volume.Spec.CSI.VolumeAttributes[contract.ParameterMode]; !said && volume.Spec.StorageClassName != "" {
		class, _, err := r.class(ctx, &volume.Spec.StorageClassName)
		if err != nil {
			return Verdict{}, false, err
		}
		if class != nil && class.Provisioner == contract.Driver {
			mode, err := parseMode(class.Parameters,
				fmt.Sprintf("parameter %q of StorageClass %q", contract.ParameterMode, class.Name))
			return Verdict{Kind: Ours, Mode: mode}, true, err
		}
	}
	mode, err := parseMode(volume.Spec.CSI.VolumeAttributes,
		fmt.Sprintf("volume attribute %q of PersistentVolume %q", contract.ParameterMode, name))
	return Verdict{Kind: Ours, Mode: mode}, true, err
}

// class returns the effective StorageClass of a claim, or nil and why there is none.
func (r *Resolver) class(ctx context.Context, name *string) (*storagev1.StorageClass, string, error) {
	if name == nil {
		return r.defaultClass(ctx)
	}
	if *name == "" {
		return nil, "asks for no StorageClass; wait until it is bound to a volume, then create the pod", nil
	}
	if !canExist(*name) {
		return nil, "its StorageClass " + contract.Name(*name) + " cannot exist", nil
	}
	class := &storagev1.StorageClass{}
	if _, err := r.get(ctx, client.ObjectKey{Name: *name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Sprintf("its StorageClass %q does not exist; create the class before the pod", *name), nil
		}
		return nil, "", fmt.Errorf("read StorageClass %q: %w", *name, err)
	}
	return class, "", nil
}

// defaultClass picks the class the API server would pick for a claim that names none: of several default classes the
// newest, of equally old ones the first by name.
func (r *Resolver) defaultClass(ctx context.Context) (*storagev1.StorageClass, string, error) {
	list := &storagev1.StorageClassList{}
	if err := r.Cached.List(ctx, list); err != nil {
		return nil, "", fmt.Errorf("list StorageClasses: %w", err)
	}
	var chosen *storagev1.StorageClass
	for i := range list.Items {
		class := &list.Items[i]
		if class.Annotations[annotationDefaultClass] != "true" && class.Annotations[annotationBetaDefaultClass] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			(chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name) {
			chosen = class
		}
	}
	if chosen == nil {
		return nil, "it names no StorageClass while the cluster has no default class; set storageClassName", nil
	}
	return chosen, "", nil
}

const (
	annotationDefaultClass     = "storageclass.kubernetes.io/is-default-class"
	annotationBetaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// canExist says whether an object can have a name at all. One that cannot is somebody's path, and not asked for.
func canExist(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// get asks the cache and, only when the object is not there, the API server once. It says whether the answer is live.
func (r *Resolver) get(ctx context.Context, key client.ObjectKey, object client.Object) (live bool, err error) {
	if err = r.Cached.Get(ctx, key, object); err == nil || !apierrors.IsNotFound(err) {
		return false, err
	}
	return true, r.Live.Get(ctx, key, object)
}

// isLibrary says whether a class or volume of the driver only shows the library: nothing in it is to be served by the
// library.
func isLibrary(values map[string]string) bool {
	return values[contract.VolumeKindAttribute] == contract.VolumeKindLibrary
}

func parseMode(values map[string]string, what string) (contract.Mode, error) {
	value, ok := values[contract.ParameterMode]
	if !ok {
		return contract.Default, nil
	}
	mode, err := contract.ParseMode(value)
	if err != nil {
		return "", &InvalidError{Message: fmt.Sprintf("%s: %v", what, err)}
	}
	return mode, nil
}
