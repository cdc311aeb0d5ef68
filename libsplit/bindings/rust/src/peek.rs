// SPDX-License-Identifier: Apache-2.0
use crate::sys;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::{io, slice};

/// A snapshot of a part of a file, which stays what it is whatever becomes of the file. It is given back when it is dropped.
///
/// It does not borrow the file, which may be closed. What may change a snapshot all the same is said in `splitfs_peek(3)`, "Limits".
#[derive(Debug)]
pub struct Peek {
    at: NonNull<c_void>,
    len: usize,
}

// SAFETY: nobody stores to it, and any thread may give it back.
unsafe impl Send for Peek {}
unsafe impl Sync for Peek {}

/// A snapshot of `len` bytes of the file from `off` on, or of as many as there are, as `pread(2)` counts.
pub fn peek(file: impl AsFd, off: u64, len: usize) -> io::Result<Peek> {
    let mut got = 0;
    // SAFETY: `got` is there to be stored to.
    let p = unsafe { sys::splitfs_peek(file.as_fd().as_raw_fd(), sys::offset(off)?, sys::length(len), &mut got) };
    let at = NonNull::new(p as *mut c_void).ok_or_else(io::Error::last_os_error)?;
    Ok(Peek { at, len: got })
}

/// The same as pieces, `max` at most, in their order; none at the end of the file.
pub fn peekv(file: impl AsFd, off: u64, len: usize, max: usize) -> io::Result<Vec<Peek>> {
    let max = c_int::try_from(max.min(1024)).expect("it is small");
    let mut got = 0;
    let mut iov: Vec<sys::Iovec> = Vec::with_capacity(max as usize);
    // SAFETY: there is room for `max` pieces, and so many are set as it returns.
    let n = unsafe {
        let off = sys::offset(off)?;
        let n = sys::splitfs_peekv(file.as_fd().as_raw_fd(), off, sys::length(len), iov.as_mut_ptr(), max, &mut got);
        sys::result(n)?;
        iov.set_len(n as usize);
        n as usize
    };
    let mut pieces = Vec::with_capacity(n);
    for piece in iov {
        let at = NonNull::new(piece.base as *mut c_void).expect("a piece has an address");
        pieces.push(Peek { at, len: piece.len });
    }
    Ok(pieces)
}

impl Peek {
    /// Gives it back, as a drop does, and says whether that was well.
    pub fn unpeek(self) -> io::Result<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is ours, and nobody has it after this.
        sys::result(unsafe { sys::splitfs_unpeek(this.at.as_ptr()) })
    }
}

impl Drop for Peek {
    fn drop(&mut self) {
        // SAFETY: as in unpeek().
        unsafe { sys::splitfs_unpeek(self.at.as_ptr()) };
    }
}

impl Deref for Peek {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are readable, and do not change, until it is given back.
        unsafe { slice::from_raw_parts(self.at.as_ptr() as *const u8, self.len) }
    }
}

impl AsRef<[u8]> for Peek {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
