//! What leaks out of a transaction, and what does not: each row of the table "What leaks" in
//! `docs/transactions.md`, tried by a command that fails, so that whatever is there afterwards has
//! got out.

use crate::tree::wait_for;
use crate::workbench::{Outcome, Workbench, outcome};
use crate::{end, mounted, untouched};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Listens on a socket of the path `$1`, writes what one client sends to the file `$2`.
const SERVER: &str = "
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
client = server.accept()[0]
open(sys.argv[2], 'w').write(client.recv(100).decode())
client.send(b'done')
";
/// Sends a word to it.
const CLIENT: &str = "
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
server.send(b'word')
server.recv(100)
";

/// A line of the shell as a transaction; `$MNT` is the mount, `$OUT` lies outside of it.
fn run(bench: &Workbench, line: &str) -> Outcome {
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run", "--kill", "--", "sh", "-c", line]);
    command.env("OUT", bench.path(".")).env("MNT", bench.path("mnt"));
    outcome(command.env("SERVER", SERVER).env("CLIENT", CLIENT))
}

/// A program outside, which the test ends.
fn outside(bench: &Workbench, words: &[&str]) -> std::process::Child {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(bench.path("."));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Where a command writes, and whether that is there when it has failed.
const PLACES: [(&str, &str, &str, bool); 6] = [
    ("the dataset", "echo x > out", "mnt/out", false),
    ("the dataset by another path", "echo x > \"$OUT/bound/out\"", "mnt/src/out", false),
    ("the dataset by /proc/self/root", "echo x > /proc/self/root$MNT/out", "mnt/out", false),
    ("the dataset by a link from outside", "echo x > \"$OUT/link/out\"", "mnt/out", false),
    ("another file system", "echo x > \"$OUT/out\"", "out", true),
    ("another dataset that is not named", "echo x > \"$OUT/two/out\"", "two/out", true),
];

#[test]
fn what_is_written_elsewhere_stays_and_nothing_else() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("bound");
    bench.host(&["mount", "--bind", "mnt/src", "bound"]).good();
    std::os::unix::fs::symlink(bench.path("mnt"), bench.path("link")).unwrap();
    bench.run("create mnt --dataset second").good();
    bench.make_folder("two");
    bench.run("mount -o dataset=second work.pool two").good();
    for (what, line, place, leaks) in PLACES {
        let ran = run(&bench, &format!("{line} && exit 3"));
        assert_eq!(ran.status, 3, "{what}: {ran:?}");
        assert_eq!(bench.path(place).exists(), leaks, "{what}");
    }
    bench.host(&["umount", "bound"]).good();
    bench.run("unmount two").good();
    end(&bench);
}

#[test]
fn a_daemon_that_works_for_a_command_works_outside() {
    let Some(bench) = mounted() else { return };
    // A server outside: it is met by a socket outside, and what it does stays.
    let mut server = outside(&bench, &["python3", "-c", SERVER, "out.sock", "mnt/by-a-server"]);
    wait_for("it listens", || bench.path("out.sock").exists());
    let ran = run(&bench, "python3 -c \"$CLIENT\" \"$OUT/out.sock\" && exit 3");
    assert_eq!(ran.status, 3, "{ran:?}");
    server.wait().unwrap();
    assert_eq!(fs::read_to_string(bench.path("mnt/by-a-server")).unwrap(), "word");
    // A server in the dataset is not met from inside: the socket in the view is another one.
    let server = UnixListener::bind(bench.path("mnt/in.sock")).unwrap();
    let ran = run(&bench, "python3 -c \"$CLIENT\" in.sock 2> \"$OUT/told\"; exit 4");
    assert_eq!(ran.status, 4, "{ran:?}");
    let told = fs::read_to_string(bench.path("told")).unwrap();
    assert!(told.contains("refused"), "{told}");
    drop(server);
    // One that the command starts works inside, and is met there.
    let line = "python3 -c \"$SERVER\" own.sock by-a-server-of-its-own & \
                until [ -e own.sock ]; do sleep 0.02; done; \
                python3 -c \"$CLIENT\" own.sock && wait && cat by-a-server-of-its-own && exit 3";
    let ran = run(&bench, line);
    assert_eq!((ran.status, ran.out.as_str()), (3, "word"), "{ran:?}");
    assert!(!bench.path("mnt/by-a-server-of-its-own").exists());
    assert!(!bench.path("mnt/own.sock").exists());
    end(&bench);
}

#[test]
fn pipes_and_locks_of_the_view_are_met_by_nobody_outside() {
    let Some(bench) = mounted() else { return };
    bench.host(&["mkfifo", "mnt/pipe"]).good();
    let mut reader = outside(&bench, &["sh", "-c", "exec cat mnt/pipe > read"]);
    let ran = run(&bench, "timeout 1 sh -c 'echo x > pipe'; test $? = 124 && exit 3");
    assert_eq!(ran.status, 3, "nobody reads it in the view: {ran:?}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(fs::read_to_string(bench.path("read")).unwrap(), "");
    // Locks: held outside, free inside, and the other way round.
    let mut holder = outside(&bench, &["flock", "--no-fork", "mnt/src/b", "sleep", "60"]);
    wait_for("it is held", || {
        bench.host(&["flock", "--nonblock", "mnt/src/b", "true"]).status != 0
    });
    let ran = run(&bench, "flock --nonblock src/b true && exit 3");
    assert_eq!(ran.status, 3, "{ran:?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    end(&bench);
}

#[test]
fn processes_outside_show_the_dataset_and_not_the_view() {
    let Some(bench) = mounted() else { return };
    let mut sleeper = outside(&bench, &["sleep", "60"]);
    let root = format!("/proc/{}/root", sleeper.id());
    // Their root is that of their own namespace: what is written there happens.
    let line = format!(
        "echo view > src/new; test ! -e {root}$MNT/src/new && echo x > {root}$MNT/leaked && exit 3"
    );
    let ran = run(&bench, &line);
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(bench.path("mnt/leaked").exists(), "that is the way past the view that there is");
    fs::remove_file(bench.path("mnt/leaked")).unwrap();
    // Outside one sees nothing by the processes inside but what they have: their view.
    let line = "echo view > src/new; : > \"$OUT/here\"; echo $$ > \"$OUT/pid\"; \
                until [ -e \"$OUT/go\" ]; do sleep 0.02; done; exit 3";
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run", "--", "sh", "-c", line]);
    let mut child = command.env("OUT", bench.path(".")).spawn().unwrap();
    wait_for("it is there", || {
        fs::read_to_string(bench.path("pid")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    untouched(&bench);
    let pid = fs::read_to_string(bench.path("pid")).unwrap();
    let seen = format!("/proc/{}/cwd/src/new", pid.trim());
    assert_eq!(fs::read_to_string(seen).unwrap(), "view\n");
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    untouched(&bench);
    end(&bench);
}

#[test]
fn what_was_opened_before_does_not_lead_past_the_view() {
    let Some(bench) = mounted() else { return };
    // Standard output is a file of the dataset: it is opened again in the view.
    fs::write(bench.path("mnt/said"), "before\n").unwrap();
    let said = fs::OpenOptions::new().append(true).open(bench.path("mnt/said")).unwrap();
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run", "--", "sh", "-c"]);
    let status = command.arg("echo inside; cat said >&2; exit 3").stdout(said).status().unwrap();
    drop(command);
    assert_eq!(status.code(), Some(3));
    assert_eq!(fs::read_to_string(bench.path("mnt/said")).unwrap(), "before\n");
    // Any other is refused before the command runs.
    let line = "exec 7>> src/b; \"$MARRAM\" tx run -- sh -c 'echo x >&7; : > \"$OUT/ran\"'";
    let mut command = bench.command_as(Path::new("sh"));
    command.current_dir(bench.path("mnt")).args(["-c", line]);
    command.env("OUT", bench.path(".")).env("MARRAM", env!("CARGO_BIN_EXE_marram"));
    outcome(&mut command).refused(125, &[]);
    assert!(!bench.path("ran").exists());
    untouched(&bench);
    end(&bench);
}
