// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/internal/contract"
)

// ownVolumes are the volumes of the test pods that are ours; "other" never is.
var ownVolumes = map[string]contract.Mode{"data": contract.Strict, "cache": contract.Posix}

func rawPod(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("test pod: %v", err)
	}
	return raw
}

func decodePod(t *testing.T, raw []byte) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, pod); err != nil {
		t.Fatalf("decode pod: %v", err)
	}
	return pod
}

// mutate runs the injector over a pod as the webhook does.
func mutate(t *testing.T, raw []byte) (*Result, error) {
	t.Helper()
	return mutateWith(t, raw, CSI)
}

func mutateWith(t *testing.T, raw []byte, delivery Delivery) (*Result, error) {
	t.Helper()
	pod := decodePod(t, raw)
	wishes, err := ReadWishes(pod)
	if err != nil {
		return nil, err
	}
	return Pod(raw, pod, wishes, ownVolumes, delivery)
}

// security asks Kubernetes' own Pod Security policies whether a namespace of a level would admit a pod.
func security(t *testing.T, level api.Level, pod *corev1.Pod) policy.AggregateCheckResult {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()},
		&pod.ObjectMeta, &pod.Spec))
}

// mutated returns the pod after the patch, as text and decoded. It checks that a second run has nothing to add, and
// that a namespace which would have admitted the pod still does.
func mutated(t *testing.T, raw []byte) ([]byte, *corev1.Pod, *Result) {
	t.Helper()
	return mutatedWith(t, raw, CSI)
}

func mutatedWith(t *testing.T, raw []byte, delivery Delivery) ([]byte, *corev1.Pod, *Result) {
	t.Helper()
	result, err := mutateWith(t, raw, delivery)
	if err != nil {
		t.Fatalf("mutate: %v", err)
	}
	after := apply(t, raw, result)
	again, err := mutateWith(t, after, delivery)
	if err != nil {
		t.Fatalf("second invocation: %v", err)
	}
	if len(again.Operations) != 0 {
		t.Errorf("second invocation changes the pod again: %v", again.Operations)
	}
	pod := decodePod(t, after)
	for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
		if verdict := security(t, level, pod); !verdict.Allowed && security(t, level, decodePod(t, raw)).Allowed {
			t.Errorf("the injected pod is not %s any more: %s", level, verdict.ForbiddenDetail())
		}
	}
	return after, pod, result
}

func apply(t *testing.T, raw []byte, result *Result) []byte {
	t.Helper()
	if len(result.Operations) == 0 {
		return raw
	}
	text, err := json.Marshal(result.Operations)
	if err != nil {
		t.Fatalf("marshal patch: %v", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatalf("decode patch: %v", err)
	}
	after, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("apply patch %s: %v", text, err)
	}
	return after
}

// kubeletEnv computes the variables kubelet would give a container, by its rules: envFrom first, then env in order,
// where a value is expanded with what is known so far, an unknown $(NAME) stays, $$ is a '$', and an absent optional
// source is skipped.
func kubeletEnv(t *testing.T, c *corev1.Container, configMaps map[string]map[string]string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		var name string
		switch {
		case from.ConfigMapRef != nil:
			name = from.ConfigMapRef.Name
		case from.SecretRef != nil:
			name = from.SecretRef.Name
		}
		for key, value := range configMaps[name] {
			env[from.Prefix+key] = value
		}
	}
	for _, v := range c.Env {
		value := v.Value
		switch {
		case value != "":
			value = kubeletExpand(value, env)
		case v.ValueFrom == nil:
		case v.ValueFrom.FieldRef != nil:
			value = "field:" + v.ValueFrom.FieldRef.FieldPath
		default:
			var name, key string
			var optional *bool
			if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
				name, key, optional = ref.Name, ref.Key, ref.Optional
			} else if ref := v.ValueFrom.SecretKeyRef; ref != nil {
				name, key, optional = ref.Name, ref.Key, ref.Optional
			} else {
				t.Fatalf("variable %s has a source the test does not know", v.Name)
			}
			found, ok := configMaps[name][key]
			if !ok {
				if optional == nil || !*optional {
					t.Fatalf("kubelet would not start the container: %s/%s is missing", name, key)
				}
				continue
			}
			value = found
		}
		env[v.Name] = value
	}
	return env
}

func kubeletExpand(value string, env map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '$' || i+1 == len(value) {
			b.WriteByte(value[i])
			continue
		}
		switch value[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(value[i:], ')')
			if end < 0 {
				b.WriteByte('$')
				continue
			}
			name := value[i+2 : i+end]
			if known, ok := env[name]; ok {
				b.WriteString(known)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}
