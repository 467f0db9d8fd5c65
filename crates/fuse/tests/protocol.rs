//! The parser against requests built by hand from the kernel's structures, and against noise.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use marram_fuse::protocol::{
    CopyRange, Create, Header, Init, Ioctl, LockIn, Malformed, Node, Opcode, Operation, Rename,
    SetAttributesIn, Transfer, Write, parse,
};
use proptest::prelude::*;

/// A request's bytes, field by field.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend(text.as_bytes());
        self.0.push(0);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn body() -> Body {
    Body::default()
}

fn request(opcode: u32, body: &Body) -> Vec<u8> {
    let len = u32::try_from(40 + body.0.len()).unwrap();
    let head = Body::default().u32(len).u32(opcode).u64(77).u64(5).u32(1000).u32(100).u32(4321);
    head.u32(0).bytes(&body.0).0
}

fn header(opcode: u32) -> Header {
    Header { opcode, unique: 77, node: 5, uid: 1000, gid: 100, pid: 4321 }
}

/// Parses the request, and every cut of it, which must be an error or another whole request.
fn check(opcode: Opcode, body: &Body, expected: &Operation<'_>) {
    let bytes = request(opcode as u32, body);
    let parsed = parse(&bytes).unwrap();
    assert_eq!(parsed.header, header(opcode as u32));
    assert_eq!(&parsed.operation, expected);
    for len in 0..body.0.len() {
        let cut = request(opcode as u32, &Body(body.0[..len].to_vec()));
        if let Err((found, reason)) = parse(&cut) {
            assert_eq!(found, Some(header(opcode as u32)));
            assert!(matches!(reason, Malformed::Body { .. }), "{reason}");
        }
    }
}

#[test]
fn requests_about_names() {
    check(Opcode::Lookup, &body().text("abc"), &Operation::Lookup { name: b"abc" });
    check(Opcode::Unlink, &body().text("abc"), &Operation::Unlink { name: b"abc" });
    check(Opcode::RemoveDirectory, &body().text("d"), &Operation::RemoveDirectory { name: b"d" });
    check(Opcode::ReadLink, &body(), &Operation::ReadLink);
    check(
        Opcode::Symlink,
        &body().text("name").text("../to"),
        &Operation::Symlink { name: b"name", target: b"../to" },
    );
    check(
        Opcode::MakeNode,
        &body().u32(0o020_644).u32(0x0103).u32(0o22).u32(0).text("null"),
        &Operation::MakeNode(Node { mode: 0o020_644, device: 0x0103, umask: 0o22, name: b"null" }),
    );
    check(
        Opcode::MakeDirectory,
        &body().u32(0o755).u32(0o22).text("dir"),
        &Operation::MakeDirectory(Node { mode: 0o755, device: 0, umask: 0o22, name: b"dir" }),
    );
    check(Opcode::Link, &body().u64(9).text("new"), &Operation::Link { node: 9, new_name: b"new" });
    let rename = Rename { new_parent: 8, flags: 0, name: b"a", new_name: b"b" };
    check(Opcode::Rename, &body().u64(8).text("a").text("b"), &Operation::Rename(rename));
    check(
        Opcode::Rename2,
        &body().u64(8).u32(2).u32(0).text("a").text("b"),
        &Operation::Rename(Rename { flags: 2, ..rename }),
    );
    let create =
        Create { caller_flags: 0o301, mode: 0o100_600, umask: 0o22, open_flags: 1, name: b"new" };
    let bytes = body().u32(0o301).u32(0o100_600).u32(0o22).u32(1).text("new");
    check(Opcode::Create, &bytes, &Operation::Create(create));
    check(Opcode::CreateAnonymous, &bytes, &Operation::CreateAnonymous(create));
}

#[test]
fn requests_about_attributes() {
    check(
        Opcode::GetAttributes,
        &body().u32(1).u32(0).u64(0),
        &Operation::GetAttributes { open: true },
    );
    check(
        Opcode::ExtendedAttributes,
        &body().u32(0).u32(0).u64(0).u32(0).u32(0xfff),
        &Operation::ExtendedAttributes { open: false },
    );
    let set = SetAttributesIn {
        valid: 0x7ff,
        handle: 99,
        size: 1,
        accessed_seconds: -2,
        modified_seconds: 3,
        changed_seconds: 4,
        accessed_nanoseconds: 5,
        modified_nanoseconds: 6,
        changed_nanoseconds: 7,
        mode: 8,
        uid: 9,
        gid: 10,
    };
    let times = body().u32(0x7ff).u32(0).u64(99).u64(1).u64(99).u64(2_u64.wrapping_neg());
    let rest = times.u64(3).u64(4).u32(5).u32(6).u32(7).u32(8).u32(0).u32(9).u32(10).u32(0);
    check(Opcode::SetAttributes, &rest, &Operation::SetAttributes(set));
    check(Opcode::Space, &body(), &Operation::Space);
    check(Opcode::Access, &body().u32(4).u32(0), &Operation::Access { mask: 4 });
}

#[test]
fn requests_about_content() {
    let transfer = Transfer { offset: 4096, size: 100, flags: 2, caller_flags: 7 };
    let bytes = body().u64(1).u64(4096).u32(100).u32(2).u64(0).u32(7).u32(0);
    check(Opcode::Read, &bytes, &Operation::Read(transfer));
    check(Opcode::ReadDirectory, &bytes, &Operation::ReadDirectory(transfer));
    check(Opcode::ReadDirectoryPlus, &bytes, &Operation::ReadDirectoryPlus(transfer));
    let head = body().u64(1).u64(4096).u32(3).u32(4).u64(0).u32(0).u32(0);
    check(
        Opcode::Write,
        &head.bytes(b"abc"),
        &Operation::Write(Write {
            handle: 1,
            offset: 4096,
            flags: 4,
            caller_flags: 0,
            data: b"abc",
        }),
    );
    check(
        Opcode::Allocate,
        &body().u64(1).u64(2).u64(3).u32(0x11).u32(0),
        &Operation::Allocate { handle: 1, offset: 2, len: 3, mode: 0x11 },
    );
    check(
        Opcode::Seek,
        &body().u64(1).u64(7).u32(4).u32(0),
        &Operation::Seek { offset: 7, whence: 4 },
    );
    let (from_offset, to_node, to_handle, to_offset) = (2, 3, 9, 4);
    let (len, flags, wide) = (5, 6, false);
    let copy = CopyRange { from_offset, to_node, to_handle, to_offset, len, flags, wide };
    let bytes = body().u64(1).u64(2).u64(3).u64(9).u64(4).u64(5).u64(6);
    check(Opcode::CopyRange, &bytes, &Operation::CopyRange(copy));
    let wide = CopyRange { wide: true, ..copy };
    check(Opcode::CopyRange64, &bytes, &Operation::CopyRange(wide));
}

#[test]
fn requests_about_handles_and_durability() {
    let sync = body().u64(1).u32(1).u32(0);
    check(Opcode::Sync, &sync, &Operation::Sync { data_only: true });
    check(Opcode::SyncDirectory, &sync, &Operation::SyncDirectory { data_only: true });
    check(Opcode::SyncAll, &body().u64(0), &Operation::SyncAll);
    check(Opcode::Open, &body().u32(0o2002).u32(0), &Operation::Open { caller_flags: 0o2002 });
    check(Opcode::OpenDirectory, &body().u32(0).u32(0), &Operation::OpenDirectory);
    check(Opcode::Release, &body().u64(1).u64(0).u64(0), &Operation::Release { handle: 1 });
    check(Opcode::ReleaseDirectory, &body().u64(1).u64(0).u64(0), &Operation::ReleaseDirectory);
    check(Opcode::Flush, &body().u64(1).u64(0).u64(5), &Operation::Flush { owner: 5 });
    check(Opcode::Destroy, &body(), &Operation::Destroy);
    check(Opcode::Forget, &body().u64(3), &Operation::Forget { count: 3 });
    check(Opcode::Interrupt, &body().u64(3), &Operation::Interrupt { unique: 3 });
    check(Opcode::NotifyReply, &body().u64(3), &Operation::NotifyReply);
    let ioctl = Ioctl { flags: 16, command: 0xf5, argument: 9, input: b"in", output_bytes_max: 64 };
    check(
        Opcode::Ioctl,
        &body().u64(1).u32(16).u32(0xf5).u64(9).u32(2).u32(64).bytes(b"in"),
        &Operation::Ioctl(ioctl),
    );
}

#[test]
fn requests_about_locks() {
    let lock =
        LockIn { handle: 1, owner: 5, first: 6, last: 7, kind: 1, process: 9, is_whole: true };
    let bytes = body().u64(1).u64(5).u64(6).u64(7).u32(1).u32(9).u32(1).u32(0);
    check(Opcode::GetLock, &bytes, &Operation::GetLock(lock));
    check(Opcode::SetLock, &bytes, &Operation::SetLock { lock, waits: false });
    check(Opcode::SetLockWait, &bytes, &Operation::SetLock { lock, waits: true });
}

#[test]
fn requests_about_extended_attributes() {
    check(
        Opcode::GetXattr,
        &body().u32(16).u32(0).text("user.a"),
        &Operation::GetXattr { name: b"user.a", size: 16 },
    );
    check(Opcode::ListXattrs, &body().u32(16).u32(0), &Operation::ListXattrs { size: 16 });
    check(
        Opcode::SetXattr,
        &body().u32(3).u32(1).u32(1).u32(0).text("user.a").bytes(b"v\0w"),
        &Operation::SetXattr { name: b"user.a", value: b"v\0w", flags: 1, clear_setgid: true },
    );
    check(Opcode::RemoveXattr, &body().text("user.a"), &Operation::RemoveXattr { name: b"user.a" });
}

#[test]
fn many_forgets_at_once() {
    let bytes =
        request(Opcode::BatchForget as u32, &body().u32(2).u32(0).u64(5).u64(1).u64(6).u64(9));
    let Operation::BatchForget(forgets) = parse(&bytes).unwrap().operation else {
        panic!("not a batch");
    };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(5, 1), (6, 9)]);
    let lying = request(Opcode::BatchForget as u32, &body().u32(u32::MAX).u32(0).u64(5).u64(1));
    assert!(parse(&lying).is_err());
}

#[test]
fn greetings_old_and_new() {
    let init = Init { major: 7, minor: 45, read_ahead_bytes: 9, flags: 1 << 30 | 2 << 32 };
    let long = body().u32(7).u32(45).u32(9).u32(1 << 30).u32(2).bytes(&[0; 44]);
    check(Opcode::Init, &long, &Operation::Init(init));
    let short = body().u32(7).u32(33).u32(9).u32(3);
    let old = Init { major: 7, minor: 33, read_ahead_bytes: 9, flags: 3 };
    check(Opcode::Init, &short, &Operation::Init(old));
}

#[test]
fn what_is_not_served_is_known_all_the_same() {
    for opcode in [Opcode::MapBlock, Opcode::Poll, Opcode::SetupMapping, Opcode::RemoveMapping] {
        check(opcode, &body(), &Operation::Unsupported(opcode));
    }
    let bytes = request(4242, &body());
    assert_eq!(parse(&bytes).unwrap().operation, Operation::Unknown);
}

#[test]
fn extensions_are_not_part_of_the_body() {
    let mut bytes =
        request(Opcode::Symlink as u32, &body().text("name").text("to").bytes(b"12345678"));
    bytes[36] = 1;
    let operation = parse(&bytes).unwrap().operation;
    assert_eq!(operation, Operation::Symlink { name: b"name", target: b"to" });
    bytes[37] = 0xff;
    assert!(matches!(parse(&bytes), Err((None, Malformed::Extensions { .. }))));
}

#[test]
fn lengths_are_checked() {
    assert!(matches!(parse(&[0; 39]), Err((None, Malformed::Header { received_bytes: 39 }))));
    let mut bytes = request(Opcode::ReadLink as u32, &body());
    bytes.push(0);
    assert!(matches!(parse(&bytes), Err((None, Malformed::Length { said_bytes: 40, .. }))));
}

proptest! {
    /// Whatever comes, an answer comes: with a header that is right, so that bodies are reached.
    #[test]
    fn noise_is_no_panic(
        opcode in 0_u32..60,
        extensions in 0_u16..4,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = request(opcode, &Body(noise));
        bytes[36..38].copy_from_slice(&extensions.to_le_bytes());
        if let Ok(request) = parse(&bytes)
            && let Operation::BatchForget(forgets) = request.operation
        {
            prop_assert!(forgets.iter().count() <= 20);
        }
    }

    #[test]
    fn noise_without_a_header_is_no_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        prop_assert!(parse(&noise).is_err() || noise.len() >= 40);
    }
}
