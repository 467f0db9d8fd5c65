//! What the daemon keeps for each inode that the kernel knows: as long as the kernel knows it, and
//! no longer.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

const FILES: u64 = 1000;

/// As `marram status` tells.
fn known(bench: &Workbench) -> u64 {
    let status = bench.run("status work.pool --json").result();
    status[0]["daemon"]["known_inodes"].as_u64().expect("a number of inodes")
}

/// The kernel tells a moment later of what it has forgotten.
fn wait_until_known(bench: &Workbench, expected: u64) {
    let began = Instant::now();
    while known(bench) != expected {
        let told = known(bench);
        assert!(began.elapsed() < Duration::from_secs(20), "{told} and not {expected} are known");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_removed_is_known_no_longer_but_for_what_is_open() {
    let Some(bench) = workbench::mounted() else { return };
    let (begun, folder) = (known(&bench), bench.path("mnt/folder"));
    fs::create_dir(&folder).expect("a folder");
    for number in 0..FILES {
        fs::write(folder.join(number.to_string()), format!("content of {number}")).expect("a file");
    }
    fs::hard_link(folder.join("7"), folder.join("another name of 7")).expect("a link");
    // Not in that folder: the kernel does not forget the directory of what is open.
    let path = bench.path("mnt/open");
    fs::write(&path, "content of what is open").expect("a file");
    wait_until_known(&bench, begun + 1 + FILES + 1);

    let open = fs::OpenOptions::new().read(true).write(true).open(&path);
    let mut open = open.expect("opened");
    let number = open.metadata().expect("metadata").ino();
    fs::remove_file(&path).expect("removed");
    fs::remove_dir_all(&folder).expect("removed");
    wait_until_known(&bench, begun + 1);
    assert!(bench.run("status mnt").good().out.contains("inodes known to the kernel"));
    open.write_all(b"CONTENT").expect("written");
    bench.run("sync mnt").good();
    fs::write(bench.path("mnt/new"), "another file").expect("a file");
    let mut content = String::new();
    open.rewind().and_then(|()| open.read_to_string(&mut content)).expect("read");
    assert_eq!(content, "CONTENT of what is open");
    let metadata = open.metadata().expect("metadata");
    assert_eq!((metadata.ino(), metadata.nlink()), (number, 0));
    assert_ne!(fs::metadata(bench.path("mnt/new")).expect("metadata").ino(), number);
    drop(open);
    wait_until_known(&bench, begun + 1);
    bench.run("unmount mnt").good();
}

#[test]
fn inodes_of_a_snapshot_below_marram_are_known_too_until_it_is_destroyed() {
    let Some(bench) = workbench::mounted() else { return };
    let folder = bench.path("mnt/folder");
    fs::create_dir(&folder).expect("a folder");
    for number in 0..100 {
        fs::write(folder.join(number.to_string()), "content").expect("a file");
    }
    bench.run("snapshot mnt@one").good();
    let begun = known(&bench);
    for number in 0..100 {
        let shown = bench.path("mnt/.marram/snapshots/one/folder").join(number.to_string());
        assert!(fs::metadata(shown).expect("metadata").is_file());
    }
    assert!(known(&bench) >= begun + 101);
    bench.run("destroy snapshot mnt@one --yes --now").good();
    wait_until_known(&bench, begun);
    bench.run("unmount mnt").good();
}
