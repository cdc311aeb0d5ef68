// SPDX-License-Identifier: Apache-2.0

// Command splitfs-injector is the mutating webhook of SplitFS.
package main

import (
	"os"

	"splitfs.io/splitfs/injector-webhook/internal/app"
)

func main() { os.Exit(app.Main()) }
