// SPDX-License-Identifier: Apache-2.0

// Package podhook answers the API server's admission requests for pods.
package podhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/json"

	"splitfs.io/splitfs/injector-webhook/internal/claims"
	"splitfs.io/splitfs/injector-webhook/internal/inject"
	"splitfs.io/splitfs/internal/contract"
)

// Path is where the webhook is served.
const Path = "/mutate-pods"

// Recorder sends events; it is the part of events.EventRecorder that is used here.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Handler injects the library into pods. It implements admission.Handler.
type Handler struct {
	Claims *claims.Resolver
	// ExemptNamespaces are never touched, whatever the webhook's configuration lets through.
	ExemptNamespaces sets.Set[string]
	Recorder         Recorder
	Metrics          *Metrics
	// LookupTimeout bounds all reads for one request. It must be shorter than the webhook's timeoutSeconds, so that the
	// pod's author gets our error and not the API server's "context deadline exceeded".
	LookupTimeout time.Duration
	// Delivery is how pods get the library.
	Delivery inject.Delivery
}

var _ admission.Handler = (*Handler)(nil)

// Handle answers one request.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	logger := klog.FromContext(ctx).WithValues("namespace", req.Namespace, "pod", req.Name, "request-id", req.UID)
	ctx = klog.NewContext(ctx, logger)
	response, err := h.handle(ctx, &req)
	if err == nil {
		return response
	}
	var denied *inject.DeniedError
	if errors.As(err, &denied) {
		h.Metrics.pod(resultDenied, denied.Reason)
		logger.V(2).Info("Pod denied", "reason", denied.Reason, "message", denied.Message)
		return admission.Denied("SplitFS: " + denied.Message)
	}
	h.Metrics.pod(resultError, "")
	var bad *badRequestError
	if errors.As(err, &bad) {
		logger.Info("Request refused", "err", err)
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("SplitFS: %w", err))
	}
	logger.Error(err, "Pod could not be judged")
	return admission.Errored(http.StatusInternalServerError,
		fmt.Errorf("SplitFS: %w; the pod was not created, try again", err))
}

// badRequestError is a request that no API server would send for a pod's creation.
type badRequestError struct{ message string }

func (e *badRequestError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &badRequestError{message: fmt.Sprintf(format, args...)}
}

func (h *Handler) handle(ctx context.Context, req *admission.Request) (admission.Response, error) {
	pod, err := decode(req)
	if err != nil {
		return admission.Response{}, err
	}
	if h.ExemptNamespaces.Has(req.Namespace) || (pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows) {
		h.Metrics.pod(resultForeign, "")
		return admission.Allowed(""), nil
	}
	wishes, err := inject.ReadWishes(pod)
	if err != nil {
		return admission.Response{}, err
	}
	if wishes.OptOut {
		h.Metrics.pod(resultOptOut, "")
		return admission.Allowed(""), nil
	}
	lookups, cancel := context.WithTimeout(ctx, h.LookupTimeout)
	defer cancel()
	ours, undecided, err := h.judge(lookups, req.Namespace, pod)
	if err != nil {
		return admission.Response{}, err
	}
	if len(undecided) > 0 && wishes.AsksForMode() {
		return admission.Response{}, &inject.DeniedError{Reason: inject.ReasonClaim, Message: fmt.Sprintf(
			"the pod asks for a mode (annotation %s), but whether its volume is a SplitFS volume cannot be known yet: %s",
			contract.AnnotationMode, undecided[0])}
	}
	result, err := h.mutate(req, pod, wishes, ours, undecided)
	if err != nil {
		return admission.Response{}, err
	}
	warnings := append(wishes.Warnings, result.Warnings...)
	placed, warning, err := h.place(lookups, req, pod)
	if err != nil {
		return admission.Response{}, err
	}
	result.Operations = append(result.Operations, placed...)
	if warning != "" {
		warnings = append(warnings, warning)
	}
	if len(ours) == 0 && wishes.AsksForMode() {
		warnings = append(warnings,
			fmt.Sprintf("annotation %s has no effect: no container mounts a SplitFS volume", contract.AnnotationMode))
	}
	for _, reason := range undecided {
		warnings = append(warnings, "not served by SplitFS: "+reason)
	}
	h.report(ctx, req, pod, result, undecided)
	return admission.Patched("", result.Operations...).WithWarnings(bounded(warnings)...), nil
}

// decode reads the pod. The webhook's rules let nothing else through; whoever calls us without them gets a clear
// answer.
func decode(req *admission.Request) (*corev1.Pod, error) {
	if req.Kind != (metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}) || req.SubResource != "" {
		return nil, badRequest("expected a v1 Pod, got %s; the webhook must be registered for pods only",
			contract.Quote(req.Kind.Kind))
	}
	if req.Operation != admissionv1.Create {
		return nil, badRequest("expected operation CREATE, got %s", contract.Quote(string(req.Operation)))
	}
	if req.Namespace == "" {
		return nil, badRequest("the request names no namespace")
	}
	pod := &corev1.Pod{}
	if err := json.UnmarshalCaseSensitivePreserveInts(req.Object.Raw, pod); err != nil {
		// The decoder's own text can repeat parts of the object: it belongs into our log only.
		return nil, badRequest("the request's object (%d bytes) is no valid Pod", len(req.Object.Raw))
	}
	return pod, nil
}

// judge looks at each volume that a container mounts: which are ours, and why some cannot be judged.
func (h *Handler) judge(ctx context.Context, namespace string,
	pod *corev1.Pod) (ours map[string]contract.Mode, undecided []string, err error) {
	mounted := mountedVolumes(pod)
	ours = map[string]contract.Mode{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !claims.IsCandidate(volume) || !mounted.Has(volume.Name) {
			continue
		}
		verdict, err := h.Claims.Resolve(ctx, namespace, volume)
		var invalid *claims.InvalidError
		if errors.As(err, &invalid) {
			return nil, nil, &inject.DeniedError{Reason: inject.ReasonClass, Message: invalid.Message}
		}
		if err != nil {
			return nil, nil, err
		}
		switch verdict.Kind {
		case claims.Ours:
			ours[volume.Name] = verdict.Mode
		case claims.Unknown:
			undecided = append(undecided, verdict.Reason)
		case claims.Foreign:
		}
	}
	return ours, undecided, nil
}

// place keeps the pod of a volume that is to be a copy on the node that the copy can be made on. Where that cannot be
// told, the scheduler chooses as for any pod: it can be right by chance.
func (h *Handler) place(ctx context.Context, req *admission.Request,
	pod *corev1.Pod) ([]jsonpatch.Operation, string, error) {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !claims.IsCandidate(volume) {
			continue
		}
		node, err := h.Claims.Place(ctx, req.Namespace, volume)
		if err != nil {
			klog.FromContext(ctx).Info("Pod is left to the scheduler", "volume", volume.Name, "err", err)
		} else if node != "" {
			return inject.Place(req.Object.Raw, pod, volume.Name, node)
		}
	}
	return nil, "", nil
}

func mountedVolumes(pod *corev1.Pod) sets.Set[string] {
	mounted := sets.New[string]()
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				mounted.Insert(containers[i].VolumeMounts[j].Name)
			}
		}
	}
	return mounted
}

func (h *Handler) mutate(req *admission.Request, pod *corev1.Pod, wishes *inject.Wishes, ours map[string]contract.Mode,
	undecided []string) (*inject.Result, error) {
	switch {
	case len(ours) > 0:
		return inject.Pod(req.Object.Raw, pod, wishes, ours, h.Delivery)
	case len(undecided) > 0:
		return inject.NotInjected(req.Object.Raw, undecided[0])
	}
	return &inject.Result{}, nil
}

// report counts and logs what was done, and sends an event when a pod was left alone although it may need us. A pod has
// no UID at admission, so an event about it would be lost: it goes to the pod's controller. A pod without one has a
// user at the other end of the request, who sees the warning.
func (h *Handler) report(ctx context.Context, req *admission.Request, pod *corev1.Pod, result *inject.Result,
	undecided []string) {
	logger := klog.FromContext(ctx)
	switch {
	case result.Status.Injected && len(result.Operations) > 0:
		h.Metrics.pod(resultInjected, "")
		h.Metrics.mounts(&result.Status)
		logger.V(2).Info("Pod injected", "generate-name", pod.GenerateName, "containers", result.Status.Containers)
	case result.Status.Injected:
		h.Metrics.pod(resultUnchanged, "")
	case len(undecided) > 0:
		h.Metrics.pod(resultUndecided, "")
		logger.Info("Pod not injected", "generate-name", pod.GenerateName, "reason", undecided[0])
		if owner := metav1.GetControllerOf(pod); owner != nil && (req.DryRun == nil || !*req.DryRun) {
			regarding := &corev1.ObjectReference{
				APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: req.Namespace, Name: owner.Name, UID: owner.UID,
			}
			h.Recorder.Eventf(regarding, nil, corev1.EventTypeWarning, "SplitFSNotInjected", "Injecting",
				"A pod was created without SplitFS: %s", undecided[0])
		}
	default:
		h.Metrics.pod(resultForeign, "")
	}
}

// The API server cuts what is longer (256 characters are its recommendation) and drops what is too much.
const (
	maxWarnings      = 8
	maxWarningLength = 512
)

func bounded(warnings []string) []string {
	var list []string
	for i, w := range warnings {
		if i == maxWarnings {
			list = append(list, fmt.Sprintf("and %d more", len(warnings)-maxWarnings))
			break
		}
		if len(w) > maxWarningLength {
			w = w[:maxWarningLength] + "..."
		}
		list = append(list, "SplitFS: "+w)
	}
	return list
}
