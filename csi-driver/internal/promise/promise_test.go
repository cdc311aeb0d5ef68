// SPDX-License-Identifier: Apache-2.0

package promise

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const given = `env: [{name: LD_PRELOAD, value: /opt/splitfs/libsplit.so}, {name: SPLITFS_CONFIG, value: ` +
	`"strict:/data:/opt/splitfs/agents"}]`

func decode(t *testing.T, metadata, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("metadata: {namespace: shop, name: web, uid: u, "+metadata+"}\nspec:\n"+spec),
		pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// oneContainer has the claim "data" at /data and the library's volume; more is what else the container has.
func oneContainer(mount, more string) string {
	if mount == "" {
		mount = "{name: data, mountPath: /data}"
	}
	return `
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: other, persistentVolumeClaim: {claimName: other}}
  - {name: splitfs-library, csi: {driver: csi.splitfs.io}}
  containers:
  - name: app
    volumeMounts: [` + mount + `, {name: splitfs-library, mountPath: /opt/splitfs, readOnly: true}]
    ` + more + "\n"
}

const withoutLibrary = `
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: other, persistentVolumeClaim: {claimName: other}}
  initContainers: [{name: setup, volumeMounts: [{name: other, mountPath: /data}]}]
  containers: [{name: app, volumeMounts: [{name: data, mountPath: /data}]}]
`

// TestCheck: who would silently get less than was promised is refused, and nobody else.
func TestCheck(t *testing.T) {
	strict := contract.Strict
	for _, c := range []struct {
		name           string
		metadata, spec string
		mode           contract.Mode
		namespace      map[string]string
		says           string
	}{
		{name: "injected", spec: oneContainer("", given), mode: strict},
		{name: "injected, in plain sight of another preload",
			spec: oneContainer("",
				strings.ReplaceAll(given, "value: /opt/splitfs/libsplit.so",
					"value: '$(SPLITFS_LD_PRELOAD):/opt/splitfs/libsplit.so'")), mode: strict},
		{name: "not injected", spec: withoutLibrary, mode: strict,
			says: "container app of pod shop/web is promised mode strict at /data and was not given the library"},
		{name: "not injected, sync", spec: withoutLibrary, mode: contract.Sync, says: "mode sync"},
		{name: "not injected, posix", spec: withoutLibrary, mode: contract.Posix},
		{name: "not injected, posix, but the pod asks for strict", metadata: "annotations: {splitfs.io/mode: strict}",
			spec: withoutLibrary, mode: contract.Posix, says: "mode strict"},
		{name: "not injected, strict, but the pod asks for posix", metadata: "annotations: {splitfs.io/mode: posix}",
			spec: withoutLibrary, mode: strict},
		{name: "a container asks for more than its pod",
			metadata: "annotations: {splitfs.io/mode: posix, splitfs.io/mode.app: sync}", spec: withoutLibrary, mode: strict,
			says: "mode sync"},
		{name: "an annotation that is no mode", metadata: "annotations: {splitfs.io/mode: fast}", spec: withoutLibrary,
			mode: strict, says: "mode strict"},
		{name: "the reason is repeated",
			metadata: `annotations: {splitfs.io/status: '{"injected":false,"reason":"claim shop/data does not exist"}'}`,
			spec:     withoutLibrary, mode: strict, says: "claim shop/data does not exist"},
		{name: "opted out by a label", metadata: `labels: {splitfs.io/inject: "false"}`, spec: withoutLibrary, mode: strict},
		{name: "opted out by an annotation", metadata: `annotations: {splitfs.io/inject: "false"}`, spec: withoutLibrary,
			mode: strict},
		{name: "the namespace opted out", spec: withoutLibrary, mode: strict,
			namespace: map[string]string{"splitfs.io/inject": "false"}},
		{name: "the namespace opted in", spec: withoutLibrary, mode: strict,
			namespace: map[string]string{"splitfs.io/inject": "true"}, says: "Delete the pod"},
		{name: "injected for another path", spec: oneContainer("{name: data, mountPath: /more}", given), mode: strict,
			says: "at /more"},
		{name: "injected for one of two paths",
			spec: oneContainer("{name: data, mountPath: /data/}, {name: data, mountPath: /more, subPath: x}", given),
			mode: strict, says: "at /more"},
		{name: "injected for a weaker mode", spec: oneContainer("", strings.ReplaceAll(given, "strict:", "sync:")),
			mode: strict, says: "mode strict"},
		{name: "injected for a stronger mode", spec: oneContainer("", given), mode: contract.Sync},
		{name: "a mode that nobody knows was given",
			spec: oneContainer("", strings.ReplaceAll(given, "strict:", "stricter:")), mode: contract.Sync, says: "mode sync"},
		{name: "LD_PRELOAD replaced",
			spec: oneContainer("", strings.ReplaceAll(given, "value: /opt/splitfs/libsplit.so", "value: /a.so")), mode: strict,
			says: "container app"},
		{name: "LD_PRELOAD of a file that is called alike",
			spec: oneContainer("", strings.ReplaceAll(given, "libsplit.so", "libsplit.so.old")), mode: strict,
			says: "container app"},
		{name: "no library mounted",
			spec: strings.ReplaceAll(oneContainer("", given), "mountPath: /opt/splitfs,", "mountPath: /elsewhere,"),
			mode: strict, says: "container app"},
		{name: "a path with a dollar sign",
			spec: oneContainer("{name: data, mountPath: '/data/$x'}", strings.ReplaceAll(given, "/data", "/data/$$x")),
			mode: strict},
		{name: "only reads",
			spec: strings.ReplaceAll(withoutLibrary, "mountPath: /data}]}]\n", "mountPath: /data, readOnly: true}]}]\n"),
			mode: strict},
		{name: "the claim is read-only",
			spec: strings.ReplaceAll(withoutLibrary, "claimName: data}", "claimName: data, readOnly: true}"), mode: strict},
		{name: "nobody mounts it",
			spec: strings.ReplaceAll(withoutLibrary, "{name: data, mountPath", "{name: other, mountPath"), mode: strict},
		{name: "an init container",
			spec: strings.ReplaceAll(oneContainer("", given), "  containers:",
				"  initContainers: [{name: setup, volumeMounts: [{name: data, mountPath: /data}]}]\n  containers:"), mode: strict,
			says: "container setup"},
		{name: "a generic ephemeral volume",
			spec: "\n  volumes: [{name: x, ephemeral: {}}]\n  containers: [{name: app, volumeMounts: [{name: x, " +
				"mountPath: /data}]}]\n", mode: strict, says: "container app"},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := "data"
			if strings.Contains(c.spec, "ephemeral") {
				claim = "web-x"
			}
			client := fake.NewClientset(decode(t, c.metadata, c.spec), boundTo(claim), &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: c.namespace},
			})
			_, err := NewChecker(client, nil).Check(t.Context(), use(c.mode))
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says != "" && (!errors.Is(err, volume.ErrPrecondition) || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "splitfs.io/inject")):
				t.Errorf("got %v, want a refusal that says %q", err, c.says)
			}
		})
	}
}

func use(mode contract.Mode) Use {
	return Use{VolumeID: "vol", Mode: mode, PV: "pv", Pod: volume.Pod{Namespace: "shop", Name: "web", UID: "u"}}
}

func boundTo(claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: claim}},
	}
}

// TestCheckExempt: in an exempt namespace nobody is even asked.
func TestCheckExempt(t *testing.T) {
	client := fake.NewClientset()
	if unserved, err := NewChecker(client, []string{"kube-system", "shop"}).Check(t.Context(),
		use(contract.Strict)); err != nil || unserved != contract.Allow || len(client.Actions()) != 0 {
		t.Errorf("%q, %v, after %d questions", unserved, err, len(client.Actions()))
	}
}

// TestCheckUnknown: what cannot be found out is not assumed. It can pass (Unavailable), or kubelet's call is out of
// date.
func TestCheckUnknown(t *testing.T) {
	pod := decode(t, "", withoutLibrary)
	away := func(resource string) *fake.Clientset {
		client := fake.NewClientset(pod, boundTo("data"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		client.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		return client
	}
	replaced := pod.DeepCopy()
	replaced.UID = "another"
	foreign := boundTo("data")
	foreign.Spec.ClaimRef.Namespace = "elsewhere"
	nameless := use(contract.Strict)
	nameless.Pod = volume.Pod{}
	for name, c := range map[string]struct {
		client *fake.Clientset
		use    Use
		want   error
	}{
		"pods cannot be read":            {away("pods"), use(contract.Strict), volume.ErrUnavailable},
		"volumes cannot be read":         {away("persistentvolumes"), use(contract.Strict), volume.ErrUnavailable},
		"namespaces cannot be read":      {away("namespaces"), use(contract.Strict), volume.ErrUnavailable},
		"the pod is gone":                {fake.NewClientset(), use(contract.Strict), volume.ErrUnavailable},
		"the pod is another":             {fake.NewClientset(replaced), use(contract.Strict), volume.ErrPrecondition},
		"the claim is somebody else's":   {fake.NewClientset(pod, foreign), use(contract.Strict), volume.ErrPrecondition},
		"kubelet does not say which pod": {fake.NewClientset(), nameless, volume.ErrPrecondition},
	} {
		if _, err := NewChecker(c.client, nil).Check(context.Background(), c.use); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nameless.Mode = contract.Posix
	if _, err := NewChecker(fake.NewClientset(), nil).Check(t.Context(), nameless); err != nil {
		t.Errorf("a pod without a name and a volume without a promise: %v", err)
	}
}

// TestUnserved: what the pod says of programs without the library goes before what the class says, and that before the
// mode. Who gave up the promise is not kept from anything.
func TestUnserved(t *testing.T) {
	readOnly := strings.ReplaceAll(oneContainer("", given), "mountPath: /data}", "mountPath: /data, readOnly: true}")
	for _, c := range []struct {
		name, metadata, spec string
		mode                 contract.Mode
		class, want          contract.Unserved
	}{
		{name: "strict", mode: contract.Strict, want: contract.Refuse},
		{name: "sync", mode: contract.Sync, want: contract.Allow},
		{name: "posix", mode: contract.Posix, want: contract.Allow},
		{name: "the pod asks for strict", metadata: "annotations: {splitfs.io/mode: strict}", mode: contract.Posix,
			want: contract.Refuse},
		{name: "a container asks for posix", metadata: "annotations: {splitfs.io/mode.app: posix}", mode: contract.Strict,
			want: contract.Allow},
		{name: "only reads", spec: readOnly, mode: contract.Strict, want: contract.Allow},
		{name: "the class allows", mode: contract.Strict, class: contract.Allow, want: contract.Allow},
		{name: "the class refuses", mode: contract.Posix, class: contract.Refuse, want: contract.Refuse},
		{name: "the pod before the class", metadata: "annotations: {splitfs.io/unserved: durable}", mode: contract.Strict,
			class: contract.Allow, want: contract.Durable},
		{name: "no policy", metadata: "annotations: {splitfs.io/unserved: perhaps}", mode: contract.Strict,
			want: contract.Refuse},
		{name: "opted out", metadata: `annotations: {splitfs.io/inject: "false"}`, mode: contract.Strict,
			class: contract.Refuse, want: contract.Allow},
	} {
		spec := c.spec
		if spec == "" {
			spec = oneContainer("", given)
		}
		client := fake.NewClientset(decode(t, c.metadata, spec), boundTo("data"), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		})
		asked := use(c.mode)
		asked.Unserved = c.class
		if got, err := NewChecker(client, nil).Check(t.Context(), asked); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// TestConfigurations: each container has a file, with what kubelet makes of its variables.
func TestConfigurations(t *testing.T) {
	spec := oneContainer("", strings.ReplaceAll(given, "/data", "/data/$$x"))
	client := fake.NewClientset(decode(t, "", spec))
	files, err := NewChecker(client, nil).Configurations(t.Context(), volume.Pod{Namespace: "shop", Name: "web", UID: "u"})
	if err != nil || len(files) != 1 || files["app"] != "SPLITFS_CONFIG=strict:/data/$x:/opt/splitfs/agents\n" {
		t.Errorf("%q, %v", files, err)
	}
	if _, err := NewChecker(client, nil).Configurations(t.Context(), volume.Pod{
		Namespace: "shop", Name: "web", UID: "other",
	}); !errors.Is(err, volume.ErrPrecondition) {
		t.Errorf("another pod of the name: %v", err)
	}
}
