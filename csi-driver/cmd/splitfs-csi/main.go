// SPDX-License-Identifier: Apache-2.0

// splitfs-csi is the CSI driver csi.splitfs.io; see csi-driver/README.md.
package main

import (
	"os"

	"splitfs.io/splitfs/csi-driver/internal/app"
)

func main() { os.Exit(app.Main()) }
