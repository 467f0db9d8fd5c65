//! Direct writes beside reads through the kernel's cache.

use crate::fixture::{Mounted, can_mount};
use crate::proxy::Proxy;
use io_uring::{IoUring, opcode, types};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const LEN: usize = 65_536;

fn content(file: &File) -> Vec<u8> {
    let mut content = vec![0; LEN];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
#[allow(unsafe_code, reason = "a write is handed to the kernel by its address")]
fn an_asynchronous_direct_write_leaves_no_page_that_was_read_before_it() {
    if !can_mount() {
        return;
    }
    let Ok(mut ring) = IoUring::new(2) else {
        eprintln!("skipped: needs io_uring");
        return;
    };
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    let path = mounted.path("file");
    fs::write(&path, [1; LEN]).unwrap();
    let reader = File::open(&path).unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let new = vec![2_u8; LEN];
    let file = types::Fd(direct.as_raw_fd());
    let length = u32::try_from(LEN).unwrap();
    let write = opcode::Write::new(file, new.as_ptr(), length).offset(0).build();
    proxy.write_gate.close();
    // SAFETY: the bytes and the file are there until the write is done, below.
    unsafe { ring.submission().push(&write).unwrap() };
    ring.submit().unwrap();
    // The kernel has dropped the pages, and the file system has not written yet.
    proxy.write_gate.wait_for_somebody();
    assert!(content(&reader) == [1; LEN], "nothing is written yet");
    proxy.write_gate.open();
    ring.submit_and_wait(1).unwrap();
    let done = ring.completion().next().map(|done| done.result());
    assert_eq!(done, Some(i32::try_from(LEN).unwrap()));
    assert!(content(&reader) == new, "who has seen the end of a write sees its bytes");
    drop((reader, direct, ring));
    mounted.end();
}
