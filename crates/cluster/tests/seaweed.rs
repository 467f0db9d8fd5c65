//! A real service of buckets for tests: SeaweedFS, started by the test in a temporary folder, on
//! loopback, and ended by its process id.

use marram_cluster::bucket::{Access, Keys};
use marram_cluster::format::BucketPlace;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// How long it is awaited.
const LIMIT: Duration = Duration::from_secs(60);
/// The user that may do everything, and its secret.
pub(crate) const USER: &str = "MARRAMTEST";
pub(crate) const SECRET: &str = "the/secret+of=tests";
const MEMORY: &str = "/dev/shm";

/// The ports that its parts take: that of folders and that of buckets stand first.
const PORTS: [&str; 8] = [
    "filer.port",
    "s3.port",
    "filer.port.grpc",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
];

/// A running one.
pub(crate) struct Seaweed {
    _folder: TempDir,
    running: Child,
    port: u16,
}

impl Seaweed {
    /// A new one; none, said aloud, where it is not installed.
    pub(crate) fn start() -> Option<Seaweed> {
        let Some(program) = program() else {
            println!("SKIPPED, NOT TESTED: no SeaweedFS is installed");
            return None;
        };
        // In memory where there is some.
        let folder = tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).unwrap();
        let path = |name: &str| folder.path().join(name);
        let free: Vec<TcpListener> =
            PORTS.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = free.iter().map(|it| it.local_addr().unwrap().port()).collect();
        drop(free);
        let keys = format!(r#"[{{"accessKey":"{USER}","secretKey":"{SECRET}"}}]"#);
        let user = format!(r#"{{"name":"test","credentials":{keys},"actions":["Admin"]}}"#);
        let users = format!(r#"{{"identities":[{user}]}}"#);
        fs::write(path("users.json"), users).unwrap();
        fs::create_dir(path("data")).unwrap();
        let out = File::create(path("log")).unwrap();
        let mut command = Command::new(program);
        command.arg(format!("-logdir={}", folder.path().display())).arg("server");
        for (word, port) in PORTS.iter().zip(&ports) {
            command.arg(format!("-{word}={port}"));
        }
        command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-iam=false"]);
        command.args(["-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args(["-master.telemetry=false", "-master.volumeSizeLimitMB=64"]);
        command.args(["-volume.max=20", "-volume.minFreeSpace=0"]);
        command.arg(format!("-s3.config={}", path("users.json").display()));
        command.arg(format!("-dir={}", path("data").display()));
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let running = command.spawn().unwrap();
        let mut server = Seaweed { _folder: folder, running, port: ports[1] };
        server.wait(ports[0]);
        Some(server)
    }

    /// Waits until it serves, and makes the bucket, which is a folder of what is below it.
    fn wait(&mut self, filer: u16) {
        let began = Instant::now();
        let is_made = || said_to(filer, "POST /buckets/tests/").contains(" 201 ");
        while said_to(self.port, "GET /").is_empty() || !is_made() {
            assert!(self.running.try_wait().unwrap().is_none(), "it has ended");
            assert!(began.elapsed() < LIMIT, "it does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A part of the bucket that nothing has used.
    pub(crate) fn new_place(&self) -> BucketPlace {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        self.place(&format!("s3://tests/{}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn place(&self, url: &str) -> BucketPlace {
        BucketPlace::new(url, "us-east-1", &self.endpoint()).unwrap()
    }

    /// Where it is asked.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        let _has_ended_itself = self.running.kill();
        let _has_ended = self.running.wait();
    }
}

/// What is answered to a request without a body; nothing where nothing listens.
fn said_to(port: u16, request: &str) -> String {
    let mut said = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let words = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close";
        let _has_said_it = write!(stream, "{request} {words}\r\n\r\n");
        let _has_heard_it = stream.read_to_string(&mut said);
    }
    said
}

/// How a bucket is reached by the user of the tests.
pub(crate) fn access() -> Access {
    access_with(SECRET)
}

/// The same with another secret.
pub(crate) fn access_with(secret: &'static str) -> Access {
    let keys = Keys { id: USER.to_owned(), secret: secret.to_owned(), token: None };
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    Access {
        keys: Arc::new(move || Ok(keys.clone())),
        clock: Arc::new(move || now().try_into().unwrap()),
        roots: None,
        pause: Duration::from_millis(2),
    }
}

/// Where the program is: in the folder of tools beside what is built, or on the path.
fn program() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let ours = target.join("tools/seaweedfs/bin/weed");
    let folders = std::env::var_os("PATH")?;
    let others = std::env::split_paths(&folders).map(|folder| folder.join("weed"));
    std::iter::once(ours).chain(others).find(|program| program.exists())
}
