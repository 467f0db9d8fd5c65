//! A cluster home whose blocks lie in a directory beside its database, as users have it.

use crate::mongo_server::MongoServer;
use crate::server::Server;
use crate::workbench::{Workbench, can_mount};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A workbench with a home `sqlite:work.db` and its blocks in `blocks`.
fn made() -> Option<Workbench> {
    if !can_mount() {
        return None;
    }
    let bench = Workbench::new();
    bench.make_folder("mnt");
    bench.run("create sqlite:work.db --blocks blocks").good();
    Some(bench)
}

/// Bytes that nothing compresses.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The files with blocks below a directory, and their bytes.
fn blocks(directory: &Path) -> Vec<(PathBuf, u64)> {
    let folders = fs::read_dir(directory).unwrap().map(|it| it.unwrap().path());
    let files = folders.filter(|it| it.is_dir()).flat_map(|it| fs::read_dir(it).unwrap());
    files.map(|file| file.unwrap()).map(|it| (it.path(), it.metadata().unwrap().len())).collect()
}

pub(crate) fn check(bench: &Workbench) {
    let checked = bench.run("check sqlite:work.db --json").result();
    assert_eq!(checked["clean"], true, "{checked}");
}

#[test]
fn a_copied_home_is_refused_and_takes_nothing_away() {
    let Some(bench) = made() else { return };
    let (mnt, directory) = (bench.path("mnt"), bench.path("blocks"));
    bench.run("mount sqlite:work.db mnt").good();
    fs::write(mnt.join("a"), noise(50_000, 1)).unwrap();
    bench.run("unmount mnt").good();
    for end in ["", "-wal"] {
        let [from, to] = ["work.db", "copy.db"].map(|name| bench.path(&format!("{name}{end}")));
        if from.exists() {
            fs::copy(from, to).unwrap();
        }
    }
    let before = blocks(&directory);
    for line in ["mount sqlite:copy.db mnt", "snapshot sqlite:copy.db@x"] {
        let words = ["another database holds the blocks", "marram-blocks-holder", "remove"];
        bench.run(line).refused(1, &words);
    }
    assert_eq!(blocks(&directory), before);
    bench.run("mount sqlite:copy.db mnt -o ro").good();
    assert_eq!(fs::read(mnt.join("a")).unwrap(), noise(50_000, 1));
    bench.run("unmount mnt").good();
    check(&bench);
    bench.run("mount sqlite:work.db mnt").good();
    assert_eq!(fs::read(mnt.join("a")).unwrap(), noise(50_000, 1));
    bench.run("unmount mnt").good();
    // Nothing else is to use it any more: then the other one takes it.
    fs::remove_file(directory.join("marram-blocks-holder")).unwrap();
    bench.run("mount sqlite:copy.db mnt").good();
    bench.run("unmount mnt").good();
    bench.run("mount sqlite:work.db mnt").refused(1, &["another database holds the blocks"]);
}

#[test]
fn content_of_homes_on_servers_lies_in_the_directory() {
    if !can_mount() {
        return;
    }
    let postgres = Server::start();
    let mongo = MongoServer::start();
    let urls = [
        postgres.as_ref().map(|server| server.place("fs", "home").to_string()),
        mongo.as_ref().map(|server| server.place("", "home").to_string()),
    ];
    for url in urls.into_iter().flatten() {
        let bench = Workbench::new();
        bench.make_folder("mnt");
        let run = |line: &str| bench.run(&line.replace("URL", &url));
        run("create URL --blocks blocks").good();
        run("mount URL mnt").good();
        let (mnt, content) = (bench.path("mnt"), noise(3 << 20, 1));
        fs::write(mnt.join("large"), &content).unwrap();
        run("snapshot mnt@a").good();
        run("fork mnt try").good();
        fs::write(mnt.join(".marram/forks/try/new"), noise(100_000, 2)).unwrap();
        run("merge mnt/.marram/forks/try").good();
        fs::remove_file(mnt.join("large")).unwrap();
        let status = run("status mnt").good().out;
        assert!(status.contains("with blocks in /"), "{status}");
        run("unmount mnt").good();
        let stored: u64 = blocks(&bench.path("blocks")).iter().map(|(_, len)| len).sum();
        assert!((3 << 20..4 << 20).contains(&stored), "{url}: content is written once: {stored}");
        run("mount URL@a mnt").good();
        assert_eq!(fs::read(mnt.join("large")).unwrap(), content);
        run("unmount mnt").good();
        let checked = run("check URL --data --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
        fs::rename(bench.path("blocks"), bench.path("away")).unwrap();
        run("mount URL mnt").refused(1, &["blocks", "bring it back"]);
    }
}

#[test]
fn content_lies_in_the_directory_and_everything_works() {
    let Some(bench) = made() else { return };
    bench.run("mount sqlite:work.db mnt").good();
    let (mnt, directory) = (bench.path("mnt"), bench.path("blocks"));
    let content = noise(3 << 20, 1);
    fs::write(mnt.join("large"), &content).unwrap();
    bench.run("snapshot mnt@a").good();
    bench.run("fork mnt try").good();
    fs::write(mnt.join(".marram/forks/try/new"), noise(100_000, 2)).unwrap();
    bench.run("merge mnt/.marram/forks/try").good();
    let status = bench.run("status mnt").good().out;
    assert!(status.contains("SQLite with blocks in /"), "{status}");
    assert!(status.contains(&directory.display().to_string()), "{status}");
    let space = bench.run("space mnt --json").result();
    assert!(space["allocated_bytes"].as_u64().unwrap() > 3 << 20, "{space}");
    assert!(space["in_database"]["database_bytes"].as_u64().unwrap() < 1 << 20, "{space}");
    let stored: u64 = blocks(&directory).iter().map(|(_, len)| len).sum();
    assert!(stored > 3 << 20, "{stored}");
    bench.run("unmount mnt").good();
    check(&bench);
    assert!(fs::metadata(bench.path("work.db")).unwrap().len() < 1 << 20);
    bench.run("mount sqlite:work.db mnt").good();
    assert_eq!(fs::read(mnt.join("large")).unwrap(), content);
    // To a pool, and back into a home with its blocks elsewhere.
    bench.run("create work.pool --size 128M").good();
    bench.run("create sqlite:other.db --blocks other").good();
    let shell = |line: &str| bench.host(&["sh", "-c", &line.replace("marram", MARRAM)]).good();
    shell("marram send mnt@a | marram receive work.pool copy");
    shell("marram send work.pool@a --dataset copy | marram receive sqlite:other.db back");
    bench.run("unmount mnt").good();
    bench.run("mount sqlite:other.db mnt --dataset back").good();
    assert_eq!(fs::read(mnt.join("large")).unwrap(), content);
    bench.run("unmount mnt").good();
    let checked = bench.run("check sqlite:other.db --json").result();
    assert_eq!(checked["clean"], true, "{checked}");
}

const MARRAM: &str = env!("CARGO_BIN_EXE_marram");

#[test]
fn what_fsync_acknowledged_survives_kills_in_the_middle_of_work() {
    let Some(bench) = made() else { return };
    let mnt = bench.path("mnt");
    let mut kept: Vec<(PathBuf, u64)> = Vec::new();
    for round in 0..3_u64 {
        bench.run("mount sqlite:work.db mnt").good();
        for which in 0..15 {
            let (path, seed) = (mnt.join(format!("{round}-{which}")), round * 100 + which);
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(&noise(40_000, seed)).unwrap();
            file.sync_all().unwrap();
            kept.push((path, seed));
        }
        // It dies while blocks of this one are being written.
        fs::write(mnt.join("not synced"), noise(8 << 20, round)).unwrap();
        std::thread::sleep(Duration::from_millis(900 + 100 * round));
        kill(&bench);
        check(&bench);
    }
    bench.run("mount sqlite:work.db mnt").good();
    for (path, seed) in &kept {
        assert_eq!(fs::read(path).unwrap(), noise(40_000, *seed), "{}", path.display());
    }
    bench.run("unmount mnt").good();
    check(&bench);
}

fn kill(bench: &Workbench) {
    let pid = Pid::from_raw(bench.daemon_pid("mnt")).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let began = Instant::now();
    while test_kill_process(pid).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.host(&["umount", "-l", "mnt"]).good();
}

#[test]
fn a_lost_or_changed_block_is_an_error_that_names_it() {
    let Some(bench) = made() else { return };
    let mnt = bench.path("mnt");
    bench.run("mount sqlite:work.db mnt").good();
    fs::write(mnt.join("lost"), noise(50_000, 1)).unwrap();
    bench.run("sync mnt").good();
    let lost = blocks(&bench.path("blocks"));
    fs::write(mnt.join("changed"), noise(50_000, 2)).unwrap();
    fs::write(mnt.join("whole"), noise(50_000, 3)).unwrap();
    bench.run("unmount mnt").good();
    let lost = &lost[0].0;
    fs::remove_file(lost).unwrap();
    let found = bench.run("check sqlite:work.db --data");
    assert_eq!(found.status, 3, "{found:?}");
    let name = lost.file_name().unwrap().to_str().unwrap();
    assert!(found.out.contains(name) && found.out.contains("is gone"), "{found:?}");
    bench.run("mount sqlite:work.db mnt").good();
    let failed = fs::read(mnt.join("lost")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    assert_eq!(fs::read(mnt.join("whole")).unwrap(), noise(50_000, 3));
    let told = bench.run("status mnt").out + &bench.log();
    assert!(told.contains(name) && told.contains("bring it back"), "{told}");
    bench.run("unmount mnt");
}

#[test]
fn a_directory_that_is_not_there_or_another_ones_is_refused() {
    let Some(bench) = made() else { return };
    let blocks = bench.path("blocks");
    fs::rename(&blocks, bench.path("away")).unwrap();
    bench.run("mount sqlite:work.db mnt").refused(1, &["blocks", "bring it back"]);
    bench.run("check sqlite:work.db").refused(1, &["blocks", "bring it back"]);
    fs::create_dir(&blocks).unwrap();
    bench.run("mount sqlite:work.db mnt").refused(1, &["marram-blocks", "mount its file system"]);
    bench.run("create sqlite:other.db --blocks blocks").good();
    bench.run("mount sqlite:work.db mnt").refused(1, &["another home"]);
    // What is refused leaves nothing.
    bench.run("create sqlite:third.db --blocks blocks").refused(1, &["not empty"]);
    assert!(!bench.path("third.db").exists());
    bench.run("create sqlite:third.db --blocks gs://bucket/x").refused(2, &["gs://", "s3://"]);
    let key = bench.run("create sqlite:third.db --blocks s3://id:secret@bucket/x");
    assert!(!format!("{key:?}").contains("secret"), "{key:?}");
    key.refused(2, &["keys come from the environment"]);
    bench.run("create sqlite:third.db --blocks s3://bucket/x").refused(2, &["AWS_ACCESS_KEY_ID"]);
    assert!(!bench.path("third.db").exists());
    bench.run("create third.pool --size 64M --blocks there").refused(2, &["--blocks"]);
    bench.run("create sqlite:there/third.db --blocks there2").refused(10, &["third.db"]);
    assert!(!bench.path("there2").exists());
}

#[test]
fn a_full_directory_fails_the_sync_and_loses_nothing_that_was_synced() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Workbench::new();
    bench.make_folder("mnt");
    bench.make_folder("small");
    bench.host(&["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", "small"]).good();
    let _small = Unmounted(bench.path("small"));
    bench.run("create sqlite:work.db --blocks small").good();
    bench.run("mount sqlite:work.db mnt").good();
    let mnt = bench.path("mnt");
    let write = |name: &str, len: usize, seed: u64| -> std::io::Result<()> {
        let mut file = fs::File::create(mnt.join(name))?;
        file.write_all(&noise(len, seed))?;
        file.sync_all()
    };
    write("kept", 2 << 20, 1).unwrap();
    let full = write("large", 12 << 20, 2).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(28), "{full}");
    assert_eq!(fs::read(mnt.join("kept")).unwrap(), noise(2 << 20, 1));
    fs::remove_file(mnt.join("large")).unwrap();
    bench.run("sync mnt").good();
    bench.run("unmount mnt").good();
    bench.run("mount sqlite:work.db mnt").good();
    assert_eq!(fs::read(mnt.join("kept")).unwrap(), noise(2 << 20, 1));
    assert!(!mnt.join("large").exists());
    bench.run("unmount mnt").good();
    check(&bench);
}

/// A file system that is unmounted at the end of a test.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _done = umount.arg("-l").arg(&self.0).status();
    }
}
