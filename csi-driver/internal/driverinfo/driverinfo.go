// SPDX-License-Identifier: Apache-2.0

// Package driverinfo knows which version of the driver this is.
package driverinfo

// Version is set at link time (-ldflags "-X .../driverinfo.Version=...").
var Version = "dev"
