//! A home in PostgreSQL as users have it, on a server of the test's own, which is killed in the
//! middle of work.

use crate::server::Server;
use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A workbench, a server, and the URL of a home there.
struct Place {
    bench: Workbench,
    server: Server,
    url: String,
}

impl Place {
    fn new() -> Option<Place> {
        if !can_mount() {
            return None;
        }
        let server = Server::start()?;
        let url = server.place("fs", "home").to_string();
        let bench = Workbench::new();
        bench.make_folder("mnt");
        Some(Place { bench, server, url })
    }

    /// Runs a command; `URL` in it is the home.
    fn run(&self, line: &str) -> Outcome {
        self.bench.run(&line.replace("URL", &self.url))
    }

    fn mount(&self) -> PathBuf {
        self.run("mount URL mnt").good();
        self.bench.path("mnt")
    }

    fn check(&self) {
        let checked = self.run("check URL --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
        assert!(checked["items"].as_u64().unwrap() > 0, "{checked}");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_tree_on_a_server_is_made_snapshot_forked_compared_and_merged() {
    let Some(place) = Place::new() else { return };
    let made = place.run("create URL -O recordsize=16384").good();
    assert_eq!(made.out, format!("created a cluster home in {}\n", place.url));
    let mnt = place.mount();
    fs::create_dir_all(mnt.join("src/deep")).unwrap();
    fs::write(mnt.join("src/a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(mnt.join("src/deep/large"), vec![7; 3 << 20]).unwrap();
    place.run("snapshot mnt@before").good();
    place.run("fork mnt try").good();
    let fork = mnt.join(".marram/forks/try");
    fs::write(fork.join("src/a.txt"), "one\ntwo\nthree\nfour\n").unwrap();
    fs::write(mnt.join("src/b.txt"), "meanwhile").unwrap();
    let differs = place.run("diff mnt/.marram/forks/try --json").good().out;
    assert!(differs.contains("/src/a.txt"), "{differs}");
    place.run("merge mnt/.marram/forks/try").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "one\ntwo\nthree\nfour\n");
    assert_eq!(read(&mnt.join("src/b.txt")), "meanwhile");
    // A mounted home is known by its URL too, and the daemon does what is asked.
    let listed = place.run("list URL").good().out;
    assert!(listed.contains("root@before"), "{listed}");
    place.run("snapshot URL@after").good();
    let status = place.run("status mnt").good().out;
    assert!(status.contains("PostgreSQL") && status.contains(&place.url), "{status}");
    place.run("check URL").refused(11, &["in use by"]);
    place.run("unmount mnt").good();
    place.check();
    place.run("mount URL@before mnt").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "one\ntwo\nthree\n");
    assert_eq!(fs::read(mnt.join("src/deep/large")).unwrap(), vec![7; 3 << 20]);
    place.run("unmount mnt").good();
    place.run("destroy snapshot URL@before --yes").good();
    place.check();
}

#[test]
fn a_server_that_is_killed_is_waited_for() {
    let Some(mut place) = Place::new() else { return };
    place.run("create URL").good();
    let mnt = place.mount();
    let folder = mnt.clone();
    let (stop, stopped) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut count = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let mut file = fs::File::create(folder.join(format!("{count}"))).unwrap();
            file.write_all(format!("{count} ").repeat(2000).as_bytes()).unwrap();
            file.sync_all().unwrap();
            count += 1;
        }
        count
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(400));
        place.server.kill();
        place.server.run();
    }
    stop.send(()).unwrap();
    let count = writer.join().unwrap();
    assert!(count > 3, "{count} files");
    place.run("unmount mnt").good();
    place.check();
    let mnt = place.mount();
    for number in 0..count {
        assert_eq!(read(&mnt.join(format!("{number}"))), format!("{number} ").repeat(2000));
    }
    place.run("unmount mnt").good();
}

#[test]
fn a_url_that_names_no_home_is_refused_with_what_to_do() {
    let Some(place) = Place::new() else { return };
    place.run("mount URL mnt").refused(10, &["no cluster home", "marram create"]);
    place.run("check URL").refused(10, &["no cluster home"]);
    place.run("create URL --size 1G").refused(2, &["grows by itself"]);
    place.run("create URL").good();
    place.run("create URL").refused(2, &["has tables already", "?schema=NAME"]);
    place.run("create postgres://fs@192.0.2.1/trees?tls=off").refused(2, &["another host"]);
    place.run("mount postgres://fs@localhost mnt").refused(2, &["the name of the database"]);
    let secret = place.run("mount postgres://fs:sesame@localhost/trees mnt");
    let secret = secret.refused(2, &["PGPASSWORD", "~/.pgpass"]);
    assert!(!format!("{}{}", secret.out, secret.err).contains("sesame"));
}

#[test]
fn passwords_come_from_the_environment_or_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let Some(mut place) = Place::new() else { return };
    place.server.sql("trees", "CREATE ROLE kim LOGIN PASSWORD 'open sesame'");
    place.server.sql("trees", "GRANT CREATE ON DATABASE trees TO kim");
    place.server.let_in("local all fs trust\nlocal all all scram-sha-256\n");
    place.url = place.server.place("kim", "hers").to_string();
    place.run("create URL").refused(2, &["the password of kim", "PGPASSWORD"]);
    let with = |name: &str, value: &Path, line: &str| {
        let line = line.replace("URL", &place.url);
        outcome(place.bench.command().args(line.split(' ')).env(name, value))
    };
    with("PGPASSWORD", Path::new("wrong"), "create URL").refused(1, &["28P01"]);
    with("PGPASSWORD", Path::new("open sesame"), "create URL").good();
    let file = place.bench.path("passwords");
    fs::write(&file, "localhost:5432:trees:kim:open sesame\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    with("PGPASSFILE", &file, "mount URL mnt").refused(2, &["chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    with("PGPASSFILE", &file, "mount URL mnt").good();
    fs::write(place.bench.path("mnt/a"), "b").unwrap();
    let log = place.bench.log();
    place.run("unmount mnt").good();
    assert!(!log.contains("sesame"), "{log}");
}
