//! The socket by which a daemon is found.

use crate::workbench::mounted;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The folder of a user's sockets goes at a logout, and the mounts stay.
#[test]
fn a_daemon_whose_socket_is_gone_makes_another_one() {
    let Some(bench) = mounted() else { return };
    let id = bench.run("status mnt --json").result()[0]["pool_id"].as_str().unwrap().to_owned();
    let folders =
        ["/run/marram".to_owned(), format!("/tmp/marram-{}", rustix::process::getuid().as_raw())];
    let sockets = folders.map(|folder| Path::new(&folder).join(format!("{id}.sock")));
    let removed = sockets.iter().filter(|socket| fs::remove_file(socket).is_ok()).count();
    if removed == 0 {
        eprintln!("skipped: the socket is in a folder of the session");
        return;
    }
    bench.run("status mnt").refused(10, &["no daemon answers"]);
    let began = Instant::now();
    while bench.run("status mnt").status != 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it makes none");
        std::thread::sleep(Duration::from_millis(100));
    }
    bench.run("unmount mnt").good();
    assert!(sockets.iter().all(|socket| !socket.exists()), "it takes that one away too");
}
