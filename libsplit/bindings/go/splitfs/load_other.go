// SPDX-License-Identifier: Apache-2.0

//go:build !(linux && (amd64 || arm64))

package splitfs

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

func library() (*functions, error) {
	return nil, fmt.Errorf("%w: there is none for %s/%s", ErrLibrary, runtime.GOOS, runtime.GOARCH)
}

func (lib *functions) call(uintptr, ...uintptr) (uintptr, syscall.Errno) {
	return 0, 0
}

func (lib *functions) callInt(uintptr, ...uintptr) (int, syscall.Errno) {
	return 0, 0
}

func pointer(uintptr) unsafe.Pointer {
	return nil
}
