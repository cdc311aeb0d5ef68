// SPDX-License-Identifier: Apache-2.0
use crate::sys;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A part of a file, and what is to be there.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// The file: `file.as_fd()`.
    pub file: BorrowedFd<'a>,
    /// Where it begins.
    pub off: u64,
    /// What is written.
    pub data: &'a [u8],
}

/// Writes all ranges in one step, or nothing; in strict mode alone.
pub fn write_atomic(ranges: &[Range<'_>]) -> io::Result<()> {
    let n = c_int::try_from(ranges.len()).unwrap_or(c_int::MAX);
    let mut array = Vec::with_capacity(ranges.len());
    for range in ranges {
        array.push(sys::Range {
            fd: range.file.as_raw_fd(),
            off: sys::offset(range.off)?,
            buf: range.data.as_ptr().cast(),
            len: range.data.len(),
        });
    }
    // SAFETY: `n` ranges are there, and their bytes.
    sys::result(unsafe { sys::splitfs_write_atomic(array.as_ptr(), n) })
}

/// Exchanges `len` bytes of two files of a volume in one step.
pub fn swap(file1: impl AsFd, off1: u64, file2: impl AsFd, off2: u64, len: usize) -> io::Result<()> {
    let (fd1, fd2) = (file1.as_fd().as_raw_fd(), file2.as_fd().as_raw_fd());
    // SAFETY: it takes no pointers.
    sys::result(unsafe { sys::splitfs_swap(fd1, sys::offset(off1)?, fd2, sys::offset(off2)?, len) })
}
