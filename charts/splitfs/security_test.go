// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"splitfs.io/splitfs/charts/charttest"
)

// TestSecurityNamesTests: each test that docs/SECURITY.md names is there.
func TestSecurityNamesTests(t *testing.T) {
	root := charttest.Root(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, dir := range []string{"charts", "csi-driver", "injector-webhook"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(content, -1) {
				declared[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	if len(names) < 10 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !declared[string(name[1])] {
			t.Errorf("docs/SECURITY.md names %s, which is no test", name[1])
		}
	}
	for _, match := range regexp.MustCompile("`(test/[a-z_/]+)`").FindAllSubmatch(page, -1) {
		if found, err := filepath.Glob(filepath.Join(root, "libsplit", string(match[1])+"*")); err != nil || len(found) == 0 {
			t.Errorf("docs/SECURITY.md names libsplit/%s, which is not there", match[1])
		}
	}
	for _, match := range regexp.MustCompile("e2e `([a-z-]+)`").FindAllSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, "hack", "e2e", "tests", string(match[1]))); err != nil {
			t.Errorf("docs/SECURITY.md names the end-to-end test %s, which is not there", match[1])
		}
	}
}
