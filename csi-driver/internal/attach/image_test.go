// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// images maps containers to what their images set; err is what asking ends with.
type images struct {
	env   map[string][]string
	asked []string
	err   error
}

func (i *images) ImageEnv(_ context.Context, container string) ([]string, error) {
	i.asked = append(i.asked, container)
	return i.env[container], i.err
}

// TestImagePreload: a pod is told, once, what its image preloads and its processes do not have any more. A runtime that
// does not answer is asked again with the next look, and once in each.
func TestImagePreload(t *testing.T) {
	n, vol := newNode(t)
	program := n.compile(filepath.Join(n.dir, "program"), waits)
	other := n.compile(filepath.Join(n.dir, "other.so"), "int other;", "-shared", "-fPIC")
	id := func(c string) string { return strings.Repeat(c, 64) }
	lost, kept, without, foreign := id("a"), id("b"), id("c"), id("d")
	n.start(lost, []string{"LD_PRELOAD=" + n.library}, program)
	n.start(kept, []string{"LD_PRELOAD=" + other + ":" + n.library}, program)
	n.start(without, []string{"LD_PRELOAD=" + n.library}, program)
	n.start(foreign, nil, program) // its own trouble, told by its state
	n.start("no-id", []string{"LD_PRELOAD=" + n.library}, program)
	told := &recorder{}
	runtime := &images{err: errors.New("the runtime is away"), env: map[string][]string{
		lost: {"PATH=/bin", "LD_PRELOAD=" + other + " /two\n.so"}, kept: {"LD_PRELOAD=" + other}, without: {"PATH=/bin"},
		foreign: {"LD_PRELOAD=" + other},
	}}
	volumes := source{vol}
	v := New(Config{Source: &volumes, Events: told, Proc: "/proc", Library: n.library, Images: runtime,
		Owner: func(pid int) (string, string) {
			if container, ok := n.containers[pid]; ok {
				return "uid", container
			}
			return "", ""
		}})
	if _, err := v.Scan(t.Context()); err != nil || len(runtime.asked) != 0 {
		t.Errorf("the first scan: %v, asked for %q", err, runtime.asked)
	}
	for range 2 {
		if _, err := v.Scan(t.Context()); err == nil || !strings.Contains(err.Error(), "the runtime is away") {
			t.Errorf("a runtime that is away: %v", err)
		}
	}
	if len(runtime.asked) != 2 {
		t.Errorf("a runtime that is away was asked %d times in two looks", len(runtime.asked))
	}
	runtime.err, runtime.asked = nil, nil
	for range 3 {
		if _, err := v.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(runtime.asked) != 3 {
		t.Errorf("asked for %q, want each container that has the library once", runtime.asked)
	}
	var texts []string
	for _, text := range told.texts {
		if strings.Contains(text, "ImagePreloadReplaced") {
			texts = append(texts, text)
		}
	}
	if len(texts) != 1 || !strings.HasPrefix(texts[0], "true ImagePreloadReplaced web: the image of container "+lost) ||
		!strings.Contains(texts[0], "preloads "+other+":/two?.so by its own") {
		t.Errorf("told %q", texts)
	}
	volumes = nil
	if _, err := v.Scan(t.Context()); err != nil || len(v.compared) != 0 {
		t.Errorf("after the pod: %v, %v", err, v.compared)
	}
}
