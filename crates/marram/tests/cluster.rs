//! The cluster home as users have it, in a SQLite file: made, mounted, forked and merged, killed in
//! the middle of work, and what it has not.

use crate::workbench::{Workbench, can_mount};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A workbench with a home `sqlite:work.db`.
struct Place {
    bench: Workbench,
}

impl Place {
    fn new() -> Option<Place> {
        if !can_mount() {
            return None;
        }
        let bench = Workbench::new();
        bench.make_folder("mnt");
        let made = bench.run("create sqlite:work.db").good();
        assert_eq!(made.out, "created a cluster home in work.db\n");
        Some(Place { bench })
    }

    fn run(&self, line: &str) -> crate::workbench::Outcome {
        self.bench.run(line)
    }

    fn mount(&self) -> PathBuf {
        self.run("mount sqlite:work.db mnt").good();
        self.bench.path("mnt")
    }

    /// Kills the daemon, and returns when it and the mount are gone.
    fn kill(&self) {
        let pid = Pid::from_raw(self.bench.daemon_pid("mnt")).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let began = Instant::now();
        while test_kill_process(pid).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.bench.host(&["umount", "-l", "mnt"]).good();
    }

    fn check(&self) {
        let checked = self.run("check sqlite:work.db --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
        assert!(checked["items"].as_u64().unwrap() > 0, "{checked}");
    }
}

fn read(path: &std::path::Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_tree_is_made_snapshot_forked_compared_and_merged() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    fs::create_dir_all(mnt.join("src/deep")).unwrap();
    fs::write(mnt.join("src/a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(mnt.join("src/deep/large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(mnt.join("src/a.txt"), mnt.join("same")).unwrap();
    place.run("snapshot mnt@before").good();
    place.run("fork mnt try").good();
    let fork = mnt.join(".marram/forks/try");
    fs::write(fork.join("src/a.txt"), "one\ntwo\nthree\nfour\n").unwrap();
    fs::write(fork.join("new"), "from the fork").unwrap();
    fs::write(mnt.join("src/b.txt"), "meanwhile").unwrap();
    assert_eq!(read(&mnt.join("src/a.txt")), "one\ntwo\nthree\n");
    let differs = place.run("diff mnt/.marram/forks/try --json").good().out;
    assert!(differs.contains("/new") && differs.contains("/same"), "{differs}");
    place.run("merge mnt/.marram/forks/try").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "one\ntwo\nthree\nfour\n");
    assert_eq!(read(&mnt.join("new")), "from the fork");
    assert_eq!(read(&mnt.join("src/b.txt")), "meanwhile");
    assert_eq!(read(&mnt.join(".marram/snapshots/before/src/a.txt")), "one\ntwo\nthree\n");
    assert_eq!(fs::read(mnt.join("src/deep/large")).unwrap(), vec![7; 3 << 20]);
    place.run("unmount sqlite:work.db").good();
    place.check();
    let listed = place.run("list sqlite:work.db").good().out;
    assert!(listed.contains("root@before") && listed.contains("try"), "{listed}");
    place.run("destroy fork sqlite:work.db try --yes").good();
    place.run("destroy snapshot sqlite:work.db before --yes").good();
    place.run("mount work.db mnt").good();
    assert_eq!(read(&mnt.join("same")), "one\ntwo\nthree\nfour\n");
    place.run("unmount mnt").good();
    place.check();
}

/// Takes one row of the newest items out of a copy of a home; says how many there are.
const WITHOUT_A_ROW: &str = r#"
import shutil, sqlite3, sys
home, copy, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
shutil.copy(home, copy)
rows = sqlite3.connect(copy, isolation_level=None)
keys = [key for key, in rows.execute("SELECT key FROM heads ORDER BY key")]
rows.execute("DELETE FROM heads WHERE key = ?", [keys[number]])
rows.close()
print(len(keys))
"#;

/// A row that is gone breaks no seal: what the file system is without it says so.
#[test]
fn a_row_that_is_gone_is_found_by_what_it_meant() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    fs::create_dir(mnt.join("d")).unwrap();
    fs::write(mnt.join("d/file"), "content").unwrap();
    std::os::unix::fs::symlink("file", mnt.join("d/link")).unwrap();
    fs::hard_link(mnt.join("d/file"), mnt.join("again")).unwrap();
    place.run("unmount mnt").good();
    place.check();
    let without = |number: usize| -> usize {
        let number = number.to_string();
        let words = ["python3", "-c", WITHOUT_A_ROW, "work.db", "copy.db", &number];
        place.bench.host(&words).good().out.trim().parse().unwrap()
    };
    for number in 0..without(0) {
        without(number);
        place.run("check sqlite:copy.db").refused(3, &[]);
    }
}

#[test]
fn what_fsync_acknowledged_survives_a_killed_daemon() {
    let Some(place) = Place::new() else { return };
    let mut kept: Vec<(PathBuf, String)> = Vec::new();
    for round in 0..3_u8 {
        let mnt = place.mount();
        for (path, content) in &kept {
            assert_eq!(&read(path), content, "before round {round}");
        }
        for which in 0..20 {
            let path = mnt.join(format!("{round}-{which}"));
            let content = format!("{round} {which} ").repeat(3000);
            let mut file = fs::File::create(&path).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            file.sync_all().unwrap();
            kept.push((path, content));
        }
        fs::write(mnt.join("not synced"), "perhaps").unwrap();
        place.kill();
        // A client that died is no reason to wait, or to refuse.
        place.check();
    }
    let mnt = place.mount();
    for (path, content) in &kept {
        assert_eq!(&read(path), content);
    }
    assert!(mnt.is_dir());
    place.run("unmount mnt").good();
    place.check();
}

#[test]
fn what_was_closed_survives_a_killed_daemon_if_asked_for() {
    let Some(place) = Place::new() else { return };
    place.run("mount sqlite:work.db mnt -o close=publish,strict").good();
    let mnt = place.bench.path("mnt");
    for round in 0..5 {
        let name = format!("closed {round}");
        fs::write(mnt.join(&name), name.repeat(1000)).unwrap();
        place.kill();
        place.run("mount sqlite:work.db mnt -o close=publish").good();
        assert_eq!(read(&mnt.join(&name)), name.repeat(1000));
    }
    let status = place.run("status mnt").good().out;
    assert!(status.contains("close=publish"), "{status}");
    place.run("unmount mnt").good();
    place.run("mount sqlite:work.db mnt -o close=never").refused(2, &["auto, publish, later"]);
    place.check();
}

#[test]
fn a_second_client_is_refused_through_the_database() {
    let Some(place) = Place::new() else { return };
    place.mount();
    let pid = place.bench.daemon_pid("mnt");
    // The verifier asks no daemon: only the database says that one has it.
    let words = ["in use by", &format!("process {pid} on ")];
    place.run("check sqlite:work.db").refused(11, &words);
    place.run("unmount mnt").good();
    place.check();
}

#[test]
fn a_dataset_goes_back_to_a_snapshot_and_forth_again() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    fs::create_dir(mnt.join("src")).unwrap();
    fs::write(mnt.join("src/a.txt"), "first").unwrap();
    place.run("snapshot mnt@one").good();
    fs::write(mnt.join("src/a.txt"), "second").unwrap();
    fs::write(mnt.join("src/b.txt"), "later").unwrap();
    place.run("snapshot mnt@two").good();
    let mut open = fs::OpenOptions::new().append(true).open(mnt.join("src/a.txt")).unwrap();
    let told = place.run("rollback mnt@one --json").result();
    assert_eq!(told["kept"], "root@before-rollback-1", "{told}");
    assert_eq!(read(&mnt.join("src/a.txt")), "first");
    assert!(!mnt.join("src/b.txt").exists());
    open.write_all(b" and more").unwrap();
    drop(open);
    assert_eq!(read(&mnt.join("src/a.txt")), "first and more");
    assert_eq!(read(&mnt.join(".marram/snapshots/two/src/b.txt")), "later");
    place.kill();
    let mnt = place.mount();
    place.run("rollback mnt@two --json").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "second");
    assert_eq!(read(&mnt.join("src/b.txt")), "later");
    fs::write(mnt.join("src/b.txt"), "changed").unwrap();
    place.run("rollback mnt/src@one").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "first");
    assert!(!mnt.join("src/b.txt").exists());
    place.run("unmount mnt").good();
    place.check();
    place.run("destroy snapshot sqlite:work.db one --yes").refused(11, &["two lines"]);
    for snapshot in ["before-rollback-2", "one", "before-rollback-1", "two"] {
        place.run(&format!("destroy snapshot sqlite:work.db {snapshot} --yes")).good();
    }
    place.run("mount sqlite:work.db mnt").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "first");
    place.run("unmount mnt").good();
    place.check();
}

#[test]
fn a_clone_takes_over_what_it_began_as() {
    let Some(place) = Place::new() else { return };
    place.run("create sqlite:work.db --dataset data").good();
    place.run("mount sqlite:work.db mnt --dataset data").good();
    let mnt = place.bench.path("mnt");
    fs::write(mnt.join("a"), "first").unwrap();
    place.run("snapshot mnt@one").good();
    place.run("clone mnt@one copy").good();
    place.run("unmount mnt").good();
    place.run("promote sqlite:work.db copy").good();
    let listed = place.run("list sqlite:work.db -H").good().out;
    assert!(listed.contains("copy@one") && !listed.contains("data@one"), "{listed}");
    place.run("destroy dataset sqlite:work.db data --yes").good();
    place.run("mount sqlite:work.db mnt --dataset copy").good();
    assert_eq!(read(&mnt.join("a")), "first");
    place.run("unmount mnt").good();
    place.check();
}

#[test]
fn the_log_tells_what_was_done_and_an_undo_takes_it_back() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    fs::write(mnt.join("a"), "one\n").unwrap();
    place.run("snapshot mnt@s").good();
    place.run("fork mnt work").good();
    fs::write(mnt.join(".marram/forks/work/new"), "new\n").unwrap();
    place.run("merge mnt/.marram/forks/work --drop").good();
    let rows = place.run("log mnt --json").result();
    let told: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(told, ["snapshot", "fork", "merge", "destroy"]);
    assert_eq!(rows[0]["command"], "marram snapshot mnt@s");
    assert_eq!(rows[0]["user"], rustix::process::getuid().as_raw());
    // The merge and the end of its fork are one step, which goes back and forth.
    for is_merged in [false, true] {
        place.run("undo mnt").good();
        let is_there = (mnt.join("new").exists(), mnt.join(".marram/forks/work/new").exists());
        assert_eq!(is_there, (is_merged, !is_merged));
    }
    let log = place.run("log mnt").good().out;
    assert!(log.contains("merge the state before operation 3 into"), "{log}");
    assert!(!log.contains("undo:"), "names that no user knows: {log}");
    place.run("rollback mnt@s").good();
    assert!(!mnt.join("new").exists());
    // A daemon that is killed leaves the log, and what it keeps.
    place.kill();
    let mnt = place.mount();
    place.run("undo mnt").good();
    assert_eq!(read(&mnt.join("new")), "new\n");
    place.run("snapshot mnt@t").good();
    fs::write(mnt.join("a"), "two\n").unwrap();
    place.run("destroy snapshot mnt@t --yes").good();
    assert!(!mnt.join(".marram/snapshots/t").exists());
    place.run("unmount mnt").good();
    let listed = place.run("list sqlite:work.db -H --all").good().out;
    assert!(!listed.contains("undo:"), "{listed}");
    place.run("undo sqlite:work.db").good();
    let mnt = place.mount();
    assert_eq!(read(&mnt.join(".marram/snapshots/t/a")), "one\n");
    place.run("unmount mnt").good();
    place.check();
}

#[test]
fn snapshots_are_taken_by_themselves_and_thinned() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    place.run("set mnt snapshots=1d:2,3w:3").good();
    let got = place.run("get mnt snapshots -H").good().out;
    assert_eq!(got.trim(), "root\tsnapshots\t1d:2,3w:3\tlocal");
    place.run("set mnt snapshots=hourly").refused(2, &["snapshots", "15m:8,1h:24,1d:7"]);
    fs::write(mnt.join("a"), "one\n").unwrap();
    let began = Instant::now();
    let row = loop {
        let row = place.run("status mnt --json").result()[0]["snapshots"][0].clone();
        if row["count"] == 1 {
            break row;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{row}: {}", place.bench.log());
        std::thread::sleep(Duration::from_millis(200));
    };
    let name = row["newest"].as_str().unwrap();
    assert_eq!(read(&mnt.join(format!(".marram/snapshots/{name}/a"))), "one\n");
    assert!(!place.run("log mnt").good().out.contains("auto:"), "users have not done it");
    for day in 1..=3 {
        place.run(&format!("snapshot mnt@auto-2020-01-0{day}T12-00-00Z")).good();
    }
    place.run("hold mnt@auto-2020-01-01T12-00-00Z why").good();
    let done = place.run("snapshot mnt --keep 2d --json").result();
    let gone = &done["thinned"]["destroyed"];
    assert_eq!(gone.as_array().unwrap().len(), 1, "{done}");
    assert_eq!(gone[0], "root@auto-2020-01-02T12-00-00Z");
    assert_eq!(done["thinned"]["stayed"][0]["reason"], "held: why");
    assert!(!mnt.join(".marram/snapshots/auto-2020-01-02T12-00-00Z").exists());
    assert!(mnt.join(format!(".marram/snapshots/{name}")).exists(), "no rule of --keep is of it");
    place.run("unmount mnt").good();
    place.run("snapshot sqlite:work.db --keep 1 --dry-run --json").result();
    place.check();
}

#[test]
fn space_is_told_by_who_sees_it() {
    let Some(place) = Place::new() else { return };
    let mnt = place.mount();
    fs::write(mnt.join("a"), vec![1; 120_000]).unwrap();
    place.run("snapshot mnt@s").good();
    fs::write(mnt.join("a"), vec![2; 90_000]).unwrap();
    place.run("snapshot mnt@t").good();
    fs::write(mnt.join("a"), vec![3; 50_000]).unwrap();
    place.run("destroy snapshot mnt@t --yes").good();
    let mut told = Vec::new();
    for target in ["mnt", "sqlite:work.db"] {
        if target != "mnt" {
            place.run("unmount mnt").good();
        }
        let space = place.run(&format!("space {target} --json")).result();
        let bytes = |name: &str| space["in_database"][name].as_u64().unwrap();
        let near = |bytes: u64, wanted: u64| (wanted..wanted + 2000).contains(&bytes);
        assert!(near(bytes("live_bytes"), 50_000), "{space}");
        assert!(near(bytes("snapshot_bytes"), 120_000), "{space}");
        assert!(near(bytes("undo_bytes"), 90_000), "{space}");
        assert!(bytes("database_bytes") > 0, "{space}");
        let kinds: Vec<&str> = space["holders"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["dataset", "snapshot", "kept"]);
        let text = place.run(&format!("space {target}")).good().out;
        assert!(text.contains("kept for an undo alone") && text.contains("root@s"), "{text}");
        told.push(space["allocated_bytes"].clone());
        let freed = place.run(&format!("space {target}@s --json")).result();
        assert!(near(freed["freed_bytes"].as_u64().unwrap(), 120_000), "{freed}");
    }
    assert_eq!(told[0], told[1]);
    place.check();
}

#[test]
fn what_it_has_not_is_refused_by_name() {
    let Some(place) = Place::new() else { return };
    place.run("create sqlite:work.db").refused(1, &["work.db"]);
    place.run("create sqlite:other.db --size 1G").refused(2, &["grows by itself"]);
    assert!(!place.bench.path("other.db").exists());
    for mounted in [false, true] {
        let target = if mounted { "mnt" } else { "sqlite:work.db" };
        if mounted {
            place.mount();
        }
        place.run(&format!("space {target} --sharing")).refused(2, &["account of the space"]);
        place.run(&format!("set {target} compression=zstd")).refused(2, &["recordsize"]);
        place.run(&format!("label {target} name")).refused(2, &["label"]);
    }
    let status = place.run("status mnt").good().out;
    assert!(status.contains("SQLite") && status.contains("online"), "{status}");
    place.run("unmount mnt").good();
    fs::write(place.bench.path("text"), "no home").unwrap();
    place.run("mount sqlite:text mnt").refused(1, &["text"]);
    place.run("check sqlite:missing.db").refused(10, &["missing.db"]);
}
