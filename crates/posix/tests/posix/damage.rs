//! Damaged blocks: reported by file and range, never returned, and no hindrance to the rest.

use crate::{Bench, name, pattern};
use marram_posix::{AccessTimes, DefragmentOptions, Defragmenter, PassPlace, defragment};
use marram_store::{Batch, Block, Item, Key, kind};
use marram_vfs::{Error, FileSystem, Ino, Kind, NewNode};
use std::sync::Arc;

#[test]
fn a_damaged_block_fails_its_range_alone() {
    let bench = Bench::new();
    let d = bench.directory(Ino::ROOT, "d");
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = bench.files.create(crate::USER, d, name("f"), node).unwrap().ino;
    let mut expected = pattern(1, 400_000);
    bench.write(ino, 0, &expected);
    bench.store.commit();
    let item = bench.view.get(Key::new(ino.0, kind::SECTION, 131_072)).unwrap().unwrap();
    let Some(Block::Stored(token)) = &item.block else {
        panic!("the block is stored");
    };
    bench.store.damage(token);
    let read = |offset, len| {
        let mut out = b"kept".to_vec();
        bench.files.read(ino, offset, len, &mut out).map(|()| out[4..].to_vec())
    };
    assert_eq!(read(0, 131_072).unwrap(), expected[..131_072]);
    assert_eq!(read(262_144, 200_000).unwrap(), expected[262_144..]);
    for (offset, len) in [(131_072, 1), (0, 400_000), (262_143, 1)] {
        assert!(matches!(read(offset, len), Err(Error::Damaged(_))), "{offset}+{len}");
    }
    let told = bench.damage.lock().unwrap().clone();
    assert_eq!(told.len(), 3);
    assert_eq!((told[0].ino, told[0].offset, told[0].len), (ino, 131_072, 131_072));
    assert_eq!(told[0].path.as_deref(), Some(&b"/d/f"[..]));
    let new = pattern(5, 120_000);
    bench.write(ino, 132_000, &new);
    expected[132_000..252_000].copy_from_slice(&new);
    assert_eq!(read(132_000, 120_000).unwrap(), expected[132_000..252_000]);
    assert!(read(131_072, 100).is_err() && read(252_000, 1).is_err(), "the rest stays damaged");
    bench.set_size(ino, 131_072);
    assert_eq!(read(0, 400_000).unwrap(), expected[..131_072]);
}

/// In memory such a record can be planted; on media it would be one that a newer or a wrong
/// program has written.
#[test]
fn rewriting_goes_past_a_record_that_makes_no_sense_and_tells_of_it() {
    let bench = Bench::new();
    let [first, wrong, last] = ["first", "wrong", "last"].map(|name| bench.file(name));
    for ino in [first, wrong, last] {
        bench.write(ino, 0, &pattern(1, 400_000));
    }
    let mut batch = Batch::new();
    batch.put(Key::new(wrong.0, kind::SECTION, 131_072), Item::plain(vec![0xff; 3]));
    bench.view.apply(batch).unwrap();
    bench.store.commit();
    let files = Arc::new(crate::open(&bench.view, AccessTimes::Never, &bench.damage));

    let mut defragmenter = Defragmenter::new();
    let mut steps = 0;
    while defragmenter.step(&files).unwrap() {
        steps += 1;
        assert!(steps < 100, "it comes to an end");
    }
    let looked_at = defragmenter.totals().content_bytes;
    assert_eq!(looked_at, 3 * 400_000 - 131_072, "all but that section is looked at");
    assert_eq!(defragmenter.totals().unreadable, 1);
    let told = bench.damage.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].ino, told[0].offset), (wrong, 131_072));
    assert_eq!(told[0].path.as_deref(), Some(&b"/wrong"[..]));

    // By hand the file is named, and what is beside it is looked at.
    let place = PassPlace { files, directory: Ino::ROOT };
    let report = defragment(&[place], DefragmentOptions::default(), &mut || Some(()));
    assert_eq!((report.files, report.skipped, &report.listed[0].path[..]), (3, 1, &b"wrong"[..]));
    assert_eq!(report.totals.content_bytes, looked_at);
}
