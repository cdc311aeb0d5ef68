// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// manifestName is the file that kernel-patch/build writes beside the module.
const manifestName = Name + ".json"

const maxManifest = 64 << 10

// manifest says what was built. Only what is checked here is named; the build writes more, for people.
type manifest struct {
	Module  string `json:"module"`
	Release string `json:"release"`
	SHA256  string `json:"sha256"`
}

var hexSHA256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

func readManifest(dir string) (manifest, error) {
	path := filepath.Join(dir, manifestName)
	f, err := os.Open(path)
	if err != nil {
		return manifest{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return manifest{}, fmt.Errorf("read %s: %w", path, err)
	}
	m, err := parseManifest(content)
	if err != nil {
		return manifest{}, fmt.Errorf("manifest %s: %w", path, err)
	}
	return m, nil
}

func parseManifest(content []byte) (manifest, error) {
	var m manifest
	if len(content) > maxManifest {
		return m, fmt.Errorf("larger than %d bytes", maxManifest)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("not a manifest: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("not a manifest: something follows the JSON object")
	}
	if m.Module != Name {
		return m, fmt.Errorf("it is for module %q, not %s", m.Module, Name)
	}
	if m.Release == "" || !hexSHA256.MatchString(m.SHA256) {
		return m, errors.New("it names no kernel release or no SHA-256")
	}
	return m, nil
}
