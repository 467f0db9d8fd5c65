//! A home in MongoDB as users have it, on a server of the test's own, which is killed in the middle
//! of work.

use crate::mongo_server::MongoServer;
use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

/// A workbench, a server, and the URL of a home there.
struct Place {
    bench: Workbench,
    server: MongoServer,
    url: String,
}

impl Place {
    fn new() -> Option<Place> {
        if !can_mount() {
            return None;
        }
        let server = MongoServer::start()?;
        let url = server.place("", "home").to_string();
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
fn a_tree_in_mongodb_is_made_snapshot_forked_and_merged() {
    let Some(place) = Place::new() else { return };
    let made = place.run("create URL -O recordsize=16384").good();
    assert_eq!(made.out, format!("created a cluster home in {}\n", place.url));
    let mnt = place.mount();
    fs::create_dir_all(mnt.join("src/deep")).unwrap();
    fs::write(mnt.join("src/a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(mnt.join("src/deep/large"), vec![7; 1 << 20]).unwrap();
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
    let listed = place.run("list URL").good().out;
    assert!(listed.contains("root@before"), "{listed}");
    let clients = place.run("clients URL --json").result();
    assert_eq!(clients["clients"].as_array().unwrap().len(), 1, "{clients}");
    let status = place.run("status mnt").good().out;
    assert!(status.contains("MongoDB") && status.contains(&place.url), "{status}");
    place.run("unmount mnt").good();
    place.check();
    place.run("mount URL@before mnt").good();
    assert_eq!(read(&mnt.join("src/a.txt")), "one\ntwo\nthree\n");
    assert_eq!(fs::read(mnt.join("src/deep/large")).unwrap(), vec![7; 1 << 20]);
    place.run("unmount mnt").good();
    place.run("destroy snapshot URL@before --yes").good();
    place.check();
}

#[test]
fn a_server_of_mongodb_that_is_killed_is_waited_for() {
    let Some(mut place) = Place::new() else { return };
    place.run("create URL").good();
    let mnt = place.mount();
    let folder = mnt.clone();
    let (done, synced) = channel();
    let (stop, stopped) = channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut count = 0;
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            let mut file = fs::File::create(folder.join(format!("{count}"))).unwrap();
            file.write_all(format!("{count} ").repeat(2000).as_bytes()).unwrap();
            file.sync_all().unwrap();
            count += 1;
            done.send(count).unwrap();
        }
        count
    });
    for _ in 0..2 {
        // Some are synced before each kill, and more while the server is away.
        let (from, began) = (synced.recv_timeout(Duration::from_secs(60)).unwrap(), Instant::now());
        while synced.recv_timeout(Duration::from_secs(60)).unwrap() < from + 3 {
            assert!(began.elapsed() < Duration::from_secs(120), "nothing goes on");
        }
        place.server.kill();
        place.server.run();
    }
    stop.send(()).unwrap();
    let count = writer.join().unwrap();
    assert!(count > 6, "{count} files");
    place.run("unmount mnt").good();
    place.check();
    let mnt = place.mount();
    for number in 0..count {
        assert_eq!(read(&mnt.join(format!("{number}"))), format!("{number} ").repeat(2000));
    }
    place.run("unmount mnt").good();
}

#[test]
fn a_url_of_mongodb_that_names_no_home_is_refused_with_what_to_do() {
    let Some(place) = Place::new() else { return };
    place.run("mount URL mnt").refused(10, &["no cluster home", "marram create"]);
    place.run("create URL").good();
    place.run("create URL").refused(2, &["has collections already", "dropDatabase"]);
    place.run("create mongodb://192.0.2.1/trees?tls=off").refused(2, &["another host"]);
    place.run("mount mongodb://localhost mnt").refused(2, &["the name of the database"]);
    let secret = place.run("mount mongodb://fs:sesame@localhost/trees mnt");
    let secret = secret.refused(2, &["MONGODB_PASSWORD", "~/.mongodbpass"]);
    assert!(!format!("{}{}", secret.out, secret.err).contains("sesame"));
}

#[test]
fn passwords_for_mongodb_come_from_the_environment_or_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let Some(mut place) = Place::new() else { return };
    place.server.add_user("kim", "open sesame");
    place.server.kill();
    place.server.set_words(&["--auth"]);
    place.server.run();
    place.url = place.server.place("kim@", "hers").to_string();
    place.run("create URL").refused(2, &["the password of kim", "MONGODB_PASSWORD"]);
    let with = |name: &str, value: &Path, line: &str| {
        let line = line.replace("URL", &place.url);
        outcome(place.bench.command().args(line.split(' ')).env(name, value))
    };
    let wrong = with("MONGODB_PASSWORD", Path::new("wrong"), "create URL");
    wrong.refused(1, &["MONGODB_PASSWORD"]);
    with("MONGODB_PASSWORD", Path::new("open sesame"), "create URL").good();
    let file = place.bench.path("passwords");
    let port = place.server.port();
    fs::write(&file, format!("127.0.0.1:{port}:hers:kim:open sesame\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    with("MONGODB_PASSFILE", &file, "mount URL mnt").refused(2, &["chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    with("MONGODB_PASSFILE", &file, "mount URL mnt").good();
    fs::write(place.bench.path("mnt/a"), "b").unwrap();
    let log = place.bench.log();
    place.run("unmount mnt").good();
    assert!(!log.contains("sesame"), "{log}");
}
