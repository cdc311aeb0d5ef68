// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// script is a build program that counts its runs and makes a module, or fails. The real one runs in test/vm-module.
const script = `#!/bin/sh
echo "$@" >>"%[1]s/runs"
while [ $# -gt 0 ]; do case $1 in --out) out=$2 ;; --release) release=$2 ;; esac; shift; done
mkdir -p "$out"
if [ -f "%[1]s/fail" ]; then
	echo "build: no headers for $release" >&2
	echo "a compiler's output" >"$out/make.log"
	exit 1
fi
cp "%[1]s/good.ko" "$out/ext4_splitfs.ko"
[ ! -f "%[1]s/damage" ] || echo more >>"$out/ext4_splitfs.ko"
printf '{"module":"ext4_splitfs","release":"%%s","sha256":"%%s"}' "$release" \
	"$(sha256sum <"%[1]s/good.ko" | cut -d' ' -f1)" >"$out/ext4_splitfs.json"
`

type builder struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	config BuildConfig
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only modules that belong to root are trusted")
	}
	dir := t.TempDir()
	logger, _ := ktesting.NewTestContext(t)
	tree(t, dir, map[string]string{
		"patch/build": fmt.Sprintf(script, dir), "patch/6.1/0001.patch": "one",
		"good.ko": string(makeModule(machines["amd64"], goodEntries()...)),
	})
	must(os.Chmod(filepath.Join(dir, "patch/build"), 0o755))
	return &builder{t, klog.NewContext(context.Background(), logger), dir,
		BuildConfig{Script: filepath.Join(dir, "patch/build"), Release: testRelease, Out: filepath.Join(dir, "out")}}
}

func (b *builder) runs() []string {
	content, err := optional(filepath.Join(b.dir, "runs"))
	must(err)
	return strings.FieldsFunc(content, func(r rune) bool { return r == '\n' })
}

func (b *builder) build(wantBuilt bool, says string) {
	b.t.Helper()
	built, err := Build(b.ctx, b.config)
	if built != wantBuilt || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		b.t.Errorf("built %v, error %v; wanted %v, %q", built, err, wantBuilt, says)
	}
	left, globErr := filepath.Glob(filepath.Join(b.config.Out, ".*"))
	if globErr != nil || len(left) > 0 {
		b.t.Errorf("left behind: %v, %v", left, globErr)
	}
}

// TestBuild: a module is built once per kernel and source, is usable, and a failure stays known until a build succeeds.
func TestBuild(t *testing.T) {
	b := newBuilder(t)
	usable := func(want bool, says string) {
		t.Helper()
		c, err := find([]string{b.config.Out}, testRelease)
		if err == nil {
			must(c.close())
		} else {
			err = buildExplains(err, []string{b.config.Out}, testRelease)
		}
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("usable: %v, wanted %v, %q", err, want, says)
		}
	}
	must(os.WriteFile(filepath.Join(b.dir, "fail"), nil, 0o644))
	b.build(false, "no headers for "+testRelease)
	usable(false, "no headers for "+testRelease)
	if log, err := os.ReadFile(filepath.Join(b.config.Out, testRelease+".make.log")); err != nil ||
		string(log) != "a compiler's output\n" {
		t.Errorf("the compiler's output: %q, %v", log, err)
	}
	must(os.Remove(filepath.Join(b.dir, "fail")))
	must(os.WriteFile(filepath.Join(b.dir, "damage"), nil, 0o644))
	b.build(false, "its result is unusable")
	must(os.Remove(filepath.Join(b.dir, "damage")))
	b.build(true, "")
	usable(true, "")
	b.build(false, "")
	if n := len(b.runs()); n != 3 {
		t.Errorf("%d builds, wanted 3", n)
	}
	// Another patch, another key, a damaged result: each is built anew.
	must(os.WriteFile(filepath.Join(b.dir, "patch/6.1/0002.patch"), []byte("two"), 0o644))
	b.build(true, "")
	b.config.SignKey, b.config.SignCert = filepath.Join(b.dir, "key"), filepath.Join(b.dir, "cert")
	b.build(false, "no such file")
	tree(t, b.dir, map[string]string{"key": "k", "cert": "c"})
	b.build(true, "")
	if last := b.runs()[len(b.runs())-1]; !strings.Contains(last, "--sign-key "+b.config.SignKey+" --sign-cert "+
		b.config.SignCert) {
		t.Errorf("the script was called with %q", last)
	}
	b.build(false, "")
	appendTo(filepath.Join(b.config.Out, testRelease, FileName), "x")
	b.build(true, "")
	// What it is built from is not there: known afterwards as well.
	missing := b.config
	missing.Script, missing.Out = filepath.Join(b.dir, "none", "build"), filepath.Join(b.dir, "other")
	if _, err := Build(b.ctx, missing); err == nil {
		t.Error("built from nothing")
	}
	if r, err := readBuildRecord(missing.Out, testRelease); err != nil || !strings.Contains(r.Error, "no such file") {
		t.Errorf("noted %+v, %v", r, err)
	}
	// A build that fails leaves the module that is there alone.
	must(os.WriteFile(filepath.Join(b.dir, "fail"), nil, 0o644))
	must(os.WriteFile(filepath.Join(b.dir, "patch/6.1/0003.patch"), []byte("three"), 0o644))
	b.build(false, "no headers")
	usable(true, "")
}

func TestBuildRefuses(t *testing.T) {
	b := newBuilder(t)
	for _, release := range []string{"", "..", "a/b", ".hidden"} {
		b.config.Release = release
		b.build(false, "no kernel release")
	}
	b.config.Release, b.config.SignKey = testRelease, "/key"
	b.build(false, "both a key and its certificate")
	if n := len(b.runs()); n != 0 {
		t.Errorf("%d builds", n)
	}
}

// TestCopy: the module of the node's kernel comes out of an image whole, and only if it is good.
func TestCopy(t *testing.T) {
	b := newBuilder(t)
	image, node := filepath.Join(b.dir, "image"), filepath.Join(b.dir, "node")
	check := func(wantFound bool, says string) {
		t.Helper()
		found, err := Copy(image, node, testRelease)
		if found != wantFound || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("found %v, error %v; wanted %v, %q", found, err, wantFound, says)
		}
	}
	check(false, "")
	install(t, image, "6.1.0-98-amd64", []byte("of another kernel"))
	check(false, "")
	install(t, image, testRelease, []byte("no module"))
	check(false, "not a kernel module")
	_, err := find([]string{node}, testRelease)
	if err = buildExplains(err, []string{node}, testRelease); err == nil ||
		!strings.Contains(err.Error(), "not a kernel module") {
		t.Errorf("the node service would report %v", err)
	}
	for _, build := range []string{"first", "second"} {
		module := makeModule(machines["amd64"], append(goodEntries(), "description="+build)...)
		install(t, image, testRelease, module)
		for range 2 {
			check(true, "")
			if content, err := os.ReadFile(filepath.Join(node, testRelease, FileName)); err != nil ||
				string(content) != string(module) {
				t.Errorf("%s: the node has another module, %v", build, err)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(node, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLinkHeaders: what a container sees of the node appears where the node has it, and nothing that exists is
// replaced.
func TestLinkHeaders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: links into /usr/src")
	}
	host := t.TempDir()
	here := "/usr/src/linux-headers-splitfs-test-" + filepath.Base(filepath.Dir(host))
	tree(t, host, map[string]string{here + "/Makefile": "all:\n", "usr/src/unrelated/file": ""})
	t.Cleanup(func() {
		if err := os.Remove(here); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := linkHeaders(host+"/", "none"); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := os.ReadFile(here + "/Makefile"); err != nil || string(content) != "all:\n" {
		t.Errorf("read %q, %v", content, err)
	}
	if _, err := os.Lstat("/usr/src/unrelated"); err == nil {
		t.Error("more was linked than kernels")
	}
}
