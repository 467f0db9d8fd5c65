//! Writes the kept corpus: small valid inputs for each target, from the format's golden files, from
//! our own compressors, and from the shape of a FUSE request. Run it again after a change of the
//! format: `cargo run --manifest-path fuzz/Cargo.toml`.

use marram_codec::Compression;
use marram_format::key::Key;
use marram_format::log::{FrameWriter, LogBlock};
use marram_format::pointer::Checksum;
use marram_format::stream::{
    Received, RecordChain, RecordKind, ResumeToken, SnapshotIdentity, StreamBegin, StreamBlock,
    StreamContent, StreamEnd, StreamPut,
};
use marram_fuse::protocol::{Deed, FileCall, encode_extents};
use marram_posix::{
    Nfs4Entry as Entry, Nfs4Inheritance as Inheritance, Nfs4List as List, Nfs4Rights as Rights,
    Nfs4Who as Who,
};
use marram_vfs::{Allocate, Extent, ExtentPlace};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = Corpus { folder: fuzz.join("corpus") };
    golden(&corpus, &fuzz.join("../crates/format/golden"))?;
    frames(&corpus)?;
    compressed(&corpus)?;
    requests(&corpus)?;
    control_calls(&corpus)?;
    lists(&corpus)?;
    streams(&corpus)?;
    changes(&corpus)?;
    pmem_changes(&corpus)?;
    pmem_records(&corpus)
}

/// Streams with each kind of record, whole and as the rest of one that was cut, and the payloads
/// of their records, as the target takes them; and the token of the rest.
fn streams(corpus: &Corpus) -> Result<()> {
    let identity = SnapshotIdentity { id: [2; 16], created_seconds: 7 };
    let begin = StreamBegin {
        snapshot: identity,
        base: Some(SnapshotIdentity { id: [1; 16], ..identity }),
        dataset_id: [3; 16],
        pool_id: [4; 16],
        root_object: 1,
        referenced_bytes: 8192,
        dataset_name: "root".to_owned(),
        snapshot_name: "b".to_owned(),
        properties: vec![("atime".to_owned(), "off".to_owned())],
        after: None,
    };
    let after = Key::new(9, 1, 0);
    let resumed = StreamBegin { after: Some(after), ..begin.clone() };
    for (begin, name) in
        [(&begin, ["whole", "payloads"]), (&resumed, ["resumed", "resumed-payloads"])]
    {
        let (whole, payloads) = stream_of(begin);
        corpus.add("stream", name[0], &whole)?;
        corpus.add("stream", name[1], &payloads)?;
    }
    let received = Received::up_to(after);
    let token = ResumeToken { snapshot: identity, base: begin.base, received };
    corpus.add("stream", "token", token.text().as_bytes())
}

/// A stream with this beginning, and the payloads of its records.
fn stream_of(begin: &StreamBegin) -> (Vec<u8>, Vec<u8>) {
    let stored = &b"data"[..];
    let content = StreamContent { codec: 0, logical_len: 4, checksum: Checksum::NONE, stored };
    let put =
        |offset, block| StreamPut { key: Key::new(9, 5, offset), value: b"v", block }.encode();
    let records = [
        (RecordKind::Begin, begin.encode()),
        (RecordKind::Put, put(0, StreamBlock::Content(content))),
        (RecordKind::Put, put(1, StreamBlock::Earlier(Key::new(9, 5, 0)))),
        (RecordKind::Put, put(2, StreamBlock::OfBase(Key::new(8, 5, 0)))),
        (RecordKind::Put, put(3, StreamBlock::Kept)),
        (RecordKind::Remove, Key::new(9, 5, 4).encode().to_vec()),
    ];
    let prefix = begin.prefix();
    let mut chain = RecordChain::new(&prefix);
    let (mut whole, mut payloads) = (prefix.to_vec(), Vec::new());
    for (kind, payload) in &records {
        chain.seal(*kind, payload, &mut whole);
        let len = u16::try_from(payload.len()).expect("payloads are short");
        payloads.push(*kind as u8 - 1);
        payloads.extend(len.to_le_bytes());
        payloads.extend(payload);
    }
    let checksum = chain.whole();
    let end = StreamEnd { puts: 4, removals: 1, blocks: 1, stored_bytes: 4, whole: checksum };
    chain.seal(RecordKind::End, &end.encode(), &mut whole);
    (whole, payloads)
}

/// Access control lists of both kinds, with a mode before them.
fn lists(corpus: &Corpus) -> Result<()> {
    let mut posix = vec![0xa4, 0x01, 2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1, 6, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
    {
        posix.extend([tag, 0, permissions, 0]);
        posix.extend(u32::to_le_bytes(id));
    }
    corpus.add("acl_lists", "posix", &posix)?;
    let inheritance = Inheritance { files: true, directories: true, ..Inheritance::NONE };
    let named = Entry::allow(Who::NamedGroup(1000), Rights::ALL);
    let mut list = List::from_mode(0o640, true);
    list.entries.push(Entry { inheritance, ..named });
    list.entries.push(Entry::deny(Who::NamedUser(7), Rights::WRITE_DATA));
    corpus.add("acl_lists", "nfs4", &[&[0xed, 0x81][..], &list.encode()].concat())
}

/// Each of our own control calls, and an answer that tells of extents.
fn control_calls(corpus: &Corpus) -> Result<()> {
    let deed = Deed::Allocate(Allocate::Collapse);
    let calls = [
        ("prepare", FileCall::Prepare { deed, offset: 4096, len: 100 }),
        ("withdraw", FileCall::Withdraw { offset: 1, len: 2 }),
        ("extents", FileCall::Extents { offset: 1 << 20 }),
    ];
    for (name, call) in calls {
        let (command, input) = call.encode();
        corpus.add("fuse_ioctl", name, &[&command.to_le_bytes()[..], &input].concat())?;
    }
    let stored = ExtentPlace::Stored {
        device: 1,
        address: 1 << 30,
        stored_bytes: 4096,
        block_bytes: 131_072,
        block_start: 77,
        shared: true,
    };
    let places = [ExtentPlace::Reserved, ExtentPlace::Waiting, ExtentPlace::Beside, stored];
    let extents = places.map(|place| Extent { offset: 5, len: 6, place });
    corpus.add("fuse_ioctl", "answer", &[&[0; 4][..], &encode_extents(&extents)].concat())
}

/// Where the seeds go: a folder a target.
struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    fn add(&self, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let folder = self.folder.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    }
}

/// Which target a golden file goes to, and the byte that selects the decoder there.
const GOLDEN: [(&str, &str, Option<u8>); 24] = [
    ("superblock", "format_superblock", None),
    ("signature", "format_superblock", None),
    ("leaf", "format_node", None),
    ("branch", "format_node", None),
    ("pointer-embedded", "format_pointer", None),
    ("pointer-pieces", "format_pointer", None),
    ("pointer-stored", "format_pointer", None),
    ("tail", "format_space", Some(0)),
    ("dead-chunk", "format_space", Some(1)),
    ("references", "format_space", Some(2)),
    ("operation", "format_operation", None),
    ("operation-limit", "format_operation", None),
    ("log-head", "format_log", Some(0)),
    ("log-frame", "format_log", Some(1)),
    ("log-merge", "format_log", Some(1)),
    ("record-inode", "format_records", Some(0)),
    ("record-entry", "format_records", Some(1)),
    ("record-xattr", "format_records", Some(2)),
    ("record-section", "format_records", Some(3)),
    ("record-orphan", "format_records", Some(4)),
    ("record-counters", "format_records", Some(5)),
    ("record-count", "format_records", Some(6)),
    ("key", "format_records", Some(7)),
    ("dataset", "format_records", Some(8)),
];

fn golden(corpus: &Corpus, golden: &Path) -> Result<()> {
    for version in std::fs::read_dir(golden)? {
        let version = version?;
        if !version.file_type()?.is_dir() {
            continue;
        }
        let prefix = version.file_name().to_string_lossy().into_owned();
        for (name, target, selector) in GOLDEN {
            let path = version.path().join(format!("{name}.hex"));
            if !path.exists() {
                continue; // The version has not this structure, or has it as the one before.
            }
            let text = std::fs::read_to_string(path)?;
            let mut bytes = Vec::from_iter(selector);
            bytes.extend(parse_dump(&text)?);
            corpus.add(target, &format!("{prefix}-{name}"), &bytes)?;
        }
    }
    Ok(())
}

/// Frames of the intent log, without what fills their last grain: one of each kind of edit.
fn frames(corpus: &Corpus) -> Result<()> {
    let (key, value) = (Key::new(2, 5, 4096), b"value");
    let mut writers: [(&str, FrameWriter); 4] =
        ["remove", "put", "content", "patch"].map(|name| (name, FrameWriter::new()));
    for (index, (name, writer)) in writers.iter_mut().enumerate() {
        writer.begin_part(index as u64, 1);
        match *name {
            "remove" => writer.remove(key),
            "put" => writer.put(key, value, LogBlock::None),
            "content" => writer.put(key, value, LogBlock::Content(b"content")),
            _ => writer.patch(key, value, 100, b"patch"),
        }
        writer.begin_part(index as u64 + 1, 2);
        writer.remove(key);
    }
    for (name, writer) in writers {
        let len = writer.len_bytes();
        let mut bytes = vec![1];
        bytes.extend(&writer.finish(&[7; 16], 11, 13)[..len]);
        corpus.add("format_log", name, &bytes)?;
    }
    Ok(())
}

/// Decodes `length N` and lines of `offset: bytes`; what no line names is zero.
fn parse_dump(text: &str) -> Result<Vec<u8>> {
    let malformed = || Error::other("a golden file of another shape");
    let mut lines = text.lines();
    let length = lines.next().and_then(|line| line.strip_prefix("length "));
    let length = length.and_then(|number| number.parse().ok()).ok_or_else(malformed)?;
    let mut bytes = vec![0; length];
    for line in lines {
        let (offset, row) = line.split_once(": ").ok_or_else(malformed)?;
        let offset = usize::from_str_radix(offset, 16).map_err(|_| malformed())?;
        for (index, byte) in row.split_whitespace().enumerate() {
            let byte = u8::from_str_radix(byte, 16).map_err(|_| malformed())?;
            *bytes.get_mut(offset + index).ok_or_else(malformed)? = byte;
        }
    }
    Ok(bytes)
}

fn compressed(corpus: &Corpus) -> Result<()> {
    let text: Vec<u8> = b"sand held by roots ".iter().copied().cycle().take(20_000).collect();
    let mut holes = vec![0; 20_000];
    holes[10_000] = 1;
    let ways = [
        (Compression::Lz4, "lz4"),
        (Compression::Zstd { level: 3 }, "zstd"),
        (Compression::Lzo, "lzo"),
        (Compression::Gzip { level: 6 }, "gzip"),
        (Compression::Zle, "zle"),
    ];
    for (how, name) in ways {
        for (plain, kind) in [(&text, "text"), (&holes, "holes")] {
            let mut packed = Vec::new();
            if marram_codec::compress(how, plain, &mut packed) {
                let [low, middle, high, ..] = plain.len().to_le_bytes();
                let mut bytes = vec![how.id(), low, middle, high];
                bytes.extend(packed);
                corpus.add("codec_decompress", &format!("{name}-{kind}"), &bytes)?;
            }
        }
    }
    Ok(())
}

/// A request for each opcode: a header, and a body with room for fixed fields and two names.
fn requests(corpus: &Corpus) -> Result<()> {
    const HEADER_BYTES: usize = 40;
    const OPCODE_MAX: u8 = 53;
    for opcode in 1..=OPCODE_MAX {
        for (body_bytes, size) in [(0, "bare"), (64, "long")] {
            let mut bytes = vec![0; HEADER_BYTES + body_bytes];
            let length = u8::try_from(bytes.len()).map_err(Error::other)?;
            bytes[0] = length;
            bytes[4] = opcode;
            bytes[8] = 2;
            bytes[16] = 1;
            bytes.extend(b"name\0other\0");
            bytes[0] = length + 11;
            corpus.add("fuse_request", &format!("{opcode:02}-{size}"), &bytes)?;
        }
    }
    Ok(())
}

/// Changes of images: none, and one of each kind in several grains; of images that are mounted, in
/// both modes.
fn changes(corpus: &Corpus) -> Result<()> {
    for (target, mode, prefix) in [
        ("pool_image", 1, ""),
        ("ext2_image", 0, "read-"),
        ("ext2_image", 1, ""),
        ("ext4_image", 0, "plain-"),
        ("ext4_image", 1, ""),
        ("ext2_journal", 0, "read-"),
        ("ext2_journal", 1, ""),
    ] {
        corpus.add(target, &format!("{prefix}none"), &[mode])?;
        for kind in 0..4 {
            for grain in 0..16 {
                let change = [mode, grain, 32, 0, kind, 1, 2, 3, 4];
                corpus.add(target, &format!("{prefix}kind-{kind}-grain-{grain}"), &change)?;
            }
        }
    }
    Ok(())
}

/// Changes of the image of a pmem home, closed and not: none, and one of each kind in each page.
fn pmem_changes(corpus: &Corpus) -> Result<()> {
    for mode in [0, 2] {
        corpus.add("pmem_image", &format!("none-{mode}"), &[mode])?;
        for kind in 0..4 {
            for page in 0..16 {
                let change = [mode, page, 3, 0, kind, 3, 0, 0, 0];
                let name = format!("mode-{mode}-kind-{kind}-page-{page}");
                corpus.add("pmem_image", &name, &change)?;
            }
        }
    }
    Ok(())
}

/// Records of a pmem home: an intent, two checkpoints, and a redo record of one word.
fn pmem_records(corpus: &Corpus) -> Result<()> {
    let slot = 12_288 + 256;
    let words = |intent: u64, checkpoint: [u64; 3], record: &[u64]| {
        let all = [&[intent, slot][..], &checkpoint, &checkpoint, record].concat();
        all.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let inputs = [
        ("closed", words(0, [0; 3], &[])),
        ("made", words(1 | 2 << 8 | (0x5018 / 8) << 24, [0; 3], &[])),
        ("removed", words(2 | 2 << 8 | (0x5018 / 8) << 24, [0; 3], &[])),
        ("checkpoint", words(0, [8, 0x6000, 100], &[])),
        ("record", words(0, [0; 3], &[slot | 1 << 48, 0x4_0001])),
        ("label", words(0, [0; 3], &[40 | 2 << 48, 7, 7, 120 | 1 << 48, 7])),
    ];
    for (name, bytes) in inputs {
        for mode in 0..4 {
            let input = [&[mode][..], &bytes].concat();
            corpus.add("pmem_records", &format!("{name}-{mode}"), &input)?;
        }
    }
    Ok(())
}
