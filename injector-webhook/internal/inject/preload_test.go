// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"
	"testing"
)

// TestPreloadMerge looks at what the process will see after kubelet's expansion, not at how the variables are written.
func TestPreloadMerge(t *testing.T) {
	const ours = "/opt/splitfs/libsplit.so"
	tests := []struct {
		name string
		// env is the YAML of the container's env and envFrom.
		env        string
		configMaps map[string]map[string]string
		want       string
	}{
		{name: "nothing there", want: ours},
		{name: "a value", env: `env: [{name: LD_PRELOAD, value: /usr/lib/libjemalloc.so}]`,
			want: "/usr/lib/libjemalloc.so:" + ours},
		{name: "several elements, spaces", env: `env: [{name: LD_PRELOAD, value: "/a.so /b.so"}]`,
			want: "/a.so /b.so:" + ours},
		{name: "an empty value", env: `env: [{name: LD_PRELOAD, value: ""}]`, want: ours},
		{name: "only separators", env: `env: [{name: LD_PRELOAD, value: " : "}]`, want: ours},
		{name: "already there", env: `env: [{name: LD_PRELOAD, value: "/opt/splitfs/libsplit.so:/a.so"}]`,
			want: ours + ":/a.so"},
		{name: "a longer name is another library", env: `env: [{name: LD_PRELOAD, value: /opt/splitfs/libsplit.so.bak}]`,
			want: "/opt/splitfs/libsplit.so.bak:" + ours},
		{name: "a reference", env: `env: [{name: LIBS, value: /a.so}, {name: LD_PRELOAD, value: $(LIBS)}]`,
			want: "/a.so:" + ours},
		{name: "duplicates, the last wins",
			env: `env: [{name: LD_PRELOAD, value: /lost.so}, {name: LD_PRELOAD, value: /kept.so}]`, want: "/kept.so:" + ours},
		{name: "duplicates, ours in the lost one",
			env:  `env: [{name: LD_PRELOAD, value: ` + ours + `}, {name: LD_PRELOAD, value: /kept.so}]`,
			want: "/kept.so:" + ours},
		{name: "valueFrom field", env: `env: [{name: LD_PRELOAD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`,
			want: "field:metadata.name:" + ours},
		{
			name: "valueFrom key",
			env: `env: [{name: A, value: x}, {name: LD_PRELOAD, valueFrom: {configMapKeyRef: {name: cm, key: lib}}}, ` +
				`{name: B, value: z}]`,
			configMaps: map[string]map[string]string{"cm": {"lib": "/cm.so"}},
			want:       "/cm.so:" + ours,
		},
		{
			name:       "valueFrom optional key that exists",
			env:        `env: [{name: LD_PRELOAD, valueFrom: {secretKeyRef: {name: s, key: lib, optional: true}}}]`,
			configMaps: map[string]map[string]string{"s": {"lib": "/s.so"}},
			want:       "/s.so:" + ours,
		},
		{
			name: "valueFrom optional key that does not exist",
			env:  `env: [{name: LD_PRELOAD, valueFrom: {configMapKeyRef: {name: cm, key: lib, optional: true}}}]`,
			want: ":" + ours,
		},
		{
			name: "valueFrom optional and absent uncovers an earlier duplicate",
			env: `env: [{name: LD_PRELOAD, value: /first.so}, {name: LD_PRELOAD, valueFrom: {configMapKeyRef: {name: cm, ` +
				`key: lib, optional: true}}}]`,
			want: "/first.so:" + ours,
		},
		{
			name: "valueFrom optional and absent uncovers envFrom",
			env: "envFrom: [{configMapRef: {name: all}}]\n    env: [{name: LD_PRELOAD, valueFrom: {configMapKeyRef: " +
				"{name: cm, key: lib, optional: true}}}]",
			configMaps: map[string]map[string]string{"all": {"LD_PRELOAD": "/all.so"}},
			want:       "/all.so:" + ours,
		},
		{
			name:       "envFrom has it",
			env:        `envFrom: [{configMapRef: {name: all}}]`,
			configMaps: map[string]map[string]string{"all": {"LD_PRELOAD": "/all.so", "X": "y"}},
			want:       "/all.so:" + ours,
		},
		{
			name:       "envFrom does not have it",
			env:        `envFrom: [{configMapRef: {name: all}}]`,
			configMaps: map[string]map[string]string{"all": {"X": "y"}},
			want:       ":" + ours,
		},
		{
			name: "of several envFrom the last that has it wins",
			env:  `envFrom: [{configMapRef: {name: one}}, {secretRef: {name: two}}, {configMapRef: {name: three}}]`,
			configMaps: map[string]map[string]string{
				"one": {"LD_PRELOAD": "/1.so"}, "two": {"LD_PRELOAD": "/2.so"}, "three": {},
			},
			want: "/2.so:" + ours,
		},
		{
			name:       "envFrom with a prefix that makes the name",
			env:        `envFrom: [{prefix: LD_, secretRef: {name: s}}]`,
			configMaps: map[string]map[string]string{"s": {"PRELOAD": "/s.so"}},
			want:       "/s.so:" + ours,
		},
		{
			name:       "envFrom with another prefix cannot make the name",
			env:        `envFrom: [{prefix: APP_, configMapRef: {name: all}}]`,
			configMaps: map[string]map[string]string{"all": {"LD_PRELOAD": "/no.so"}},
			want:       ours,
		},
		{
			name:       "a value hides envFrom",
			env:        "envFrom: [{configMapRef: {name: all}}]\n    env: [{name: LD_PRELOAD, value: /mine.so}]",
			configMaps: map[string]map[string]string{"all": {"LD_PRELOAD": "/all.so"}},
			want:       "/mine.so:" + ours,
		},
		{
			name: "the name for the moved entry is taken",
			env: `env: [{name: SPLITFS_LD_PRELOAD, value: user}, {name: LD_PRELOAD, valueFrom: {fieldRef: {fieldPath: ` +
				`metadata.name}}}]`,
			want: "field:metadata.name:" + ours,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			raw := rawPod(t, `
metadata: {name: p}
spec:
  containers:
  - name: app
    image: i
    volumeMounts: [{name: data, mountPath: /data}]
    `+test.env+`
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`)
			before := kubeletEnv(t, &decodePod(t, raw).Spec.Containers[0], test.configMaps)
			_, pod, _ := mutated(t, raw)
			after := kubeletEnv(t, &pod.Spec.Containers[0], test.configMaps)
			if after["LD_PRELOAD"] != test.want {
				t.Errorf("LD_PRELOAD = %q, want %q; env: %+v", after["LD_PRELOAD"], test.want, pod.Spec.Containers[0].Env)
			}
			for name, value := range before {
				if name != "LD_PRELOAD" && after[name] != value {
					t.Errorf("variable %s changed from %q to %q", name, value, after[name])
				}
			}
			for name := range after {
				if _, had := before[name]; !had && name != "LD_PRELOAD" && name != "SPLITFS_CONFIG" &&
					!strings.HasPrefix(name, "SPLITFS_LD_PRELOAD") {
					t.Errorf("unexpected new variable %s", name)
				}
			}
			for i, v := range pod.Spec.Containers[0].Env {
				if v.Value != "" && v.ValueFrom != nil {
					t.Errorf("env[%d] has value and valueFrom, which the API server refuses", i)
				}
			}
		})
	}
}
