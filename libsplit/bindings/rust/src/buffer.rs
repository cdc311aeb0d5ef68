// SPDX-License-Identifier: Apache-2.0
use crate::sys;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::{error, fmt, io, slice};

/// A pool of buffers that become parts of files without being copied. It ends when it is dropped; its buffers borrow it.
///
/// A child of `fork` has none of its parent's pools and buffers: a look at one is a fault there.
#[derive(Debug)]
pub struct Pool {
    number: c_int,
}

impl Pool {
    /// A pool of `size` bytes at most, of the volume that a directory or file is on.
    pub fn new(directory: impl AsFd, size: usize) -> io::Result<Pool> {
        // SAFETY: it takes no pointers.
        let number = unsafe { sys::splitfs_pool_create(directory.as_fd().as_raw_fd(), size) };
        sys::result(number)?;
        Ok(Pool { number })
    }

    /// A buffer of `len` bytes, which may be patched at offsets that are `off` modulo 4096. What it holds at first is anything.
    pub fn alloc(&self, off: u64, len: usize) -> io::Result<Buffer<'_>> {
        // SAFETY: it takes no pointers.
        let p = unsafe { sys::splitfs_alloc(self.number, sys::offset(off)?, len) };
        let at = NonNull::new(p).ok_or_else(io::Error::last_os_error)?;
        Ok(Buffer(Memory { at, len, pool: PhantomData }))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it has no buffers, for they borrow it. (One that was forgotten keeps it.)
        unsafe { sys::splitfs_pool_destroy(self.number) };
    }
}

#[derive(Debug)]
struct Memory<'pool> {
    at: NonNull<c_void>,
    len: usize,
    pool: PhantomData<&'pool Pool>,
}

impl Memory<'_> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are there until it is freed.
        unsafe { slice::from_raw_parts(self.at.as_ptr() as *const u8, self.len) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has it after this.
        unsafe { sys::splitfs_free(self.at.as_ptr()) };
    }
}

// SAFETY: it is memory as any other, and any thread may patch or free it.
unsafe impl Send for Memory<'_> {}
unsafe impl Sync for Memory<'_> {}

/// Memory that may be stored to, and that [`Buffer::patch`] makes a part of a file. It is freed when it is dropped.
#[derive(Debug)]
pub struct Buffer<'pool>(Memory<'pool>);

/// A buffer that is a part of a file: it can be read, and stays what it is. It is freed when it is dropped.
#[derive(Debug)]
pub struct Patched<'pool>(Memory<'pool>);

/// What a patch has done.
#[derive(Debug)]
pub struct Patch<'pool> {
    /// How many bytes are the file's; less than asked for where `pwrite(2)` would write less.
    pub written: usize,
    /// The buffer.
    pub buffer: Patched<'pool>,
}

/// Why a patch was refused, and the buffer, as it was.
#[derive(Debug)]
pub struct PatchError<'pool> {
    /// What is wrong.
    pub error: io::Error,
    /// It may be stored to and patched again.
    pub buffer: Buffer<'pool>,
}

impl<'pool> Buffer<'pool> {
    /// The first `len` bytes become the file's from `off` on.
    pub fn patch(self, file: impl AsFd, off: u64, len: usize) -> Result<Patch<'pool>, PatchError<'pool>> {
        let patched = match sys::offset(off) {
            // SAFETY: the buffer is ours, and nobody has a reference into it.
            Ok(off) => unsafe { sys::splitfs_patch(file.as_fd().as_raw_fd(), self.0.at.as_ptr(), len, off) },
            Err(error) => return Err(PatchError { error, buffer: self }),
        };
        match patched {
            1.. => Ok(Patch { written: patched as usize, buffer: Patched(self.0) }),
            0 => Err(PatchError { error: io::ErrorKind::WriteZero.into(), buffer: self }),
            _ => Err(PatchError { error: io::Error::last_os_error(), buffer: self }),
        }
    }

    /// Frees it, as a drop does, and says whether that was well.
    pub fn free(self) -> io::Result<()> {
        free(self.0)
    }
}

impl Patched<'_> {
    /// Frees it, as a drop does, and says whether that was well.
    pub fn free(self) -> io::Result<()> {
        free(self.0)
    }
}

fn free(memory: Memory<'_>) -> io::Result<()> {
    let memory = ManuallyDrop::new(memory);
    // SAFETY: as in Memory::drop().
    sys::result(unsafe { sys::splitfs_free(memory.at.as_ptr()) })
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in Memory::bytes(), and it can be stored to until it is patched.
        unsafe { slice::from_raw_parts_mut(self.0.at.as_ptr() as *mut u8, self.0.len) }
    }
}

impl Deref for Patched<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Display for PatchError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl error::Error for PatchError<'_> {}

impl From<PatchError<'_>> for io::Error {
    fn from(e: PatchError<'_>) -> io::Error {
        e.error
    }
}
