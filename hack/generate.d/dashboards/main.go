// SPDX-License-Identifier: Apache-2.0

// Writes the Grafana dashboards of the chart (charts/splitfs/files/dashboards) into a directory. hack/generate runs it.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "dashboards: %v\n", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for name, builder := range map[string]*boardBuilder{
		"cluster": clusterBoard(), "node": nodeBoard(), "volume": volumeBoard(), "pod": podBoard(),
	} {
		board, err := builder.Build()
		if err != nil {
			return fmt.Errorf("build dashboard %s: %w", name, err)
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		if err := encoder.Encode(board); err != nil {
			return fmt.Errorf("encode dashboard %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write dashboard %s: %w", name, err)
		}
	}
	return nil
}
