//! Snapshots that go from a cluster home into a pool and back, as users send them.

use crate::server::Server;
use crate::tree::{assert_same, fill, half_received, shell};
use crate::workbench::{Outcome, Workbench, can_mount};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A workbench with a pool and a cluster home that has a tree.
struct Place {
    bench: Workbench,
    home: String,
    _server: Option<Server>,
}

impl Place {
    fn new(server: Option<Server>) -> Place {
        let bench = Workbench::with_pool();
        let home = match &server {
            Some(server) => server.place("fs", "home").to_string(),
            None => "sqlite:work.db".to_owned(),
        };
        for folder in ["mnt", "one", "two"] {
            bench.make_folder(folder);
        }
        let place = Place { bench, home, _server: server };
        place.run("create HOME").good();
        place.run("mount HOME mnt").good();
        fill(&place.bench.path("mnt"));
        place.run("reflink mnt/big mnt/shared").good();
        place.run("snapshot mnt@a").good();
        place
    }

    /// Runs a command; `HOME` in it is the home.
    fn run(&self, line: &str) -> Outcome {
        self.bench.run(&line.replace("HOME", &self.home))
    }

    /// The same of a line of the shell.
    fn shell(&self, line: &str) -> Outcome {
        shell(&self.bench, &line.replace("HOME", &format!("'{}'", self.home)))
    }

    /// A snapshot of the home, and of the dataset `copy` of the pool, show the same tree.
    fn same(&self, snapshot: &str) {
        self.run(&format!("mount HOME@{snapshot} one")).good();
        self.run(&format!("mount work.pool@{snapshot} two --dataset copy")).good();
        assert_same(&self.bench, "one", "two");
        self.run("unmount one two").good();
    }

    fn change(&self, folder: &str, what: &str) {
        let at = |name: &str| self.bench.path(folder).join(name);
        fs::rename(at("d/f7"), at(&format!("d/e/{what}"))).unwrap();
        fs::remove_file(at(&format!("d/f{}", what.len() + 20))).unwrap();
        fs::write(at("d/f8"), what).unwrap();
        fs::copy(at("big"), at(&format!("{what}-copy"))).unwrap();
        let big = fs::OpenOptions::new().write(true).open(at("big")).unwrap();
        big.write_all_at(what.as_bytes(), 700_000).unwrap();
        fs::write(at("d/f7"), "again").unwrap();
    }

    fn check(&self) {
        let checked = self.run("check HOME --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
        self.run("check work.pool --data").good();
    }
}

/// A tree goes out, an increment follows, work is done there, and comes back.
fn there_and_back(place: &Place) {
    place.shell("marram send mnt@a | marram receive work.pool copy").good();
    place.same("a");
    place.change("mnt", "changed");
    place.run("snapshot mnt@b").good();
    let increment = "marram send HOME@b --from a | marram receive work.pool copy --json";
    let sent = place.shell(increment).result();
    assert_eq!((&sent["snapshot"], &sent["base"]), (&"copy@b".into(), &"copy@a".into()));
    let bytes = sent["stream_bytes"].as_u64().unwrap();
    assert!(bytes < 2_000_000, "{bytes} bytes: the cost follows the change");
    place.same("b");
    place.shell(increment).refused(1, &["received before"]);

    place.run("mount work.pool one --dataset copy").good();
    place.change("one", "elsewhere");
    place.run("snapshot one@c").good();
    place.run("unmount one").good();
    let back = "marram send work.pool@c --from b --dataset copy | marram receive mnt root --json";
    let received = place.shell(back).result();
    assert_eq!((&received["base"], &received["kept"]), (&"root@b".into(), &().into()));
    let mnt = place.bench.path("mnt");
    assert_eq!(fs::read(mnt.join("d/f8")).unwrap(), b"elsewhere", "the mount shows it at once");
    assert!(mnt.join(".marram/snapshots/c").is_dir());
    place.same("c");

    place.shell("marram send work.pool@c --dataset copy | marram receive HOME whole").good();
    place.run("mount HOME@c one --dataset whole").good();
    place.run("mount work.pool@c two --dataset copy").good();
    assert_same(&place.bench, "one", "two");
    place.run("unmount one two mnt").good();
    place.check();
}

#[test]
fn a_tree_goes_from_sqlite_into_a_pool_and_back() {
    if !can_mount() {
        return;
    }
    there_and_back(&Place::new(None));
}

#[test]
fn a_tree_goes_from_postgresql_into_a_pool_and_back() {
    if !can_mount() {
        return;
    }
    let Some(server) = Server::start() else { return };
    there_and_back(&Place::new(Some(server)));
}

#[test]
fn what_does_not_fit_a_cluster_home_leaves_it_as_it_was() {
    if !can_mount() {
        return;
    }
    let place = Place::new(None);
    place.run("send mnt@a --to-file a.stream").good();
    place.change("mnt", "changed");
    place.run("snapshot mnt@b").good();
    place.run("send mnt@b --from a --to-file b.stream").good();
    place.run("send mnt").refused(2, &["snapshot"]);
    place.run("create sqlite:other.db").good();
    let whole = fs::read(place.bench.path("b.stream")).unwrap();
    fs::write(place.bench.path("cut.stream"), &whole[..whole.len() - 1]).unwrap();
    let mut altered = whole.clone();
    altered[whole.len() / 2] ^= 1;
    fs::write(place.bench.path("altered.stream"), altered).unwrap();
    let receive = |stream: &str| place.run(&format!("receive sqlite:other.db copy {stream}"));
    receive("--from-file b.stream").refused(1, &["the full stream first"]);
    receive("--from-file a.stream --resumable").refused(1, &["keeps no part"]);
    receive("--from-file a.stream").good();
    receive("--from-file cut.stream").refused(1, &["cut"]);
    receive("--from-file altered.stream").refused(1, &["damaged"]);
    place.run("mount sqlite:other.db one --dataset copy").good();
    fs::write(place.bench.path("one/d/f8"), "its own").unwrap();
    let refused = receive("--from-file b.stream");
    refused.refused(1, &["changed since copy@a"]);
    let forced = receive("--from-file b.stream --force --json").result();
    assert_eq!(forced["kept"], "copy@before-receive-1");
    let one = place.bench.path("one");
    assert_eq!(fs::read(one.join("d/f8")).unwrap(), b"changed");
    assert_eq!(fs::read(one.join(".marram/snapshots/before-receive-1/d/f8")).unwrap(), b"its own");
    place.run("unmount one mnt").good();
    place.check();
    let checked = place.run("check sqlite:other.db --json").result();
    assert_eq!(checked["clean"], true, "{checked}");
}

#[test]
fn a_receive_that_is_killed_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(None);
    place.run("send mnt@a --to-file a.stream").good();
    place.run("create sqlite:other.db").good();
    let stream = fs::read(place.bench.path("a.stream")).unwrap();
    let is_left = |tenths: u64| {
        let mut child = half_received(&place.bench, &stream, "sqlite:other.db copy");
        std::thread::sleep(Duration::from_millis(100 * tenths));
        child.kill().unwrap();
        child.wait().unwrap();
        let checked = place.run("check sqlite:other.db --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
        checked["datasets"] == 2
    };
    assert!((1..=20).any(is_left), "the hidden dataset is there when the receive is killed");
    let listed = || place.run("list sqlite:other.db -a -H").good().out;
    place.run("mount sqlite:other.db one").good();
    assert_eq!(listed().lines().count(), 1, "{}", listed());
    place.run("receive one copy --from-file a.stream").good();
    place.run("unmount one mnt").good();
    let checked = place.run("check sqlite:other.db --json").result();
    assert_eq!(checked["clean"], true, "{checked}");
}
