//! Loop devices over files that pools lie in: what is done to the device is done to the file, so
//! the lock of the one is the lock of the other.

use crate::workbench::{Attached, Workbench, can_mount, mounted};
use std::fs;

#[test]
fn a_device_over_the_file_of_a_mounted_pool_is_in_use() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    let process = format!("process {}", bench.daemon_pid("mnt"));
    for words in ["", "--offset 1048576", "--sizelimit 67108864"] {
        let Some(device) = Attached::to(&bench, "work.pool", words) else { return };
        for command in ["create --force", "check"] {
            let words = ["work.pool", "in use", &process];
            bench.run(&format!("{command} {}", device.path)).refused(11, &words);
        }
    }
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
    bench.run("mount work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    bench.run("unmount mnt").good();
}

#[test]
fn a_second_device_over_the_same_file_is_in_use_too() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    let attach = || Attached::to(&bench, "work.pool", "");
    let (Some(one), Some(other)) = (attach(), attach()) else { return };
    bench.run(&format!("mount {} mnt", one.path)).good();
    bench.run(&format!("create --force {}", other.path)).refused(11, &["work.pool", "in use"]);
    bench.run("create --force work.pool").refused(11, &["work.pool", "in use"]);
    bench.run("unmount mnt").good();
    bench.run(&format!("create --force {}", other.path)).good();
}

#[test]
fn pools_in_two_parts_of_one_file_are_apart() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    let image = fs::File::create(bench.path("image")).unwrap();
    image.set_len(128 << 20).unwrap();
    let part = |words: &str| Attached::to(&bench, "image", words);
    let (Some(one), Some(other)) = (part("--sizelimit 67108864"), part("--offset 67108864")) else {
        return;
    };
    for (device, at) in [(&one, "one"), (&other, "two")] {
        bench.make_folder(at);
        bench.run(&format!("create {}", device.path)).good();
        bench.run(&format!("mount {} {at}", device.path)).good();
    }
    bench.run("create --force image --size 128M").refused(11, &["image", "in use"]);
    for at in ["one", "two"] {
        bench.run(&format!("unmount {at}")).good();
    }
}

#[test]
fn another_file_at_the_path_that_a_device_tells_is_another() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    for folder in ["place", "over", "mnt"] {
        bench.make_folder(folder);
    }
    bench.run("create place/one.pool --size 64M").good();
    let Some(device) = Attached::to(&bench, "place/one.pool", "") else { return };
    bench.host(&["mount", "--bind", "over", "place"]).good();
    bench.run("create place/one.pool --size 64M").good();
    bench.run("mount place/one.pool mnt").good();
    bench.run(&format!("check {} --data", device.path)).good();
    bench.run("unmount mnt").good();
    // Whatever looks at all mounts of the machine may be looking at this one.
    bench.host(&["umount", "-l", "place"]).good();
    bench.run("create --force place/one.pool").refused(11, &["in use by the loop device"]);
}
