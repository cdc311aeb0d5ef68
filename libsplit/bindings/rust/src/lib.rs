// SPDX-License-Identifier: Apache-2.0
//! Files of SplitFS volumes without copying: the calls of `splitfs.h`.
//!
//! A [`Peek`] is a snapshot of a part of a file, a [`Buffer`] of a [`Pool`] memory that becomes a part of a file. Both give back
//! what they have when they are dropped, and the borrow checker refuses to look at it afterwards:
//!
//! ```compile_fail,E0505
//! # fn example(file: std::fs::File) -> std::io::Result<()> {
//! let peek = splitfs::peek(&file, 0, usize::MAX)?;
//! let header = &peek[..16];
//! peek.unpeek()?;
//! println!("{header:?}");
//! # Ok(()) }
//! ```
//!
//! Errors are [`std::io::Error`]s with the `errno` of the C call.
#![cfg(unix)]

mod buffer;
mod peek;
mod ranges;
mod sys;

pub use buffer::{Buffer, Patch, PatchError, Patched, Pool};
pub use peek::{peek, peekv, Peek};
pub use ranges::{swap, write_atomic, Range};

/// A flag of [`set_flags`]: where a file can't be served without a copy it is copied, instead of `ENOTSUP`.
pub const COPY: u32 = 1;

/// Sets the flags of the process, and returns what they were.
pub fn set_flags(flags: u32) -> u32 {
    // SAFETY: it takes no pointers.
    unsafe { sys::splitfs_flags(flags) }
}
