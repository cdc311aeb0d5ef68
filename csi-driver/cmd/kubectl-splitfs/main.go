// SPDX-License-Identifier: Apache-2.0

// kubectl-splitfs is the plugin behind `kubectl splitfs`; see docs/kubectl-splitfs.md.
package main

import (
	"os"

	"splitfs.io/splitfs/csi-driver/internal/plugin"
)

func main() { os.Exit(plugin.Main()) }
