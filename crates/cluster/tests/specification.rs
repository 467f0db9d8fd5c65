//! The examples of `docs/cluster-format.md` are what the crate reads and writes.

use marram_cluster::format::{
    BlockRow, BlocksPlace, BucketPlace, ClientRecord, Entry, Head, Header, Holder, HolderRow,
    LineRecord, LockPlace, LockRow, LockedRange, ObjectName, Past, Presence, Record, Reference,
    Role, Section, Stance, StoredItem, decode_operation,
};
use marram_format::group::Group;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_store::{Key, LockFamily, LockMode};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../docs/cluster-format.md");

/// The bytes of the example of that name.
fn example(name: &str) -> Vec<u8> {
    let (_, block) = PAGE.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let lines = block.lines().skip_while(|line| *line != name).skip(1);
    let hex: String = lines.take_while(|line| line.starts_with(' ')).map(str::trim).collect();
    assert!(!hex.is_empty(), "{name} has an example");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn item(value: &'static str, with_block: bool) -> Option<StoredItem> {
    let block = with_block.then_some(Reference { id: [0xab; 32], len: 5000 });
    Some(StoredItem { value: value.into(), block })
}

fn record(role: Role, name: &str, line: u64, period: u64) -> Record {
    Record {
        role,
        name: name.to_owned(),
        line,
        period,
        root_object: 1,
        owner: 0,
        created_seconds: 1_700_000_000,
        referenced_bytes: 0,
        holds: Vec::new(),
        properties: BTreeMap::new(),
    }
}

#[test]
fn rows_are_as_the_specification_has_them() {
    let head = Head { birth: 3, item: item("v", true) };
    assert_eq!((Head::decode(&example("head")), head.encode()), (Ok(head), example("head")));
    let gone = Head { birth: 4, item: None };
    assert_eq!(Head::decode(&example("head without an item")), Ok(gone));
    let past = Past { death: 5, item: item("old", false) };
    assert_eq!((Past::decode(&example("past")), past.encode()), (Ok(past), example("past")));
    let line = LineRecord { parent: 65537, parent_period: 2 };
    assert_eq!((LineRecord::decode(&example("line")), line.encode()), (Ok(line), example("line")));
    let block = BlockRow { codec: 0, len: 5, stored: b"hello" };
    let bytes = example("block");
    assert_eq!((BlockRow::decode(&bytes).unwrap(), block.encode()), (block, bytes.clone()));
    let client = ClientRecord {
        stance: Stance::Alone,
        since: 1_700_000_000,
        name: "client 1".to_owned(),
        beat: 9,
    };
    assert_eq!(ClientRecord::decode(&example("client")).unwrap(), client);
    assert_eq!(client.encode(), example("client"));
}

#[test]
fn blocks_outside_are_as_the_specification_has_them() {
    let upload = [1, 2, 3, 4, 5, 6, 7, 8];
    let row = BlockRow::outside(5, &upload);
    assert_eq!(row.encode(), example("block outside"));
    let bytes = example("block outside");
    assert_eq!(BlockRow::decode(&bytes).unwrap().upload(), Ok(Some(upload)));
    assert_eq!(BlockRow::decode(&example("block")).unwrap().upload(), Ok(None));
    let place = BlocksPlace::Directory("/srv/blocks".to_owned());
    assert_eq!(
        (BlocksPlace::decode(&example("place of blocks")), place.encode()),
        (Ok(place), example("place of blocks"))
    );
    let place = BucketPlace::new("s3://team/work", "eu-central-1", "https://store.example:9000");
    let place = BlocksPlace::Bucket(place.unwrap());
    let bytes = example("place of blocks in a bucket");
    assert_eq!((BlocksPlace::decode(&bytes), place.encode()), (Ok(place), bytes.clone()));
    let mut unknown = bytes;
    unknown[0] = 3;
    let refused = BlocksPlace::decode(&unknown).unwrap_err().to_string();
    assert!(refused.contains("a place of kind 3 is not known to this program"), "{refused}");
    let name = ObjectName { block: [0xab; 32], upload };
    assert!(PAGE.contains(&format!("`ab/{name}`")), "{name}");
    assert_eq!(name.to_string().parse(), Ok(name));
    assert_eq!(ObjectName::of_key(&name.key()), Some(name));
    let marker = marram_cluster::marker(&[0x1f; 16]);
    assert!(PAGE.contains(&marker), "{marker}");
    let holder = Holder { token: [1; 16], database: [0xab; 16] };
    assert!(PAGE.contains(&holder.encode()), "{}", holder.encode());
    let tokens = HolderRow(vec![[1; 16], [2; 16]]);
    assert_eq!(
        (HolderRow::decode(&example("tokens of the holder")), tokens.encode()),
        (Ok(tokens), example("tokens of the holder"))
    );
    let header = Header { id: [1; 16], key: [2; 32], has_blocks_outside: true };
    let bytes = header.encode();
    assert_eq!(bytes[12..16], [1, 0, 0, 0], "the feature that others refuse");
    assert_eq!(Header::decode(&bytes), Ok(header));
    let mut newer = bytes;
    newer[12] = 3;
    let check = blake3::hash(&newer[..64]);
    newer[64..].copy_from_slice(&check.as_bytes()[..8]);
    assert!(Header::decode(&newer).unwrap_err().to_string().contains("features 0x3"));
}

#[test]
fn locks_are_as_the_specification_has_them() {
    let place = LockPlace { dataset: 65537, object: 9, family: LockFamily::Ranges };
    assert_eq!(
        (LockPlace::decode(&example("key of a lock")), place.encode()),
        (Ok(place), example("key of a lock"))
    );
    let held = |first, last, mode| LockedRange { first, last, mode };
    let row = LockRow(BTreeMap::from([
        ([1; 16], vec![held(0, 9, LockMode::Exclusive)]),
        ([2; 16], vec![held(10, 10, LockMode::Shared), held(12, u64::MAX, LockMode::Shared)]),
    ]));
    assert_eq!((LockRow::decode(&example("lock")), row.encode()), (Ok(row), example("lock")));
}

#[test]
fn records_are_as_the_specification_has_them() {
    let snapshot = Record {
        referenced_bytes: 5001,
        holds: vec!["backup".to_owned()],
        ..record(Role::Snapshot { of: 65537 }, "before", 65537, 2)
    };
    assert_eq!(Record::decode(&example("snapshot")).unwrap(), snapshot);
    assert_eq!(snapshot.encode(), example("snapshot"));
    let fork = Record {
        root_object: 7,
        properties: BTreeMap::from([("recordsize".to_owned(), "16384".to_owned())]),
        ..record(Role::Dataset { origin: 131_073, is_fork: true }, "try", 131_074, 1)
    };
    assert_eq!(Record::decode(&example("fork")).unwrap(), fork);
    assert_eq!(fork.encode(), example("fork"));
}

fn operation() -> OperationRecord {
    OperationRecord {
        user: 1000,
        seconds: 1_700_000_000,
        group: Group(2),
        command: "marram snapshot mnt@before".to_owned(),
        ..OperationRecord::of(OperationKind::Snapshot, 131_073, &["root@before"])
    }
}

#[test]
fn operations_are_as_the_specification_has_them() {
    let bytes = example("operation");
    assert_eq!(decode_operation(&bytes).unwrap(), operation());
    assert_eq!(operation().encode(), bytes);
}

#[test]
fn entries_are_as_the_specification_has_them() {
    let section = Section {
        line: 65537,
        period: 3,
        needed: 2,
        inherits: false,
        edits: vec![(Key::new(2, 5, 0), item("v", true))],
    };
    let entry = Entry {
        previous: [0; 32],
        session: [1; 16],
        seconds: 1_700_000_000,
        presence: Some(Presence::Here {
            name: "client 1".to_owned(),
            stance: Stance::Alone,
            since: 1_700_000_000,
        }),
        sections: vec![section],
        records: vec![(131_073, None)],
        lines: vec![(65537, Some(LineRecord { parent: 0, parent_period: 0 }))],
        work: vec![[65537, 0, 2]],
        operations: vec![(8, Some(operation())), (7, None)],
    };
    assert_eq!(Entry::decode(&example("entry")).unwrap(), entry);
    assert_eq!(entry.encode(), example("entry"));
}
