// SPDX-License-Identifier: Apache-2.0
//! All calls in the working directory: TEST_MODE is plain (what is not served is copied, or refused) or the mode of the volume.
//! libsplit/test/bindings/test_rust runs them, one after another: while a child of a fork has the same files there are no snapshots of them.
use splitfs::{peek, peekv, swap, write_atomic, Pool, Range};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::{env, process::Command, sync::Arc, thread};

const BLOCK: usize = 4096;
const EBADF: i32 = 9;
const EBUSY: i32 = 16;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOTSUP: i32 = 95;
const SIGSEGV: i32 = 11;

extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn splitfs_unpeek(p: *const u8) -> i32;
    fn splitfs_patch(fd: i32, buf: *mut u8, len: usize, off: i64) -> isize;
    fn splitfs_pool_destroy(pool: i32) -> i32;
}

fn mode() -> Option<String> {
    let mode = env::var("TEST_MODE").ok();
    if mode.is_none() {
        eprintln!("skipped: libsplit/test/bindings/test_rust runs this on a volume");
    }
    splitfs::set_flags(if mode.as_deref() == Some("plain") { splitfs::COPY } else { 0 });
    mode
}

fn pattern(seed: usize, n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + seed * 7 + (i >> 8)) as u8).collect()
}

fn new_file(name: &str, content: &[u8]) -> File {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(name).unwrap();
    file.write_all_at(content, 0).unwrap();
    file
}

fn content_of(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[track_caller]
fn fails<T>(errno: i32, result: Result<T, impl Into<io::Error>>) {
    let error: io::Error = result.err().expect("no error").into();
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
}

/// How a child ends that calls this: its exit status, or minus the signal.
fn status_of(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls no function of other threads' state but what is tested, and ends by _exit().
    unsafe {
        let pid = fork();
        assert!(pid >= 0);
        if pid == 0 {
            child();
            _exit(0);
        }
        let mut status = 0;
        assert_eq!(waitpid(pid, &mut status, 0), pid);
        if status & 127 != 0 {
            -(status & 127)
        } else {
            status >> 8
        }
    }
}

/// In a child: no panic, which would run the tests' harness.
fn child_wants(what: bool, status: i32) {
    if !what {
        // SAFETY: it ends the child.
        unsafe { _exit(status) }
    }
}

#[test]
fn snapshots() {
    if mode().is_none() {
        return;
    }
    let was = pattern(1, 123457);
    let file = new_file("snapshots", &was);
    assert_eq!(*peek(&file, 0, usize::MAX).unwrap(), *was);
    assert_eq!(*peek(&file, 5, 10).unwrap(), was[5..15]);
    assert!(peek(&file, was.len() as u64, 1).unwrap().is_empty());
    let pieces = peekv(&file, 3, 50000, 16).unwrap();
    assert_eq!(pieces.iter().flat_map(|p| p.iter().copied()).collect::<Vec<u8>>(), was[3..50003]);
    assert!(peekv(&file, was.len() as u64, 1, 1).unwrap().is_empty());
}

#[test]
fn a_snapshot_outlives_the_file() {
    if mode().is_none() {
        return;
    }
    let was = pattern(1, 123457);
    let file = new_file("outlives", &was);
    let snapshot = Arc::new(peek(&file, 1000, 8000).unwrap());
    file.write_all_at(&pattern(2, was.len()), 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(0).unwrap();
    fs::remove_file("outlives").unwrap();
    drop(file);
    assert_eq!(**snapshot, was[1000..9000]);
    // Another thread looks at it and gives it back.
    thread::spawn({
        let snapshot = snapshot.clone();
        move || assert_eq!(snapshot[0], pattern(1, 1001)[1000])
    })
    .join()
    .unwrap();
    let snapshot = Arc::into_inner(snapshot).unwrap();
    thread::spawn(move || snapshot.unpeek().unwrap()).join().unwrap();
}

#[test]
fn snapshots_that_are_refused() {
    if mode().is_none() {
        return;
    }
    let file = new_file("refused", &pattern(1, 100));
    let out = OpenOptions::new().write(true).open("refused").unwrap();
    fails(EBADF, peek(&out, 0, 1));
    fails(EBADF, peekv(&out, 0, 1, 1));
    fails(EINVAL, peekv(&file, 0, 1, 0));
    assert_eq!(peek(&file, 1 << 63, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let me = File::open("/proc/self/exe").unwrap();
    let flags = splitfs::set_flags(0);
    fails(ENOTSUP, peek(&me, 0, 4));
    assert_eq!(splitfs::set_flags(splitfs::COPY), 0);
    assert_eq!(*peek(&me, 0, 4).unwrap(), *b"\x7fELF");
    splitfs::set_flags(flags);
}

/// What safe code can't say: foreign pointers, a snapshot that is given back twice or patched.
#[test]
fn pointers_that_are_wrong() {
    use std::os::fd::AsRawFd;
    if mode().is_none() {
        return;
    }
    let file = new_file("pointers", &pattern(1, 2 * BLOCK));
    let snapshot = peek(&file, 0, BLOCK).unwrap();
    let p = snapshot.as_ptr();
    let foreign = vec![0u8; BLOCK];
    // SAFETY: what is given back is not looked at any more, and forgotten.
    unsafe {
        for wrong in [foreign.as_ptr(), p.add(1), std::ptr::null()] {
            assert_eq!(splitfs_unpeek(wrong), -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(EINVAL));
        }
        assert_eq!(splitfs_patch(file.as_raw_fd(), p as *mut u8, BLOCK, 0), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(EINVAL));
        assert_eq!(*snapshot, pattern(1, BLOCK));
        std::mem::forget(snapshot);
        assert_eq!(splitfs_unpeek(p), 0);
        assert_eq!(splitfs_unpeek(p), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(EINVAL));
    }
    assert_eq!(content_of(&file), pattern(1, 2 * BLOCK));
}

#[test]
fn children() {
    if mode().is_none() {
        return;
    }
    let was = pattern(5, 3 * BLOCK);
    let file = new_file("children", &was);
    let pool = Pool::new(File::open(".").unwrap(), BLOCK).unwrap();
    let snapshot = peek(&file, 0, usize::MAX).unwrap();
    let mut given = Some(snapshot);
    let status = status_of(|| {
        child_wants(file.write_all_at(&pattern(6, 3 * BLOCK), 0).is_ok(), 2);
        let snapshot = given.take().unwrap();
        child_wants(*snapshot == *was, 3);
        child_wants(snapshot.unpeek().is_ok(), 4);
        child_wants(pool.alloc(0, 1).unwrap_err().raw_os_error() == Some(EINVAL), 5);
    });
    assert_eq!(status, 0);
    let snapshot = given.take().unwrap();
    assert_eq!(*snapshot, *was);
    assert_eq!(content_of(&file), pattern(6, 3 * BLOCK));
    // SAFETY: it is a fault, and the child's end.
    assert_eq!(status_of(|| unsafe { (snapshot.as_ptr() as *mut u8).write_volatile(1) }), -SIGSEGV);
    assert_eq!(*snapshot, *was);
}

#[test]
fn patches() {
    let Some(mode) = mode() else { return };
    let file = new_file("patches", &pattern(1, 4 * BLOCK));
    let pool = Pool::new(File::open(".").unwrap(), 4 * BLOCK).unwrap();
    fails(ENOSPC, pool.alloc(1, 4 * BLOCK));
    fails(EINVAL, pool.alloc(0, 0));
    let mut buffer = pool.alloc(BLOCK as u64, 2 * BLOCK).unwrap();
    buffer.copy_from_slice(&pattern(2, 2 * BLOCK));
    let source = File::open("patches").unwrap();
    let log = OpenOptions::new().append(true).open("patches").unwrap();
    let foreign =
        OpenOptions::new().read(true).write(true).custom_flags(0x410000 /* O_TMPFILE */).open("/dev/shm").unwrap();
    let mut wrong = vec![
        (&source, 0, BLOCK, EBADF),
        (&log, 0, BLOCK, EINVAL),
        (&file, 1, BLOCK, EINVAL),
        (&file, 0, 2 * BLOCK + 1, EINVAL),
    ];
    if mode != "plain" {
        wrong.push((&foreign, 0, BLOCK, EXDEV));
    }
    for (file, off, len, errno) in wrong {
        let refused = buffer.patch(file, off, len).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(errno), "{}", refused.error);
        buffer = refused.buffer;
        buffer[0] = pattern(2, 1)[0];
    }
    let buffer = buffer.patch(&file, 1 << 63, 1).unwrap_err().buffer;
    assert_eq!(content_of(&file), pattern(1, 4 * BLOCK));

    let patch = buffer.patch(&file, BLOCK as u64, 2 * BLOCK).unwrap();
    assert_eq!(patch.written, 2 * BLOCK);
    let mut want = pattern(1, 4 * BLOCK);
    want[BLOCK..3 * BLOCK].copy_from_slice(&pattern(2, 2 * BLOCK));
    assert_eq!(content_of(&file), want);
    file.write_all_at(&pattern(3, BLOCK), BLOCK as u64).unwrap();
    assert_eq!(*patch.buffer, pattern(2, 2 * BLOCK));
    patch.buffer.free().unwrap();
    pool.alloc(0, 4 * BLOCK).unwrap().free().unwrap();
}

#[test]
fn pools() {
    if mode().is_none() {
        return;
    }
    let here = File::open(".").unwrap();
    fails(EINVAL, Pool::new(&here, 0));
    fails(EINVAL, Pool::new(&here, usize::MAX));
    // SAFETY: no descriptor is used; there is none of this number.
    fails(EBADF, Pool::new(unsafe { BorrowedFd::borrow_raw(999) }, 1));
    let flags = splitfs::set_flags(0);
    fails(ENOTSUP, Pool::new(File::open("/proc/self").unwrap(), 1));
    splitfs::set_flags(flags);
    // Each ends with its drop: there may be 64 of them.
    for _ in 0..200 {
        let pool = Pool::new(&here, BLOCK).unwrap();
        pool.alloc(0, BLOCK).unwrap();
        pool.alloc(0, BLOCK).unwrap();
    }
    // SAFETY: it takes no pointers.
    assert_eq!(unsafe { splitfs_pool_destroy(-1) }, -1);
    assert_ne!(EBUSY, io::Error::last_os_error().raw_os_error().unwrap());
}

#[test]
fn atomic_writes() {
    let Some(mode) = mode() else { return };
    let (one, two) = (new_file("one", &pattern(1, 3 * BLOCK)), new_file("two", &pattern(2, 3 * BLOCK)));
    let result = write_atomic(&[
        Range { file: one.as_fd(), off: 5, data: b"first" },
        Range { file: two.as_fd(), off: BLOCK as u64, data: b"second" },
        Range { file: one.as_fd(), off: 2 * BLOCK as u64, data: b"third" },
    ]);
    if mode == "strict" {
        result.unwrap();
        assert_eq!(content_of(&one)[5..10], *b"first");
        assert_eq!(content_of(&one)[2 * BLOCK..][..5], *b"third");
        assert_eq!(content_of(&two)[BLOCK..][..6], *b"second");
    } else {
        fails(ENOTSUP, result);
        assert_eq!(content_of(&one), pattern(1, 3 * BLOCK));
    }
    fails(EINVAL, write_atomic(&[]));
}

#[test]
fn swaps() {
    let Some(mode) = mode() else { return };
    let (left, right) = (new_file("left", &pattern(1, 3 * BLOCK)), new_file("right", &pattern(2, 3 * BLOCK)));
    let result = swap(&left, 0, &right, BLOCK as u64, 2 * BLOCK);
    if mode == "plain" {
        return fails(ENOTSUP, result);
    }
    result.unwrap();
    assert_eq!(content_of(&left), [&pattern(2, 3 * BLOCK)[BLOCK..], &pattern(1, 3 * BLOCK)[2 * BLOCK..]].concat());
    assert_eq!(content_of(&right), [pattern(2, BLOCK), pattern(1, 2 * BLOCK)].concat());
    fails(EINVAL, swap(&left, 0, &left, BLOCK as u64, BLOCK));
    fails(EINVAL, swap(&left, 0, &right, 3 * BLOCK as u64, BLOCK));
}

#[test]
fn example() {
    if mode().is_none() {
        return;
    }
    let Ok(decode) = env::var("TEST_DECODE") else { return };
    new_file("coded", b"SGVsbG8sIHdvcmxkIQ==");
    assert!(Command::new(&decode).args(["coded", "decoded"]).status().unwrap().success());
    assert_eq!(fs::read("decoded").unwrap(), b"Hello, world!");
    new_file("not-coded", b"SGVs*G8s");
    assert!(!Command::new(decode).args(["not-coded", "decoded"]).status().unwrap().success());
}
