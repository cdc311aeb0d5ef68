// SPDX-License-Identifier: Apache-2.0
//! What `splitfs.h` declares, and what all calls have in common.
use std::ffi::{c_int, c_uint, c_void};
use std::io;

#[repr(C)]
pub struct Iovec {
    pub base: *const c_void,
    pub len: usize,
}

#[repr(C)]
pub struct Range {
    pub fd: c_int,
    pub off: i64,
    pub buf: *const c_void,
    pub len: usize,
}

#[link(name = "splitfs")]
extern "C" {
    pub fn splitfs_flags(flags: c_uint) -> c_uint;
    pub fn splitfs_peek(fd: c_int, off: i64, len: usize, got: *mut usize) -> *const c_void;
    pub fn splitfs_peekv(fd: c_int, off: i64, len: usize, iov: *mut Iovec, max: c_int, got: *mut usize) -> c_int;
    pub fn splitfs_unpeek(p: *const c_void) -> c_int;
    pub fn splitfs_pool_create(dirfd: c_int, size: usize) -> c_int;
    pub fn splitfs_pool_destroy(pool: c_int) -> c_int;
    pub fn splitfs_alloc(pool: c_int, off: i64, len: usize) -> *mut c_void;
    pub fn splitfs_free(buf: *mut c_void) -> c_int;
    pub fn splitfs_patch(fd: c_int, buf: *mut c_void, len: usize, off: i64) -> isize;
    pub fn splitfs_write_atomic(ranges: *const Range, n: c_int) -> c_int;
    pub fn splitfs_swap(fd1: c_int, off1: i64, fd2: c_int, off2: i64, len: usize) -> c_int;
}

/// An offset of a file as C has it.
pub fn offset(off: u64) -> io::Result<i64> {
    i64::try_from(off).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the offset has more than 63 bits"))
}

/// A length as C has it: more than a file can have is up to its end.
pub fn length(len: usize) -> usize {
    len.min(isize::MAX as usize)
}

/// The error of a call that returns 0 or -1.
pub fn result(r: c_int) -> io::Result<()> {
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
