//! Users that try for more than they have.

use super::{ANN, BOB, STAFF, fork_of, marram, owned, program_of, shared, shell};
use crate::workbench::{Outcome, Workbench, outcome};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Sends one request to the daemon of root, past the command, and prints the answer.
const ASK: &str = r#"
use IO::Socket::UNIX;
my $daemon = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no daemon: $!";
<$daemon>;
print $daemon "$ARGV[1]\n";
$daemon->flush;
print <$daemon> // "";
"#;

/// Where the daemon of root listens.
fn socket_of(bench: &Workbench) -> String {
    let status = bench.run("status mnt --json").result();
    let id = status[0]["pool_id"].as_str().unwrap();
    format!("/run/marram/{id}.sock")
}

/// What the daemon answers a user with those words before its program.
fn ask(bench: &Workbench, user: u32, words: &[&str], request: &str) -> Outcome {
    let socket = socket_of(bench);
    let (program, rest) = words.split_first().map_or(("perl", words), |(it, rest)| (*it, rest));
    let mut command = program_of(bench, user, program);
    command.args(rest);
    if !words.is_empty() {
        command.arg("perl");
    }
    outcome(command.args(["-MIO::Socket::UNIX", "-e", ASK, &socket, request]))
}

const SNAPSHOT: &str = r#"{"perform":{"snapshot":{"dataset":"root","snapshot":"s"}}}"#;
const AS_ROOT: &str = r#"{"perform_for":{"operation":{"snapshot":{"dataset":"root",
    "snapshot":"s"}},"author":{"user":0,"command":"x"}}}"#;
const DESTROY: &str = r#"{"perform":{"destroy":{"sources":["try"],"dry_run":false}}}"#;

#[test]
fn the_kernel_says_which_user_asks_and_nobody_else() {
    let Some(bench) = shared() else { return };
    if bench.host(&["perl", "-MIO::Socket::UNIX", "-e", "1"]).status != 0 {
        eprintln!("skipped: needs perl");
        return;
    }
    marram(&bench, ANN, "fork mnt/ann try").good();
    let root_of_a_namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork"];
    let mut ways: Vec<&[&str]> = vec![&[]];
    if ask(&bench, ANN, &root_of_a_namespace, "{}").out.contains("not a request") {
        ways.push(&root_of_a_namespace);
    }
    for words in ways {
        for request in [SNAPSHOT.to_owned(), AS_ROOT.replace('\n', "")] {
            let told = ask(&bench, ANN, words, &request);
            assert!(told.out.contains("user 4001 may not"), "{told:?}");
        }
        let told = ask(&bench, BOB, words, DESTROY);
        assert!(told.out.contains("not_found"), "{told:?}");
        for request in [r#"{"dedup":{"places":[],"dry_run":true}}"#, r#""unmounting""#] {
            let told = ask(&bench, BOB, words, request);
            assert!(told.out.contains("user 4002 may not"), "{told:?}");
        }
    }
    assert!(!bench.run("list mnt").good().out.contains("root@s"));
    assert!(marram(&bench, ANN, "forks mnt").good().out.contains("try"));
}

#[test]
fn a_fork_shows_no_more_of_closed_directories_than_they_did() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/closed", 0, 0o700, None);
    owned(&bench, "mnt/ann/closed/secret-name", 0, 0o644, Some("secret\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    for line in [format!("cat {fork}/closed/secret-name"), format!("ls {fork}/closed")] {
        assert!(shell(&bench, ANN, &line).status != 0, "{line}");
    }
    fs::write(bench.path(&format!("{fork}/closed/secret-name")), "other\n").unwrap();
    fs::write(bench.path(&format!("{fork}/open")), "").unwrap();
    let told = marram(&bench, ANN, &format!("diff {fork} --patch")).good().out;
    assert!(told.contains("open") && !told.contains("secret"), "{told}");
    let told = bench.run(&format!("diff {fork} --patch")).good().out;
    assert!(told.contains("secret-name"), "{told}");
}

#[test]
fn rights_that_were_lost_since_the_fork_count() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/below", ANN, 0o755, None);
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("echo new > {fork}/below/new")).good();
    let below = bench.path("mnt/ann/below");
    chown(&below, Some(0), Some(0)).unwrap();
    let merge = format!("merge {fork}");
    marram(&bench, ANN, &merge).refused(12, &["/ann/below/new: write in the directory"]);
    // Through a group it would do, and a closed directory above takes that away too.
    chown(&below, Some(0), Some(STAFF)).unwrap();
    fs::set_permissions(&below, PermissionsExt::from_mode(0o775)).unwrap();
    let above = bench.path("mnt/ann");
    chown(&above, Some(0), Some(0)).unwrap();
    fs::set_permissions(&above, PermissionsExt::from_mode(0o700)).unwrap();
    marram(&bench, ANN, &merge).refused(12, &["directory above it"]);
    marram(&bench, ANN, &format!("update {fork}")).refused(12, &["user 4001 may not"]);
    fs::set_permissions(&above, PermissionsExt::from_mode(0o711)).unwrap();
    marram(&bench, ANN, &merge).good();
    assert!(bench.path("mnt/ann/below/new").exists());
}

#[test]
fn what_only_root_makes_stays_in_the_fork() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/program", ANN, 0o755, Some("one\n"));
    owned(&bench, "mnt/ann/roots", 0, 0o4755, Some("one\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    let at = |name: &str| bench.path(&format!("{fork}/{name}"));
    let refused = |what: &str| {
        marram(&bench, ANN, &format!("merge {fork}")).refused(12, &[what]);
        bench.host(&["sh", "-c", &format!("rm -rf {fork}/new; chown 4001:4001 {fork}/program")]);
        fs::set_permissions(at("program"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    fs::write(at("new"), "").unwrap();
    fs::set_permissions(at("new"), PermissionsExt::from_mode(0o4755)).unwrap();
    refused("/ann/new: it would belong to user 0");
    assert_eq!(bench.host(&["mknod", &format!("{fork}/new"), "c", "1", "3"]).status, 0);
    chown(at("new"), Some(ANN), Some(ANN)).unwrap();
    refused("/ann/new: only root makes device nodes");
    chown(at("program"), Some(0), None).unwrap();
    refused("/ann/program: only root may give it to user 0");
    chown(at("program"), None, Some(0)).unwrap();
    refused("/ann/program: only its owner may give it to group 0");
    let set = ["setfattr", "-n", "security.evil", "-v", "x", &format!("{fork}/program")];
    if bench.host(&set).status == 0 {
        refused("/ann/program: only root sets security.evil");
        bench.host(&["setfattr", "-x", "security.evil", &format!("{fork}/program")]);
    }
    // A link that leads out is a link, and nothing that it leads to is changed.
    symlink("/etc", at("new")).unwrap();
    std::os::unix::fs::lchown(at("new"), Some(ANN), Some(ANN)).unwrap();
    marram(&bench, ANN, &format!("merge {fork}")).good();
    assert_eq!(fs::read_link(bench.path("mnt/ann/new")).unwrap().to_str(), Some("/etc"));
    let mode = fs::metadata(bench.path("mnt/ann/roots")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o4755);
}

/// Opens connections, prints how many were greeted, and holds them until its input ends: a byte
/// each second, since one that is silent is closed after a while.
const FLOOD: &str = r#"
use IO::Socket::UNIX;
use IO::Select;
my @held;
for (1..100) {
    my $daemon = IO::Socket::UNIX->new(Peer => $ARGV[0]) or last;
    push @held, $daemon if defined <$daemon>;
}
$| = 1;
print scalar(@held), "\n";
my $input = IO::Select->new(\*STDIN);
until ($input->can_read(1)) {
    syswrite $_, " " for @held;
}
"#;

#[test]
fn a_flood_of_one_user_keeps_nobody_else_from_being_served() {
    let Some(bench) = shared() else { return };
    if bench.host(&["perl", "-MIO::Socket::UNIX", "-e", "1"]).status != 0 {
        eprintln!("skipped: needs perl");
        return;
    }
    let socket = socket_of(&bench);
    let mut flood = program_of(&bench, BOB, "perl");
    flood.args(["-MIO::Socket::UNIX", "-e", FLOOD, &socket]);
    let pipes = (Stdio::piped(), Stdio::piped());
    let mut flood = flood.stdin(pipes.0).stdout(pipes.1).spawn().unwrap();
    let mut greeted = String::new();
    BufReader::new(flood.stdout.take().unwrap()).read_line(&mut greeted).unwrap();
    assert_eq!(greeted.trim(), "16");
    // Others are served meanwhile, and so is the mount.
    marram(&bench, ANN, "fork mnt/ann try").good();
    bench.run("status mnt").good();
    shell(&bench, BOB, "echo still > mnt/bob/works").good();
    assert!(marram(&bench, BOB, "forks mnt").status != 0, "there is no place for one more");
    drop(flood.stdin.take());
    flood.wait().unwrap();
    let begun = Instant::now();
    while marram(&bench, BOB, "forks mnt").status != 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the places are free again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Connects, gives up its rights, becomes another user, and asks over what it has connected.
const HANDED_OVER: &str = r#"
use IO::Socket::UNIX;
my $daemon = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no daemon: $!";
<$daemon>;
$) = "4002 4002"; $( = 4002; $< = 4002; $> = 4002;
die "still root" if $> != 4002;
print $daemon "$ARGV[1]\n";
$daemon->flush;
print <$daemon> // "";
"#;

#[test]
fn a_connection_is_its_makers_whoever_it_is_handed_to() {
    let Some(bench) = shared() else { return };
    if bench.host(&["perl", "-MIO::Socket::UNIX", "-e", "1"]).status != 0 {
        eprintln!("skipped: needs perl");
        return;
    }
    let socket = socket_of(&bench);
    let line = ["-MIO::Socket::UNIX", "-e", HANDED_OVER, &socket, SNAPSHOT];
    // A file that root has opened works for its heirs, and so does a connection.
    let told = bench.host(&[&["perl"][..], &line].concat());
    assert!(!told.good().out.contains("may not"), "it is root's");
    assert!(bench.run("list mnt").good().out.contains("root@s"));
    let log = bench.run("log mnt").good().out;
    assert!(!log.contains("4002"), "{log}");
}

#[test]
fn numbers_and_names_of_others_lead_nowhere() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("echo two > {fork}/a")).good();
    marram(&bench, ANN, &format!("merge {fork}")).good();
    let rows = bench.run("log mnt --json").result();
    for row in rows.as_array().unwrap() {
        let line = format!("undo mnt {} --yes", row["number"]);
        marram(&bench, BOB, &line).refused(10, &["no such operation of yours"]);
    }
    // Links that lead into what is closed, or out of a fork, give nobody more than they had.
    shell(&bench, ANN, &format!("ln -s {} mnt/ann/in", bench.path(&fork).display())).good();
    assert!(shell(&bench, BOB, "ls mnt/ann/in/").status != 0);
    marram(&bench, BOB, "diff mnt/ann/in").refused(1, &["Permission denied"]);
    assert!(marram(&bench, BOB, "merge mnt/ann/in").status != 0);
    symlink(bench.path("mnt/ann"), bench.path("mnt/bob/out")).unwrap();
    marram(&bench, BOB, "fork mnt/bob/out other").refused(12, &["user 4002", "may not write"]);
    marram(&bench, BOB, "rollback mnt/bob/out@none").refused(10, &[]);
    // A descriptor of a directory of the fork is what its user hands over, and no more.
    let refused = format!("cd {fork} 2>/dev/null && cat a");
    assert!(shell(&bench, BOB, &refused).status != 0);
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "two\n");
}
