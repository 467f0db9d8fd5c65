//! Content of files on a mounted pool: `marram range`, `marram reflink`, `marram extents`, and
//! reading without a trace.

use crate::workbench::{Workbench, can_mount, mounted, outcome};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;

/// `O_NOATIME` and `O_DIRECT`.
const NO_ACCESS_TIME: i32 = 0o1_000_000;
const DIRECT: i32 = 0o40_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn unmount(bench: &Workbench) {
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
}

/// Kinds and places of a file's extents.
fn extents(bench: &Workbench, file: &str) -> Vec<Value> {
    let told = bench.run(&format!("extents {file} --json")).result();
    told.as_array().unwrap().clone()
}

#[test]
fn ranges_are_taken_out_and_put_in() {
    let Some(bench) = mounted() else { return };
    let file = bench.path("mnt/file");
    let mut expected = pattern(1_000_000);
    fs::write(&file, &expected).unwrap();
    bench.run("sync mnt").good();
    let told = bench.run("range collapse mnt/file 1001 300K --json").result();
    expected.drain(1001..1001 + 300 * 1024);
    assert_eq!(told["size"], expected.len());
    assert!(fs::read(&file).unwrap() == expected);
    bench.run("range insert mnt/file 5 70000").good();
    expected.splice(5..5, [0; 70_000]);
    assert!(fs::read(&file).unwrap() == expected);
    bench.run("range unshare mnt/file 0 1M").good();
    assert!(fs::read(&file).unwrap() == expected);
    bench.run("range collapse mnt/file 0 1M").refused(1, &["mnt/file", "truncate"]);
    bench.run("range insert mnt/file 1M 1").refused(1, &["mnt/file", "truncate"]);
    bench.run("range collapse mnt 0 1").refused(1, &["mnt"]);
    fs::write(bench.path("elsewhere"), "content").unwrap();
    bench.run("range collapse elsewhere 0 1").refused(1, &["elsewhere", "not on a mounted Marram"]);
    unmount(&bench);
    bench.run("mount work.pool mnt").good();
    assert!(fs::read(&file).unwrap() == expected);
    bench.run("unmount mnt").good();
}

#[test]
fn a_reflink_shares_and_never_copies() {
    let Some(bench) = mounted() else { return };
    let content = pattern(500_000);
    fs::write(bench.path("mnt/from"), &content).unwrap();
    bench.run("sync mnt").good();
    let told = bench.run("reflink mnt/from mnt/to --json").result();
    assert_eq!(told["shared_bytes"], 500_000);
    assert!(fs::read(bench.path("mnt/to")).unwrap() == content);
    bench.run("snapshot mnt@commit").good();
    let (from, to) = (extents(&bench, "mnt/from"), extents(&bench, "mnt/to"));
    assert_eq!(from, to, "the same blocks");
    assert!(from.iter().all(|row| row["kind"] == "data" && row["block"]["shared"] == true));
    bench.run("reflink mnt/from mnt/to --range 10:100:499990").good();
    let expected = [&content[..499_990], &content[10..110]].concat();
    assert!(fs::read(bench.path("mnt/to")).unwrap() == expected);
    bench.run("reflink mnt/from mnt/to").good();
    assert!(fs::read(bench.path("mnt/to")).unwrap() == content, "cut to the source's size");
    bench.run("reflink mnt/from mnt/to --range 500000:1").refused(2, &["mnt/from", "500000"]);
    bench.run("reflink mnt/from mnt/from --range 0:10:5").refused(1, &["mnt/from"]);
    bench.run("reflink mnt/from elsewhere").refused(1, &["different mounts", "cp"]);
    assert!(!bench.path("elsewhere").exists(), "what was made for it is gone");
    unmount(&bench);
}

#[test]
fn another_mount_cannot_share() {
    let Some(bench) = mounted() else { return };
    bench.run("create mnt --dataset other").good();
    bench.make_folder("other");
    bench.run("mount work.pool other --dataset other").good();
    fs::write(bench.path("mnt/from"), pattern(10_000)).unwrap();
    fs::write(bench.path("other/to"), "old").unwrap();
    bench.run("reflink mnt/from other/to").refused(1, &["different mounts", ".marram/forks"]);
    assert_eq!(fs::read(bench.path("other/to")).unwrap(), b"old");
    bench.run("unmount other").good();
    unmount(&bench);
}

#[test]
fn a_user_needs_the_rights_to_read_and_to_write() {
    let Some(bench) = mounted() else { return };
    let modes = [("open", 0o666), ("secret", 0o600), ("readable", 0o644)];
    for (name, mode) in modes {
        let path = bench.path(&format!("mnt/{name}"));
        fs::write(&path, pattern(10_000)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let user = |line: &str| {
        let mut command = bench.command_for_others();
        outcome(command.args(line.split(' ')).uid(65_534).gid(65_534))
    };
    user("reflink mnt/readable mnt/open").good();
    user("reflink mnt/secret mnt/open").refused(1, &["secret", "Permission denied"]);
    user("reflink mnt/open mnt/readable").refused(1, &["readable", "Permission denied"]);
    user("range collapse mnt/open 0 10").good();
    user("range collapse mnt/readable 0 10").refused(1, &["Permission denied"]);
    user("extents mnt/readable").good();
    bench.run("range unshare mnt/secret 0 10").good();
    unmount(&bench);
}

#[test]
fn extents_tell_holes_and_blocks() {
    let Some(bench) = mounted() else { return };
    let file = bench.path("mnt/file");
    // A page that cannot be compressed, again and again: too much for the pointer itself.
    let page: Vec<u8> =
        (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
    fs::write(&file, page.repeat(32)).unwrap();
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(300_000).unwrap();
    bench.run("snapshot mnt@commit").good();
    let rows = extents(&bench, "mnt/file");
    assert_eq!(rows.len(), 2, "{rows:?}");
    let block = &rows[0]["block"];
    assert_eq!((&rows[0]["offset"], &rows[0]["length"]), (&0.into(), &131_072.into()));
    assert!(block["stored_bytes"].as_u64().unwrap() <= 8192, "it is compressed: {block}");
    assert_eq!(block["block_bytes"], 131_072);
    assert!(block["address"].as_u64().unwrap().is_multiple_of(4096));
    assert_eq!(rows[1], serde_json::json!({"offset": 131_072, "length": 168_928, "kind": "hole"}));
    let text = bench.run("extents mnt/file -H -p").good().out;
    assert!(text.starts_with("0\t131072\tdata\t0\t"), "{text}");
    assert!(text.ends_with("131072\t168928\thole\t-\t-\t-\t-\t-\t-\n"), "{text}");
    bench.run("extents mnt").refused(2, &["no regular file"]);
    unmount(&bench);
}

#[test]
fn reading_with_o_noatime_moves_no_time() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt -o strictatime").good();
    let file = bench.path("mnt/file");
    fs::write(&file, "content").unwrap();
    // The kernel asks for nothing that it has cached.
    let read = |flags: i32| {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(flags | DIRECT);
        let mut bytes = vec![0; 4096];
        options.open(&file).unwrap().read_at(&mut bytes, 0).unwrap();
        let found = fs::metadata(&file).unwrap();
        (found.atime(), found.atime_nsec())
    };
    let before = read(NO_ACCESS_TIME);
    assert_eq!(read(NO_ACCESS_TIME), before);
    assert!(read(0) > before);
    unmount(&bench);
}
