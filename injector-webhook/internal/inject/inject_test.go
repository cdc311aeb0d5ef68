// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"

	"splitfs.io/splitfs/internal/contract"
)

func lastEnv(c *corev1.Container, name string) (string, bool) {
	value, found := "", false
	for _, v := range c.Env {
		if v.Name == name {
			value, found = v.Value, true
		}
	}
	return value, found
}

const severalContainers = `
metadata:
  name: p
  annotations: {splitfs.io/mode.sidecar: sync}
spec:
  initContainers:
  - {name: setup, image: i, volumeMounts: [{name: data, mountPath: /init}]}
  - {name: sidecar, image: i, restartPolicy: Always, volumeMounts: [{name: data, mountPath: /data, subPath: sub}]}
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: other, mountPath: /other}
    - {name: data, mountPath: /data/}
    - {name: cache, mountPath: cache}
  - {name: bystander, image: i, volumeMounts: [{name: other, mountPath: /other}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: c}}
  - {name: cache, persistentVolumeClaim: {claimName: d}}
  - {name: other, emptyDir: {}}
`

func TestInjectsExactlyTheContainersThatMountOurVolumes(t *testing.T) {
	_, pod, result := mutated(t, rawPod(t, severalContainers))
	want := map[string]string{
		"setup":   "strict:/init:/opt/splitfs/agents",
		"sidecar": "sync:/data:/opt/splitfs/agents",
		"app":     "strict:/data:/opt/splitfs/agents;posix:/cache:/opt/splitfs/agents",
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			config, injected := lastEnv(c, "SPLITFS_CONFIG")
			if config != want[c.Name] {
				t.Errorf("container %s: SPLITFS_CONFIG = %q, want %q", c.Name, config, want[c.Name])
			}
			mounts := 0
			for _, m := range c.VolumeMounts {
				if m.MountPath == "/opt/splitfs" && m.Name == "splitfs-library" && m.ReadOnly {
					mounts++
				}
			}
			if injected && mounts != 1 || !injected && mounts != 0 {
				t.Errorf("container %s: %d library mounts, injected: %v", c.Name, mounts, injected)
			}
		}
	}
	library := pod.Spec.Volumes[len(pod.Spec.Volumes)-1]
	if len(pod.Spec.Volumes) != 4 || library.CSI == nil || library.CSI.Driver != "csi.splitfs.io" ||
		library.CSI.ReadOnly == nil || !*library.CSI.ReadOnly ||
		!reflect.DeepEqual(library.CSI.VolumeAttributes, map[string]string{"splitfs.io/kind": "library"}) {
		t.Errorf("library volume is wrong: %+v", library)
	}
	var status Status
	if err := json.Unmarshal([]byte(pod.Annotations["splitfs.io/status"]), &status); err != nil {
		t.Fatalf("status annotation: %v", err)
	}
	wantStatus := Status{Injected: true, Containers: map[string]map[string]contract.Mode{
		"setup": {"/init": "strict"}, "sidecar": {"/data": "sync"}, "app": {"/data": "strict", "/cache": "posix"},
	}}
	if !reflect.DeepEqual(status, wantStatus) {
		t.Errorf("status = %+v, want %+v", status, wantStatus)
	}
	if len(result.Warnings) != 0 {
		t.Errorf("unexpected warnings %q", result.Warnings)
	}
}

// TestOtherShapesOfPods: resources of the whole pod, ephemeral containers and sidecars pass unharmed.
func TestOtherShapesOfPods(t *testing.T) {
	const text = `
metadata: {name: p}
spec:
  resources: {limits: {cpu: "2", memory: 1Gi}}
  initContainers:
  - {name: plain-sidecar, image: i, restartPolicy: Always}
  - name: sidecar
    image: i
    restartPolicy: Always
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]
    volumeMounts: [{name: cache, mountPath: /c}]
  containers: [{name: app, image: i, volumeMounts: [{name: data, mountPath: /d}]}]
  ephemeralContainers: [{name: debug, image: i, targetContainerName: app, volumeMounts: [{name: data, mountPath: /d}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}, {name: cache, persistentVolumeClaim: {claimName: d}}]
`
	before := rawPod(t, text)
	after, pod, result := mutated(t, before)
	if got := result.Status.Containers; len(got) != 2 || got["sidecar"]["/c"] != "posix" || got["app"]["/d"] != "strict" {
		t.Errorf("injected: %v", got)
	}
	for _, name := range []string{"resources", "ephemeralContainers"} {
		if was, is := member(t, before, name), member(t, after, name); !reflect.DeepEqual(was, is) {
			t.Errorf("%s changed from %v to %v", name, was, is)
		}
	}
	if pod.Spec.InitContainers[1].RestartPolicy == nil || len(pod.Spec.InitContainers[1].RestartPolicyRules) != 1 ||
		len(pod.Spec.InitContainers[0].Env) != 0 {
		t.Errorf("init containers are %+v", pod.Spec.InitContainers)
	}
}

func member(t *testing.T, raw []byte, name string) any {
	t.Helper()
	var pod struct{ Spec map[string]any }
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Spec[name]
}

// onePod has one container with one of our volumes; the arguments are the annotations and the mount (both YAML flow).
func onePod(annotations, mounts string) string {
	return `
metadata: {name: p, annotations: {` + annotations + `}}
spec:
  containers:
  - {name: app, image: i, volumeMounts: [` + mounts + `]}
  - {name: second, image: i}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: c}}
  - {name: other, emptyDir: {}}
`
}

func TestProtect(t *testing.T) {
	const ours, plain = `{name: data, mountPath: /data}`, `{name: other, mountPath: /other}`
	for _, test := range []struct{ annotations, env, mount, want, warning string }{
		{"", "", ours, "", ""},
		{`splitfs.io/protect: "on"`, "", ours, "on", ""},
		{`splitfs.io/protect: "off"`, "", ours, "", ""},
		{`splitfs.io/protect: "off", splitfs.io/protect.app: "on"`, "", ours, "on", ""},
		{`splitfs.io/protect: "on", splitfs.io/protect.app: "off"`, "", ours, "", ""},
		{`splitfs.io/protect.second: "on"`, "", ours, "", "splitfs.io/protect.second has no effect"},
		{`splitfs.io/protect: "on"`, "", plain, "", ""},
		{"", `{name: SPLITFS_PROTECT, value: "on"}`, ours, "on", ""},
		{`splitfs.io/protect: "off"`, `{name: SPLITFS_PROTECT, value: "on"}`, ours, "off", ""},
	} {
		pod := strings.Replace(onePod(test.annotations, test.mount), "{name: app,", "{name: app, env: ["+test.env+"],", 1)
		_, after, result := mutated(t, rawPod(t, pod))
		value, _ := lastEnv(&after.Spec.Containers[0], "SPLITFS_PROTECT")
		if value != test.want || (result.Status.Protect["app"] == contract.ProtectOn) != (test.want == "on") {
			t.Errorf("%s %s: SPLITFS_PROTECT is %q, status %+v", test.annotations, test.env, value, result.Status)
		}
		if got := strings.Join(
			result.Warnings,
			" ",
		); test.warning == "" && got != "" ||
			!strings.Contains(got, test.warning) {
			t.Errorf("%s: warnings %q", test.annotations, got)
		}
	}
	for _, annotation := range []string{`splitfs.io/protect: "true"`, `splitfs.io/protect.app: ""`} {
		if _, err := mutate(
			t,
			rawPod(t, onePod(annotation, ours)),
		); err == nil ||
			!strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", annotation, err)
		}
	}
}

func TestFsync(t *testing.T) {
	const ours, plain = `{name: data, mountPath: /data}`, `{name: other, mountPath: /other}`
	for _, test := range []struct{ annotations, env, mount, want, status, warning string }{
		{"", "", ours, "", "", ""},
		{"splitfs.io/fsync: visible", "", ours, "visible", "visible", ""},
		{"splitfs.io/fsync: record", "", ours, "", "", ""},
		{"splitfs.io/fsync: record, splitfs.io/fsync.app: visible", "", ours, "visible", "visible", ""},
		{"splitfs.io/fsync: visible, splitfs.io/fsync.app: record", "", ours, "", "", ""},
		{"splitfs.io/fsync.second: visible", "", ours, "", "", "splitfs.io/fsync.second has no effect"},
		{"splitfs.io/fsync: visible", "", plain, "", "", ""},
		// What the container has already counts, unless an annotation says otherwise.
		{"", "{name: SPLITFS_FSYNC, value: visible}", ours, "visible", "visible", ""},
		{"splitfs.io/fsync: record", "{name: SPLITFS_FSYNC, value: visible}", ours, "record", "", ""},
		{"splitfs.io/fsync: visible", "{name: SPLITFS_FSYNC, valueFrom: {fieldRef: {fieldPath: metadata.name}}}", ours,
			"visible", "visible", ""},
	} {
		pod := strings.Replace(onePod(test.annotations, test.mount), "{name: app,", "{name: app, env: ["+test.env+"],", 1)
		_, after, result := mutated(t, rawPod(t, pod))
		value, _ := lastEnv(&after.Spec.Containers[0], "SPLITFS_FSYNC")
		if value != test.want || string(result.Status.Fsync["app"]) != test.status || len(after.Spec.Containers[1].Env) != 0 {
			t.Errorf("%s %s: SPLITFS_FSYNC is %q, status %+v", test.annotations, test.env, value, result.Status)
		}
		if got := strings.Join(result.Warnings, " "); test.warning == "" && got != "" ||
			!strings.Contains(got, test.warning) {
			t.Errorf("%s: warnings %q", test.annotations, got)
		}
		stored := after.Annotations["splitfs.io/status"]
		if strings.Contains(stored, `"fsync":{"app":"visible"}`) != (test.status != "") {
			t.Errorf("%s: annotation %s", test.annotations, stored)
		}
	}
	for annotation, says := range map[string]string{
		"splitfs.io/fsync: never":           `annotation splitfs.io/fsync: "never" is not allowed; allowed are record`,
		"splitfs.io/fsync.nobody: visible":  "the pod has no container of that name",
		`splitfs.io/fsync.app: ""`:          "an empty value is not allowed",
		"splitfs.io/fsyncs: visible":        "",
		"splitfs.io/fsync.app.two: visible": "no container",
	} {
		result, err := mutate(t, rawPod(t, onePod(annotation, ours)))
		if says == "" {
			if err != nil || len(result.Status.Fsync) != 0 {
				t.Errorf("%s: %v %+v", annotation, err, result)
			}
		} else if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", annotation, err, says)
		}
	}
}

func TestModePrecedence(t *testing.T) {
	for annotations, want := range map[string]string{
		``:                          "strict",
		`splitfs.io/mode: posix`:    "posix",
		`splitfs.io/mode.app: sync`: "sync",
		`splitfs.io/mode: posix, splitfs.io/mode.app: sync`:    "sync",
		`splitfs.io/mode: posix, splitfs.io/mode.second: sync`: "posix",
		`splitfs.io/inject: "true"`:                            "strict",
	} {
		_, pod, _ := mutated(t, rawPod(t, onePod(annotations, `{name: data, mountPath: /data}`)))
		if config, _ := lastEnv(&pod.Spec.Containers[0], "SPLITFS_CONFIG"); config != want+":/data:/opt/splitfs/agents" {
			t.Errorf("annotations {%s}: SPLITFS_CONFIG = %q, want mode %s", annotations, config, want)
		}
	}
}

func TestDenied(t *testing.T) {
	secret := strings.Repeat("s3cret", 100)
	tests := []struct {
		name, annotations, mounts string
		reason                    string
		says                      []string
		saysNot                   string
	}{
		{name: "unknown mode", annotations: `splitfs.io/mode: fast`, reason: ReasonAnnotation,
			says: []string{"splitfs.io/mode", `"fast"`, "posix, sync, strict"}},
		{name: "empty mode", annotations: `splitfs.io/mode: ""`, reason: ReasonAnnotation,
			says: []string{"splitfs.io/mode", "empty", "posix, sync, strict"}},
		{name: "wrong case", annotations: `splitfs.io/mode: Strict`, reason: ReasonAnnotation,
			says: []string{`"Strict"`, "posix, sync, strict"}},
		{name: "long value is not repeated", annotations: `splitfs.io/mode: ` + secret, reason: ReasonAnnotation,
			says: []string{"600 bytes"}, saysNot: "s3cret"},
		{name: "unknown mode of a container", annotations: `splitfs.io/mode.app: "1"`, reason: ReasonAnnotation,
			says: []string{"splitfs.io/mode.app", `"1"`}},
		{name: "no such container", annotations: `splitfs.io/mode.web: sync`, reason: ReasonAnnotation,
			says: []string{"splitfs.io/mode.web", "no container", "app, second"}},
		{name: "unknown inject value", annotations: `splitfs.io/inject: "no"`, reason: ReasonAnnotation,
			says: []string{"splitfs.io/inject", `"no"`, `"true"`, `"false"`}},
		{name: "semicolon in path", mounts: `{name: data, mountPath: "/a;b"}`, reason: ReasonMountPath,
			says: []string{`"app"`, `"data"`, "';'"}},
		{name: "colon in path", mounts: `{name: data, mountPath: "/a:b"}`, reason: ReasonMountPath, says: []string{"':'"}},
		{name: "newline in path", mounts: `{name: data, mountPath: "/a\nb"}`, reason: ReasonMountPath,
			says: []string{"control characters"}},
		{name: "very long path", mounts: `{name: data, mountPath: /` + strings.Repeat("x", 5000) + `}`,
			reason: ReasonMountPath, says: []string{"5001 bytes"}, saysNot: "xxx"},
		{name: "another volume at our path",
			mounts: `{name: data, mountPath: /data}, {name: other, mountPath: /opt/splitfs/}`, reason: ReasonConflict,
			says: []string{`"other"`, "/opt/splitfs", "mountPath"}},
		{name: "our volume at our path", mounts: `{name: data, mountPath: /opt/splitfs}`, reason: ReasonConflict,
			says: []string{"/opt/splitfs"}},
		{name: "a mount below our path", mounts: `{name: data, mountPath: /data}, {name: other, mountPath: /opt/splitfs/x}`,
			reason: ReasonConflict, says: []string{"/opt/splitfs/x"}},
		{name: "read-only parent", mounts: `{name: data, mountPath: /data}, {name: other, mountPath: /opt, readOnly: true}`,
			reason: ReasonConflict, says: []string{"read-only", "/opt"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.mounts == "" {
				test.mounts = `{name: data, mountPath: /data}`
			}
			_, err := mutate(t, rawPod(t, onePod(test.annotations, test.mounts)))
			var denied *DeniedError
			if !errors.As(err, &denied) {
				t.Fatalf("got %v, want a denial", err)
			}
			if denied.Reason != test.reason {
				t.Errorf("reason = %s, want %s", denied.Reason, test.reason)
			}
			for _, words := range test.says {
				if !strings.Contains(denied.Message, words) {
					t.Errorf("message %q does not say %q", denied.Message, words)
				}
			}
			if test.saysNot != "" && strings.Contains(denied.Message, test.saysNot) {
				t.Errorf("message %q repeats the value", denied.Message)
			}
		})
	}
}

func TestMountNextToAndAboveOurPathIsFine(t *testing.T) {
	_, pod, _ := mutated(t,
		rawPod(t, onePod(``, `{name: data, mountPath: /opt}, {name: other, mountPath: /opt/splitfs2}`)))
	if mounts := pod.Spec.Containers[0].VolumeMounts; len(mounts) != 5 || mounts[2].MountPath != "/opt/splitfs" {
		t.Errorf("mounts = %+v", mounts)
	}
}

func TestVolumeNameCollision(t *testing.T) {
	raw := rawPod(t, `
metadata: {name: p}
spec:
  containers:
  - {name: app, image: i, volumeMounts: [{name: data, mountPath: /data}, {name: splitfs-library, mountPath: /mine}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: c}}
  - {name: splitfs-library, emptyDir: {}}
`)
	_, pod, _ := mutated(t, raw)
	if name := pod.Spec.Volumes[2].Name; name != "splitfs-library-1" {
		t.Errorf("added volume is named %s", name)
	}
	if mount := pod.Spec.Containers[0].VolumeMounts[2]; mount.Name != "splitfs-library-1" ||
		mount.MountPath != "/opt/splitfs" {
		t.Errorf("added mount is %+v", mount)
	}
	if pod.Spec.Volumes[1].EmptyDir == nil {
		t.Error("the user's volume was changed")
	}
}

// TestLaterInvocation: another webhook adds a container, a mount and a preload after us.
func TestLaterInvocation(t *testing.T) {
	after, _, _ := mutated(t, rawPod(t, onePod(``, `{name: data, mountPath: /data}`)))
	pod := decodePod(t, after)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: "late", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/late"}},
	})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{
		Name: "data", MountPath: "/more", SubPath: "more",
	})
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/late.so"})
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	_, pod, _ = mutated(t, raw)
	if len(pod.Spec.Volumes) != 3 {
		t.Errorf("library volume added twice: %+v", pod.Spec.Volumes)
	}
	if config, _ := lastEnv(&pod.Spec.Containers[0],
		"SPLITFS_CONFIG"); config != "strict:/data:/opt/splitfs/agents;strict:/more:/opt/splitfs/agents" {
		t.Errorf("SPLITFS_CONFIG = %q", config)
	}
	if preload, _ := lastEnv(&pod.Spec.Containers[0], "LD_PRELOAD"); preload != "/late.so:/opt/splitfs/libsplit.so" {
		t.Errorf("LD_PRELOAD = %q", preload)
	}
	if config, _ := lastEnv(&pod.Spec.Containers[2], "SPLITFS_CONFIG"); config != "strict:/late:/opt/splitfs/agents" {
		t.Errorf("late container: SPLITFS_CONFIG = %q", config)
	}
}

func TestUserSetConfigIsReplacedWithAWarning(t *testing.T) {
	raw := rawPod(t, `
metadata: {name: p}
spec:
  containers:
  - name: app
    image: i
    env: [{name: SPLITFS_CONFIG, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`)
	_, pod, result := mutated(t, raw)
	if config, _ := lastEnv(&pod.Spec.Containers[0], "SPLITFS_CONFIG"); config != "strict:/data:/opt/splitfs/agents" {
		t.Errorf("SPLITFS_CONFIG = %q", config)
	}
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "SPLITFS_CONFIG") {
		t.Errorf("warnings = %q", result.Warnings)
	}
}

// TestMountPathIsNotExpanded: kubelet expands $(NAME) in values of variables but not in mount paths.
func TestMountPathIsNotExpanded(t *testing.T) {
	for _, mountPath := range []string{"/data/$(HOME)", "/a$b", "/a$$(X)", "/end$"} {
		raw := rawPod(t, onePod(``, `{name: data, mountPath: "`+mountPath+`"}`))
		_, pod, _ := mutated(t, raw)
		env := kubeletEnv(t, &pod.Spec.Containers[0], nil)
		if want := "strict:" + mountPath + ":/opt/splitfs/agents"; env["SPLITFS_CONFIG"] != want {
			t.Errorf("the process sees %q, want %q", env["SPLITFS_CONFIG"], want)
		}
	}
}

// TestNewerFieldsSurvive: a pod field this program does not know, at every level, and an integer beyond a float's
// precision.
func TestNewerFieldsSurvive(t *testing.T) {
	raw := []byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","futureMeta":{"n":9007199254740993}},
		"spec":{"futureSpec":[1,{"x":null}],
		"containers":[{"name":"app","image":"i","futureContainer":true,
		"env":[{"name":"LD_PRELOAD","valueFrom":{"futureSource":{"a":"b"}}}],
		"volumeMounts":[{"name":"data","mountPath":"/data","futureMount":"m"}]}],
		"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"c","futureClaim":1}}]}}`)
	after, pod, result := mutated(t, raw)
	for _, op := range result.Operations {
		if op.Operation != "add" && (op.Operation != "replace" || op.Path != "/spec/containers/0/env/1/name") {
			t.Errorf("operation %s %s is more than needed", op.Operation, op.Path)
		}
	}
	for _, text := range []string{`"n":9007199254740993`, `"futureSpec":[1,{"x":null}]`, `"futureContainer":true`,
		`"futureMount":"m"`, `"futureClaim":1`, `{"name":"SPLITFS_LD_PRELOAD","valueFrom":{"futureSource":{"a":"b"}}}`} {
		if !strings.Contains(string(after), text) {
			t.Errorf("%s is lost in %s", text, after)
		}
	}
	if preload, _ := lastEnv(&pod.Spec.Containers[0],
		"LD_PRELOAD"); preload != "$(SPLITFS_LD_PRELOAD):/opt/splitfs/libsplit.so" {
		t.Errorf("LD_PRELOAD = %q", preload)
	}
}

func TestShapesThatDoNotFitAreErrors(t *testing.T) {
	pod := decodePod(t, rawPod(t, onePod(``, `{name: data, mountPath: /data}`)))
	wishes, err := ReadWishes(pod)
	if err != nil {
		t.Fatal(err)
	}
	// The text does not belong to the pod: each place an intent needs is missing or of another kind.
	for _, raw := range []string{``, `null`, `[]`, `{}`, `{"spec":{}}`, `{"spec":{"containers":[]}}`,
		`{"spec":{"containers":{}}}`, `{"spec":{"containers":[{"volumeMounts":[1],"env":"x"}],"volumes":[]}}`, `{} {}`} {
		if _, err := Pod([]byte(raw), pod, wishes, ownVolumes, CSI); err == nil {
			t.Errorf("text %s: no error", raw)
		}
	}
}

func TestWarningsForAnnotationsWithoutEffect(t *testing.T) {
	_, _, result := mutated(t, rawPod(t, onePod(`splitfs.io/mode.second: sync`, `{name: data, mountPath: /data}`)))
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "splitfs.io/mode.second") {
		t.Errorf("warnings = %q", result.Warnings)
	}
	wishes, err := ReadWishes(decodePod(t, rawPod(t, onePod(`splitfs.io/mod: sync`, ``))))
	if err != nil || len(wishes.Warnings) != 1 || !strings.Contains(wishes.Warnings[0], "splitfs.io/mod") {
		t.Errorf("wishes %+v, error %v; want one warning about splitfs.io/mod", wishes, err)
	}
}

// TestRestrictedPodStaysRestricted: Pod Security must not get in the way of an injected pod.
func TestRestrictedPodStaysRestricted(t *testing.T) {
	raw := rawPod(t, `
metadata: {name: p}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: app
    image: i
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`)
	// A refusal after the injection fails in mutated.
	if before := security(t, api.LevelRestricted, decodePod(t, raw)); !before.Allowed {
		t.Fatalf("the test pod itself is not restricted: %s", before.ForbiddenDetail())
	}
	for _, delivery := range []Delivery{CSI, Ephemeral} {
		mutatedWith(t, raw, delivery)
	}
	_, pod, _ := mutated(t, raw)
	// The check can fail: a hostPath in place of our inline volume is refused.
	pod.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/opt/splitfs"}}
	if security(t, api.LevelRestricted, pod).Allowed {
		t.Error("the policy accepts a hostPath: the test checks nothing")
	}
}
