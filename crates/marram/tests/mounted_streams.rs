//! Streams in files, mounted for reading.

use crate::tree::{assert_same, fill};
use crate::workbench::{Workbench, can_mount};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

fn sender() -> Workbench {
    let bench = Workbench::with_pool();
    for folder in ["mnt", "one", "two"] {
        bench.make_folder(folder);
    }
    bench.run("mount work.pool mnt").good();
    fill(&bench.path("mnt"));
    bench.run("reflink mnt/big mnt/shared").good();
    bench.run("snapshot mnt@a").good();
    bench.run("send mnt@a --to-file a.stream").good();
    fs::rename(bench.path("mnt/d/f7"), bench.path("mnt/d/e/moved")).unwrap();
    fs::remove_file(bench.path("mnt/d/f9")).unwrap();
    fs::write(bench.path("mnt/d/f8"), "new content\n").unwrap();
    let big = fs::OpenOptions::new().write(true).open(bench.path("mnt/big")).unwrap();
    big.write_all_at(b"in the middle", 700_000).unwrap();
    bench.run("snapshot mnt@b").good();
    bench.run("send mnt@b --from a --to-file b.stream").good();
    bench
}

#[test]
fn a_stream_in_a_file_is_mounted_and_shows_what_its_snapshot_does() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    bench.run("mount work.pool@a one").good();
    bench.run("mount a.stream two").good();
    assert_same(&bench, "one", "two");
    let refused = fs::write(bench.path("two/new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    assert!(!bench.path("two/.marram").exists());
    bench.run("list two").refused(1, &["a.stream", "no pool"]);
    bench.run("snapshot two@x").refused(2, &["never changes"]);
    is_in_status(&bench, "a.stream", "two");
    // It is open: the file may go.
    fs::remove_file(bench.path("a.stream")).unwrap();
    bench.run("status two").good();
    assert_eq!(fs::read(bench.path("two/d/f8")).unwrap(), vec![8; 8 * 97]);
    let busy = fs::File::open(bench.path("two/big")).unwrap();
    bench.run("unmount two").refused(11, &[]);
    drop(busy);
    bench.run("unmount one two mnt").good();
    assert!(bench.mounts().is_empty(), "{:?}", bench.mounts());
}

/// The stream is in the report with its mount, by its file, by its mount, and among all that is
/// mounted.
fn is_in_status(bench: &Workbench, file: &str, mount: &str) {
    let (path, at) = (bench.path(file).canonicalize().unwrap(), bench.path(mount));
    for line in ["status".to_owned(), format!("status {file}"), format!("status {mount}")] {
        let told = bench.run(&format!("{line} --json")).envelope()["result"].clone();
        let of_file = |report: &&Value| {
            let streams = report["streams"].as_array();
            streams.is_some_and(|all| all.iter().any(|one| *one == *path.to_str().unwrap()))
        };
        let found = told.as_array().unwrap().iter().find(of_file);
        let found = found.unwrap_or_else(|| panic!("{line}: {told}"));
        assert_eq!(found["mounts"][0]["directory"], at.to_str().unwrap());
        assert_eq!(found["health"], "online");
    }
    let text = bench.run(&format!("status {mount}")).good().out;
    assert!(text.contains(file) && text.contains(at.to_str().unwrap()), "{text}");
}

#[test]
fn a_stream_is_unmounted_by_the_name_of_its_file() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    bench.run("status a.stream").refused(10, &["is not mounted"]);
    bench.run("unmount a.stream").refused(10, &["is not mounted"]);
    bench.run("mount a.stream one --then b.stream").good();
    bench.run("mount a.stream two").good();
    fs::rename(bench.path("a.stream"), bench.path("renamed.stream")).unwrap();
    bench.run("unmount b.stream").good();
    assert_eq!(bench.mounts().len(), 2, "{:?}", bench.mounts());
    bench.run("mount renamed.stream one").good();
    bench.run("unmount renamed.stream").good();
    assert_eq!(bench.mounts().len(), 1, "{:?}", bench.mounts());
    bench.run("unmount mnt").good();
}

#[test]
fn incremental_streams_are_mounted_on_top_of_a_full_one() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    bench.run("mount b.stream two").refused(1, &["name the full stream first"]);
    bench.run("mount a.stream two --then a.stream").refused(1, &["it is a full stream"]);
    bench.run("mount work.pool two --then b.stream").refused(2, &["is no stream"]);
    bench.run("mount a.stream two --snapshot x").refused(2, &["one snapshot"]);
    let whole = fs::read(bench.path("a.stream")).unwrap();
    fs::write(bench.path("cut.stream"), &whole[..whole.len() - 1]).unwrap();
    bench.run("mount cut.stream two").refused(1, &["it is cut"]);
    assert_eq!(bench.mounts().len(), 1, "{:?}", bench.mounts());
    bench.run("mount work.pool@b one").good();
    let told = bench.run("mount a.stream two --then b.stream --json").result();
    assert_eq!((&told["source"], &told["read_only"]), (&"root@b".into(), &true.into()));
    assert_same(&bench, "one", "two");
    assert_eq!(fs::read(bench.path("two/d/f8")).unwrap(), b"new content\n");
    bench.run("unmount one two mnt").good();
}

#[test]
fn a_stream_that_is_damaged_while_it_is_mounted_gives_errors_and_no_wrong_content() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    let whole = fs::read(bench.path("a.stream")).unwrap();
    bench.run("mount a.stream two").good();
    let stream = fs::OpenOptions::new().write(true).open(bench.path("a.stream")).unwrap();
    stream.write_all_at(&vec![0; whole.len() / 3], whole.len() as u64 / 3).unwrap();
    // Most of the stream is the content of this file, which has not been changed since.
    let mut failed = 0;
    for name in (10..200).map(|index| format!("d/f{index}")).chain(["shared".to_owned()]) {
        let right = fs::read(bench.path("mnt").join(&name)).unwrap();
        match fs::read(bench.path("two").join(&name)) {
            Ok(content) => assert!(content == right, "{name} has wrong content"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "{name}: {error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0, "some of it cannot be read");
    let status = bench.run("status two");
    assert_eq!(status.status, 3, "{status:?}");
    assert!(status.out.contains("damaged"), "{status:?}");
    bench.run("unmount two mnt").good();
}
