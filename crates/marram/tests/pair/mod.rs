//! Two daemons with one cluster home open, each in namespaces and with control sockets of its own:
//! as in two containers of one host for a home in a file, and as on two hosts for one on a server.

use crate::server::Server;
use crate::tunnel::Tunnel;
use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use marram_cluster::postgres::Place as ServerPlace;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Has a namespace let go of the mounts of other tests, and hides the sockets of their daemons.
const APART: &str = r#"
for at in $(grep 'fuse[a-z]*.marram' /proc/self/mounts | cut -d' ' -f2); do umount -il "$at"; done
mount -t tmpfs none /run
"#;
/// Makes it another host: by its name, its number, its boot and its network.
const ANOTHER_HOST: &str = r#"
hostname elsewhere
mount --bind machine-id /etc/machine-id
mount --bind boot-id /proc/sys/kernel/random/boot_id
"#;
/// Says so, and stays.
const STAY: &str = "echo apart; exec sleep 300";
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where the home is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a file of SQLite, for daemons of one host.
    File,
    /// On a PostgreSQL server, for daemons of two hosts; one reaches it through a tunnel.
    Server,
}

/// A home mounted at `here` by one daemon, and at `there` by another one.
pub(crate) struct Pair {
    other: Option<Child>,
    pub(crate) bench: Workbench,
    pub(crate) server: Option<Server>,
    /// The way of the other daemon to the server.
    pub(crate) tunnel: Option<Tunnel>,
    urls: [String; 2],
}

impl Pair {
    pub(crate) fn new(place: Place) -> Option<Pair> {
        if !can_mount() || outcome(Command::new("unshare").args(["--mount", "true"])).status != 0 {
            eprintln!("skipped: unshare is needed");
            return None;
        }
        let file = || "sqlite:work.db".to_owned();
        let (server, tunnel, urls) = match place {
            Place::File => (None, None, [file(), file()]),
            Place::Server => {
                let server = Server::start()?;
                let (near, tunnel) = (server.place("fs", "home"), Tunnel::to(&server));
                let urls = [near.to_string(), ServerPlace::to_string(&tunnel.place(&near))];
                (Some(server), Some(tunnel), urls)
            }
        };
        let bench = Workbench::new();
        ["here", "there"].iter().for_each(|name| drop(bench.make_folder(name)));
        fs::write(bench.path("machine-id"), "00000000000000000000000000000002\n").unwrap();
        let mut pair = Pair { other: None, bench, server, tunnel, urls };
        pair.run("create URL").good();
        pair.boot("the first boot");
        Some(pair)
    }

    /// The same with both mounts.
    pub(crate) fn mounted(place: Place) -> Option<Pair> {
        let pair = Pair::new(place)?;
        pair.run("mount URL here").good();
        pair.there("mount URL there").good();
        assert_ne!(pair.bench.daemon_pid("here"), pair.daemon_there());
        Some(pair)
    }

    /// Starts the other host anew, or the other container of this one. What it has mounted must be
    /// gone.
    pub(crate) fn boot(&mut self, boot: &str) {
        self.end_other();
        fs::write(self.bench.path("boot-id"), format!("{boot}\n").replace(' ', "-")).unwrap();
        let (more, script) = match self.server {
            None => (&[][..], format!("{APART}{STAY}")),
            Some(_) => (&["--uts", "--net"][..], format!("{APART}{ANOTHER_HOST}{STAY}")),
        };
        let mut shell = self.bench.command_as(Path::new("unshare"));
        shell.args(["--mount", "--propagation", "private"]).args(more);
        shell.args(["sh", "-euc", &script]);
        let mut other = shell.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "apart\n");
        self.other = Some(other);
    }

    /// Runs the program here; `URL` in its words is the home.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        self.bench.run(&line.replace("URL", &self.urls[0]))
    }

    /// Runs the program in the other namespace.
    pub(crate) fn there(&self, line: &str) -> Outcome {
        let state = format!("XDG_STATE_HOME={}", self.bench.path("state-there").display());
        let line = line.replace("URL", &self.urls[1]);
        let mut words = vec!["env", &state, env!("CARGO_BIN_EXE_marram")];
        words.extend(line.split_whitespace());
        self.in_other(&words)
    }

    /// Runs a program in the other namespace.
    pub(crate) fn in_other(&self, words: &[&str]) -> Outcome {
        outcome(self.command_in_other().args(words))
    }

    /// The program in the other namespace, where words are to be added.
    pub(crate) fn command_there(&self, program: &Path) -> Command {
        let state = format!("XDG_STATE_HOME={}", self.bench.path("state-there").display());
        let mut command = self.command_in_other();
        command.args(["env", &state]).arg(program);
        command
    }

    fn command_in_other(&self) -> Command {
        let mut command = self.bench.command_as(Path::new("nsenter"));
        let pid = self.other.as_ref().unwrap().id().to_string();
        let folder = self.bench.path("").to_string_lossy().into_owned();
        command.args(["--target", &pid, "--mount", "--uts", "--net", &format!("--wd={folder}")]);
        command
    }

    pub(crate) fn daemon_there(&self) -> i32 {
        let status = self.there("status there --json").result();
        i32::try_from(status[0]["daemon"]["pid"].as_i64().unwrap()).unwrap()
    }

    /// The two mounts, as this process reaches them.
    pub(crate) fn mounts(&self) -> [PathBuf; 2] {
        let pid = self.other.as_ref().unwrap().id();
        let there = format!("/proc/{pid}/root{}", self.bench.path("there").display());
        [self.bench.path("here"), PathBuf::from(there)]
    }

    /// Clients that have the home open, or had when they died.
    pub(crate) fn clients(&self) -> usize {
        let listed = self.run("clients URL --json").result();
        listed["clients"].as_array().unwrap().len()
    }

    /// Waits until the one client that has it open has said that it is alone.
    pub(crate) fn await_alone(&self) {
        let began = Instant::now();
        loop {
            let listed = self.run("clients URL --json").result();
            match listed["clients"].as_array().unwrap().as_slice() {
                [one] if one["is_alone"] == true => return,
                _ => assert!(began.elapsed() < PATIENCE, "{listed}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until so many clients have it open.
    pub(crate) fn await_clients(&self, count: usize) {
        let began = Instant::now();
        while self.clients() != count {
            assert!(began.elapsed() < PATIENCE, "there are {} clients", self.clients());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Unmounts both, and checks the home.
    pub(crate) fn finish(self) {
        self.run("unmount here").good();
        self.there("unmount there").good();
        self.check();
    }

    /// Checks the home, which nobody has open.
    pub(crate) fn check(mut self) {
        self.end_other();
        let checked = self.run("check URL --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
    }

    fn end_other(&mut self) {
        if let Some(mut other) = self.other.take() {
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.other.is_some() {
            eprintln!("left over: {:?}", self.there("unmount --detach there").status);
            self.end_other();
        }
    }
}
