// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package splitfs

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

var library = sync.OnceValues(load)

func load() (*functions, error) {
	handle, err := purego.Dlopen(libraryPath(), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
	}
	lib := &functions{}
	// The first definition in the process, which is libsplit.so's where it has one: not the C library's own.
	for name, to := range map[string]*uintptr{
		"__errno_location": &lib.errno,
		"open":             &lib.open,
		"close":            &lib.close,
		"pread":            &lib.pread,
		"pwrite":           &lib.pwrite,
		"lseek":            &lib.lseek,
		"fsync":            &lib.fsync,
		"ftruncate":        &lib.ftruncate,
	} {
		if *to, err = purego.Dlsym(purego.RTLD_DEFAULT, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
		}
	}
	for name, to := range map[string]*uintptr{
		"splitfs_flags":        &lib.flags,
		"splitfs_peek":         &lib.peek,
		"splitfs_peekv":        &lib.peekv,
		"splitfs_unpeek":       &lib.unpeek,
		"splitfs_pool_create":  &lib.poolCreate,
		"splitfs_pool_destroy": &lib.poolDestroy,
		"splitfs_alloc":        &lib.alloc,
		"splitfs_free":         &lib.free,
		"splitfs_patch":        &lib.patch,
		"splitfs_write_atomic": &lib.writeAtomic,
		"splitfs_swap":         &lib.swap,
	} {
		if *to, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLibrary, err)
		}
	}
	return lib, nil
}

// call returns what the function returns, and errno, which means something where that is an error: 0 or less.
//
//go:uintptrescapes
func (lib *functions) call(function uintptr, arguments ...uintptr) (uintptr, syscall.Errno) {
	// errno is the thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(function, arguments...)
	if int64(r) > 0 {
		return r, 0
	}
	return r, lib.lastErrno()
}

// callInt is the same of a function that returns an int, of which the upper half of the register says nothing.
//
//go:uintptrescapes
func (lib *functions) callInt(function uintptr, arguments ...uintptr) (int, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(function, arguments...)
	if int32(r) >= 0 {
		return int(int32(r)), 0
	}
	return -1, lib.lastErrno()
}

func (lib *functions) lastErrno() syscall.Errno {
	at, _, _ := purego.SyscallN(lib.errno)
	return syscall.Errno(*(*int32)(pointer(at)))
}

// pointer is that of memory which is not Go's.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
