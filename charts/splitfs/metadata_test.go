// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/charts/charttest"
)

// TestArtifactHub: the annotations name the kinds and images that the chart brings.
func TestArtifactHub(t *testing.T) {
	text, err := os.ReadFile("Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		AppVersion  string
		Annotations map[string]string
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	var crds []struct{ Name, Kind, Version, DisplayName, Description string }
	var images []struct{ Name, Image string }
	for annotation, into := range map[string]any{"artifacthub.io/crds": &crds, "artifacthub.io/images": &images} {
		if err := yaml.UnmarshalStrict([]byte(chart.Annotations[annotation]), into); err != nil {
			t.Fatalf("%s: %v", annotation, err)
		}
	}
	objects := charttest.Render(t, "--api-versions=snapshot.storage.k8s.io/v1", "--set", "snapshots.enabled=true")
	var named, used []string
	for _, crd := range crds {
		named = append(named, crd.Name)
	}
	for _, object := range objectsOf(objects, "CustomResourceDefinition") {
		used = append(used, object.GetName())
	}
	if !sameNames(named, used) {
		t.Errorf("annotated are the kinds %v, the chart has %v", named, used)
	}
	named, used = nil, nil
	for _, image := range images {
		named = append(named, image.Image)
	}
	for _, workload := range []string{
		"splitfs-node", "splitfs-agents", "splitfs-provisioner", "splitfs-controller", "splitfs-snapshot-controller",
		"splitfs-injector",
	} {
		for _, c := range podOf(t, objects, workload).Spec.Containers {
			used = append(used, c.Image)
		}
	}
	if !sameNames(named, used) {
		t.Errorf("annotated are the images %v, the chart uses %v", named, used)
	}
}

func sameNames(one, other []string) bool {
	slices.Sort(one)
	slices.Sort(other)
	return len(one) > 0 && slices.Equal(slices.Compact(one), slices.Compact(other))
}

// TestVolumeTest: the pod of `helm test` is one that every namespace accepts, outside of the release's, with a claim of
// the strongest class.
func TestVolumeTest(t *testing.T) {
	const name = "splitfs-test-volume"
	for set, class := range map[string]string{
		"": "splitfs-strict", "storageClasses.strict.create=false": "splitfs-sync",
		"storageClasses.strict.create=false,storageClasses.sync.create=false": "splitfs-posix",
	} {
		pod := find[corev1.Pod](t, charttest.Render(t, "--set", set), "Pod", name)
		if claim := pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec; *claim.StorageClassName != class {
			t.Errorf("with %q the claim is of class %s", set, *claim.StorageClassName)
		}
		if pod.Namespace == charttest.Namespace || pod.Annotations["helm.sh/hook"] != "test" {
			t.Errorf("the injector does not see the pod, or Helm installs it: %+v", pod.ObjectMeta)
		}
		evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
		if err != nil {
			t.Fatal(err)
		}
		result := policy.AggregateCheckResults(
			evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta,
				&pod.Spec))
		if !result.Allowed {
			t.Errorf("a restricted namespace refuses it: %s", result.ForbiddenDetail())
		}
	}
	for _, object := range charttest.Render(t, variants["nothing optional"]...) {
		if object.GetName() == name {
			t.Error("there is no class, and a test of one")
		}
	}
}

// TestPackage: what is for the tests of the chart is not in its package, and what a reader of a chart repository wants
// is.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	helm := exec.CommandContext(t.Context(), charttest.Helm(t), "package", ".", "--destination", dir, "--version", "1.2.3")
	if output, err := helm.CombinedOutput(); err != nil {
		t.Fatalf("helm package: %v\n%s", err, output)
	}
	list, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(dir, "splitfs-1.2.3.tgz")).Output()
	if err != nil {
		t.Fatalf("list the package: %v", err)
	}
	files := strings.Fields(string(list))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/") {
			t.Errorf("the package has %s", file)
		}
	}
	for _, wanted := range []string{
		"README.md", "values.schema.json", "files/alerts.yaml", "files/dashboards/pod.json", "templates/tests/volume.yaml",
	} {
		if !slices.Contains(files, "splitfs/"+wanted) {
			t.Errorf("the package has no %s: %v", wanted, files)
		}
	}
}
