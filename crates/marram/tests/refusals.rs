//! Bad input: each is answered with a clear error and a status that is not zero, and leaves
//! everything as it was.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn create_refuses_what_makes_no_sense_and_leaves_no_file() {
    let bench = Workbench::new();
    bench.run("create a.pool").refused(2, &["--size"]);
    bench.run("create a.pool --size lots").refused(2, &["lots", "20G"]);
    bench.run("create a.pool --size 1M").refused(1, &["a.pool", "33554432"]);
    bench.run("create a.pool --size 128M -O colour=red").refused(2, &["colour", "compression"]);
    bench.run("create a.pool --size 128M -O compression=zip").refused(2, &["zip", "zstd"]);
    bench.run("create a.pool --size 128M -O recordsize").refused(2, &["NAME=VALUE"]);
    bench.run("create no/a.pool --size 128M").refused(1, &["no/a.pool"]);
    bench.run("create . --size 128M").refused(1, &["directory"]);
    bench.run("create").refused(2, &["PATH"]);
    let left: Vec<_> = fs::read_dir(bench.path(".")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn create_overwrites_nothing_unasked_and_names_what_is_there() {
    let bench = Workbench::with_pool();
    let cases: [(&str, u64, &[u8]); 4] = [
        ("ext4.img", 0x438, b"\x53\xef"),
        ("luks.img", 0, b"LUKS\xba\xbe"),
        ("swap.img", 4086, b"SWAPSPACE2"),
        ("data.img", 5_000_000, b"x"),
    ];
    for (name, offset, bytes) in cases {
        let file = fs::File::create(bench.path(name)).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }
    let named = [
        ("ext4.img", "ext4 file system"),
        ("luks.img", "LUKS"),
        ("swap.img", "swap"),
        ("data.img", "data"),
        ("work.pool", "Marram pool"),
    ];
    for (name, what) in named {
        let before = fs::read(bench.path(name)).unwrap();
        bench.run(&format!("create {name}")).refused(1, &[name, what, "--force"]);
        assert!(before == fs::read(bench.path(name)).unwrap(), "{name} was changed");
    }
    bench.run("create ext4.img --force").good();
    bench.run("status ext4.img").good();
}

#[test]
fn a_preallocated_file_gives_its_size_and_an_empty_one_needs_one() {
    let bench = Workbench::new();
    let file = fs::File::create(bench.path("a.pool")).unwrap();
    bench.run("create a.pool").refused(2, &["empty", "--size"]);
    file.set_len(64 << 20).unwrap();
    bench.run("create a.pool --size 1G").refused(2, &["67108864"]);
    let created = bench.run("create a.pool --json").result();
    assert_eq!(created["size_bytes"], 64 << 20);
    assert_eq!(fs::metadata(bench.path("a.pool")).unwrap().len(), 64 << 20);
}

#[test]
fn grow_makes_nothing_smaller_and_says_so() {
    let bench = Workbench::with_pool();
    for size in ["64M", "1", "0"] {
        let words = ["work.pool has 134217728 bytes", "smaller", "marram send"];
        bench.run(&format!("grow work.pool --size {size}")).refused(2, &words);
    }
    let total = || bench.run("status work.pool --json").result()[0]["total_bytes"].clone();
    let before = total();
    let longer = fs::File::options().write(true).open(bench.path("work.pool")).unwrap();
    longer.set_len(160 << 20).unwrap();
    // What is asked for is done, or nothing.
    bench.run("grow work.pool --size 140M").refused(2, &["167772160"]);
    assert_eq!(total(), before);
    assert_eq!(bench.run("grow work.pool --size 160M --json").result()["size_bytes"], 160 << 20);
    bench.run("grow work.pool --size 160M").good();
    bench.run("check work.pool").good();
}

#[test]
fn what_is_no_pool_is_said_to_be_none() {
    let bench = Workbench::with_pool();
    fs::write(bench.path("empty"), "").unwrap();
    fs::write(bench.path("text"), "hello\n".repeat(100_000)).unwrap();
    fs::write(bench.path("zeros"), vec![0; 64 << 20]).unwrap();
    bench.make_folder("folder");
    let not = [("empty", "empty"), ("text", "no Marram pool"), ("zeros", "zeros")];
    for command in ["status", "list", "get", "sync", "grow"] {
        for (name, word) in not {
            bench.run(&format!("{command} {name}")).refused(1, &[name, word, "marram create"]);
        }
        bench.run(&format!("{command} nowhere")).refused(10, &["nowhere"]);
        bench.run(&format!("{command} folder")).refused(10, &["folder", "marram mount"]);
    }
    bench.make_folder("mnt");
    bench.run("mount text mnt").refused(1, &["no Marram pool"]);
    bench.run("mount nowhere mnt").refused(10, &["nowhere"]);
}

#[test]
fn a_damaged_pool_is_refused_without_a_panic() {
    let bench = Workbench::with_pool();
    let whole = fs::read(bench.path("work.pool")).unwrap();
    bench.make_folder("mnt");
    for kept in [whole.len() / 2, 1 << 20, 70_000, 4096, 100] {
        fs::write(bench.path("cut.pool"), &whole[..kept]).unwrap();
        let outcome = bench.run("status cut.pool");
        assert!(outcome.status != 0 && outcome.err.contains("cut.pool"), "{kept}: {outcome:?}");
        assert!(!outcome.err.contains("panicked"), "{outcome:?}");
        let outcome = bench.run("mount cut.pool mnt");
        assert!(outcome.status != 0 && !outcome.err.contains("panicked"), "{outcome:?}");
        assert_eq!(fs::read(bench.path("cut.pool")).unwrap(), &whole[..kept]);
    }
    assert!(bench.mounts().is_empty());
}

#[test]
fn what_is_left_of_a_pool_is_called_one_and_nobody_is_told_to_make_a_new_one() {
    let bench = Workbench::with_pool();
    let whole = fs::read(bench.path("work.pool")).unwrap();
    bench.make_folder("mnt");
    let told = |lines: &[&str], word: &str| {
        for line in lines {
            let outcome = bench.run(line);
            let text = format!("{}{}", outcome.out, outcome.err);
            assert!(outcome.status != 0 && text.contains(word), "{line}: {outcome:?}");
            assert!(!text.contains("`marram create`"), "{line}: {outcome:?}");
        }
    };
    let lines = ["status", "list", "grow", "mount", "create"].map(|verb| match verb {
        "mount" => "mount left.pool mnt".to_owned(),
        verb => format!("{verb} left.pool"),
    });
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for kept in [40 << 20, 1 << 20, 600_000, 70_000, 4096] {
        fs::write(bench.path("left.pool"), &whole[..kept]).unwrap();
        told(&lines[..4], "cut off");
        told(&["create left.pool"], "a Marram pool");
        told(&["check left.pool"], "");
    }
    let mut damaged = whole.clone();
    damaged[4096..1 << 20].fill(0x5a);
    fs::write(bench.path("left.pool"), damaged).unwrap();
    told(&lines, "Marram pool");
    told(&["status left.pool"], "marram check");
    told(&["check left.pool"], "superblock");
}

#[test]
fn mount_refuses_bad_places_and_options() {
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    fs::write(bench.path("file"), "").unwrap();
    bench.run("mount work.pool nowhere").refused(10, &["nowhere"]);
    bench.run("mount work.pool file").refused(1, &["file", "directory"]);
    bench.run("mount work.pool mnt -o readonly").refused(2, &["readonly", "known are"]);
    bench.run("mount work.pool mnt -o cache=1").refused(2, &["cache", "16M"]);
    bench.run("mount work.pool mnt -o commit=never").refused(2, &["commit", "300"]);
    bench.run("mount work.pool mnt --dataset a//b").refused(2, &["a//b"]);
    bench.run("mount work.pool@a@b mnt").refused(2, &["a@b"]);
    bench.run("unmount mnt").refused(10, &["mnt"]);
    bench.run("unmount work.pool").refused(10, &["not mounted"]);
    assert!(bench.mounts().is_empty());
}

#[test]
fn wrong_usage_has_its_own_status() {
    let bench = Workbench::with_pool();
    for line in ["", "frobnicate", "create --size", "status --what", "completions csh", "destroy"] {
        bench.run(line).refused(2, &["--help"]);
    }
    bench.run("snapshot work.pool").refused(2, &["TARGET@NAME"]);
    bench.run("clone work.pool x").refused(2, &["TARGET@NAME"]);
    bench.run("snapshot work.pool@a/b").refused(2, &["a/b"]);
    bench.run("set work.pool").refused(2, &["NAME=VALUE"]);
}

#[test]
fn an_error_is_json_too_where_that_is_asked_for() {
    let bench = Workbench::with_pool();
    let outcome = bench.run("status nowhere --json");
    assert_eq!(outcome.status, 10);
    let envelope = outcome.envelope();
    assert_eq!(envelope["command"], "status");
    assert_eq!(envelope["error"]["kind"], "not_found");
    assert!(envelope.get("result").is_none());
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let bench = Workbench::with_pool();
    let full = || fs::File::options().write(true).open("/dev/full").expect("a device");
    for json in [&["list", "work.pool"][..], &["list", "work.pool", "--json"]] {
        workbench::outcome_to(bench.command().args(json), full())
            .refused(3, &["cannot write to standard output"]);
    }
}
