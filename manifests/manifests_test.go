// SPDX-License-Identifier: Apache-2.0

// Package manifests holds the tests of the plain manifests.
package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"splitfs.io/splitfs/charts/charttest"
)

func check(t *testing.T) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./check")
	cmd.Env = append(os.Environ(), "HELM="+charttest.Helm(t))
	return cmd.CombinedOutput()
}

func TestRenderedFileIsUpToDate(t *testing.T) {
	if output, err := check(t); err != nil {
		t.Errorf("manifests/check: %v\n%s", err, output)
	}
}

// TestCheckFindsDifference runs the check in a copy of the tree where one line of the rendered file is gone.
func TestCheckFindsDifference(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"charts", "hack"} {
		if err := os.Symlink(filepath.Join(charttest.Root(t), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"check", "render", "splitfs.yaml"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "splitfs.yaml" {
			content = []byte(strings.Replace(string(content), "attachRequired: false", "attachRequired: true", 1))
		}
		if err := os.WriteFile(filepath.Join(dir, "manifests", name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "manifests", "check"))
	cmd.Env = append(os.Environ(), "HELM="+charttest.Helm(t))
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "attachRequired") ||
		!strings.Contains(string(output), "manifests/render") {
		t.Errorf("error %v, output:\n%s", err, output)
	}
}

// TestExamples: each example is a claim of its mode's class and a pod that a restricted namespace admits.
func TestExamples(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"strict", "sync", "posix"} {
		text, err := os.ReadFile(filepath.Join("examples", mode+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		objects := charttest.Objects(t, text)
		if len(objects) != 2 || objects[0].GetKind() != "PersistentVolumeClaim" || objects[1].GetKind() != "Pod" {
			t.Errorf("%s: not a claim and a pod, in this order", mode)
			continue
		}
		var claim corev1.PersistentVolumeClaim
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[0].Object, &claim,
			true); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[1].Object, &pod,
			true); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "splitfs-"+mode ||
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != claim.Name {
			t.Errorf("%s: claim or volume is of another class or name", mode)
		}
		result := policy.AggregateCheckResults(
			evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta,
				&pod.Spec))
		if !result.Allowed {
			t.Errorf("%s: the pod is not restricted: %s", mode, result.ForbiddenDetail())
		}
	}
}

// TestSchemas: what is rendered here, and the examples, are objects by Kubernetes' own schemas.
func TestSchemas(t *testing.T) {
	schemas := charttest.LoadSchemas(t)
	for _, file := range []string{
		"splitfs.yaml", filepath.Join("examples", "strict.yaml"), filepath.Join("examples", "sync.yaml"),
		filepath.Join("examples", "posix.yaml"),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range charttest.Objects(t, text) {
			if err := schemas.Check(object); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestAPIServerAcceptsManifests applies the file in its order, as kubectl does, and tries the examples.
func TestAPIServerAcceptsManifests(t *testing.T) {
	env := charttest.StartAPIServer(t)
	c := charttest.NewClient(t, env.Config)
	text, err := os.ReadFile("splitfs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range charttest.Objects(t, text) {
		if object.GetKind() == "MutatingWebhookConfiguration" {
			// Nothing answers it here, and the examples below must get past it.
			continue
		}
		if err := charttest.Apply(t.Context(), c, object); err != nil {
			t.Error(err)
		}
	}
	charttest.CheckAccepted(t, c, charttest.Objects(t, text))
	for _, mode := range []string{"strict", "sync", "posix"} {
		text, err := os.ReadFile(filepath.Join("examples", mode+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		charttest.CheckAccepted(t, c, charttest.Objects(t, text))
	}
}
