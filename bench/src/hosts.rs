//! `cargo xtask bench --workloads hosts`: a home of ours that several hosts share, beside other
//! file systems that hosts share, all of them behind the same delay links.
//!
//! Hosts are namespaces of this machine; the server has PostgreSQL, Redis, SSH, MooseFS and
//! GlusterFS. The delay is measured before each group of lines, since a machine that is busy adds
//! to it. A group that fails is named in the report, and the other groups go on.

mod clusters;
mod contender;
mod crowd;
mod mail;
mod servers;
mod sight;
mod unpacking;
mod verbs;

use super::rates::Configuration;
use super::sheet::Sheet;
use super::{Arguments, interruption, machine, plot, work_folder, write_files};
use contender::{Contender, Programs, Store};
use marram_lab::failure::Result;
use marram_lab::hosts::{Conditions, Host, Hosts};
use marram_lab::{project, setup};
use servers::Servers;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Clients at most.
const HOSTS: usize = 8;
/// The round trip of most lines.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// How much is done.
struct Sizes {
    repetitions: usize,
    mail: Configuration,
    /// PostMark over other delays: round trips, and what it is asked for.
    far: &'static [u64],
    far_mail: Configuration,
    /// Folders of the tree that are unpacked beside another host.
    shared_folders: &'static [&'static str],
    is_short_tree: bool,
    /// Files of the trees that are forked, and of that which is compared.
    trees: [u64; 2],
    compared: u64,
    rounds: usize,
    sights: usize,
    crowd: Duration,
}

impl Sizes {
    fn of(arguments: &Arguments) -> Self {
        let repetitions = arguments.repetitions.unwrap_or(1);
        let few = |files| Configuration { files, transactions: files };
        if arguments.quick {
            return Self {
                repetitions,
                mail: few(50),
                far: &[5_000],
                far_mail: few(10),
                shared_folders: &["kernel/bpf/preload"],
                is_short_tree: true,
                trees: [100, 1_000],
                compared: 2_000,
                rounds: 3,
                sights: 30,
                crowd: Duration::from_secs(1),
            };
        }
        Self {
            repetitions,
            mail: Configuration::DEFAULT,
            far: &[200, 5_000, 20_000],
            far_mail: few(15),
            shared_folders: &["lib/zstd", "scripts/kconfig", "kernel/locking"],
            is_short_tree: false,
            trees: [1_000, 10_000],
            compared: 20_000,
            rounds: 9,
            sights: 100,
            crowd: Duration::from_secs(3),
        }
    }
}

/// What the lines run on.
struct Setting<'run> {
    hosts: &'run Hosts,
    servers: &'run Servers,
    programs: &'run Programs,
    contenders: Vec<Contender>,
    sizes: Sizes,
    folder: PathBuf,
}

impl<'run> Setting<'run> {
    /// The first clients.
    fn hosts(&self, count: usize) -> &'run [Host] {
        &self.hosts.all()[..count]
    }

    /// A store for one line. One of ours is a home of its own; a peer has one for all, so a line
    /// works in a folder there.
    fn store(&self, contender: Contender, name: &str) -> Result<Store<'run>> {
        Store::make(contender, name, (self.servers, self.programs), &self.hosts.all()[0])
    }
}

/// A group of lines.
type Part = (&'static str, fn(&Setting<'_>, &mut Sheet) -> Result<()>);

const PARTS: [Part; 11] = [
    ("PostMark", mail::remote),
    ("PostMark over other delays", mail::by_delay),
    ("unpack, alone", unpacking::alone),
    ("unpack, another looks", unpacking::beside_looks),
    ("unpack, another rests", unpacking::beside_rest),
    ("fork, snapshot, rollback, promote", verbs::constant),
    ("diff", verbs::diff),
    ("seen on another host", sight::between_hosts),
    ("seen by another daemon, SQLite", sight::in_a_file),
    ("many hosts in one directory", crowd::one_directory),
    ("many hosts in forks", crowd::forks),
];

const NOTES: [&str; 4] = [
    "Hosts are namespaces of networks, mounts and names of one machine, joined to a server by \
     links of veth and macvtap that one process reads, delays and writes. All contenders go over \
     the same links, and all that they store lies on one file system, behind the link. The \
     processors are shared by all hosts, the server and the links.",
    "marram and juicefs-pg speak TLS to the same PostgreSQL, which marram verifies. sshfs is \
     encrypted by SSH, and Redis is spoken to in the clear. JuiceFS has its names and its content \
     in the same server. MooseFS has one master, which syncs its log of changes before it answers, \
     and one chunk server, which syncs before a close. Caches are as each of them has them by \
     itself.",
    "A line says what is durable when its clock stops. sshfs and GlusterFS promise nothing \
     at close but that the server's kernel has the bytes: they are no peers of that durability.",
    "Not raced: NFS and Samba, which no setup of ours installs.",
];

/// Runs all lines, and writes the report after each group anew.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    setup::install(&setup::HOSTS_PACKAGES)?;
    let mut sheet = Sheet::titled("A home between hosts");
    let mut contenders = Contender::ALL.to_vec();
    let juicefs = setup::install_juicefs().unwrap_or_else(|failure| {
        sheet.failures.push(format!("JuiceFS is not raced: {failure}"));
        contenders.retain(|contender| !contender.is_juicefs());
        PathBuf::new()
    });
    let programs = Programs { marram: project::release_binary()?, juicefs };
    // Servers run as users of their own, and come through here.
    let reachable = Permissions::from_mode(0o755);
    let folder = tempfile::Builder::new()
        .prefix("hosts")
        .permissions(reachable)
        .tempdir_in(work_folder(arguments)?)?;
    let hosts = Hosts::make(folder.path(), HOSTS, Conditions::round_trip(ROUND_TRIP))?;
    let servers = Servers::start(&hosts, folder.path())?;
    let mut setting = Setting {
        hosts: &hosts,
        servers: &servers,
        programs: &programs,
        contenders,
        sizes: Sizes::of(arguments),
        folder: folder.path().to_owned(),
    };
    sheet.failures.extend(setting.format_peers()?);
    sheet.header = machine()?;
    let scale = if arguments.quick { "quick: not to judge by" } else { "whole" };
    sheet.header.push(("scale".to_owned(), scale.to_owned()));
    sheet.header.push(("repetitions of PostMark".into(), setting.sizes.repetitions.to_string()));
    sheet.notes = NOTES.map(String::from).into();
    for (name, part) in PARTS {
        if let Err(failure) = one(&setting, (name, part), &mut sheet) {
            eprintln!("FAILED: {name}: {failure}");
            sheet.failures.push(format!("{name}: {failure}"));
        }
        interruption::check()?;
        write(arguments, &sheet)?;
    }
    println!("{}", sheet.page());
    match sheet.failures.len() {
        0 => Ok(()),
        count => marram_lab::failure::fail(format!("{count} failures, listed in the report")),
    }
}

/// A group, behind links of which the delay was measured.
fn one(setting: &Setting<'_>, (name, part): Part, sheet: &mut Sheet) -> Result<()> {
    setting.hosts.set(Conditions::round_trip(ROUND_TRIP));
    let measured = setting.hosts.round_trip()?;
    println!("{name}: a round trip of {:.2} ms", measured.as_secs_f64() * 1e3);
    let began = Instant::now();
    let done = part(setting, sheet);
    let took = began.elapsed().as_secs_f64();
    let told = format!("{:.2} ms, {took:.0} s", measured.as_secs_f64() * 1e3);
    sheet.header.push((format!("round trip measured, and time of {name}"), told));
    done
}

impl Setting<'_> {
    /// Makes the stores of the peers, once for all lines. What cannot be made is no contender.
    fn format_peers(&mut self) -> Result<Vec<String>> {
        let mut failures = Vec::new();
        let mut kept = Vec::new();
        for contender in std::mem::take(&mut self.contenders) {
            if self.is_formatted(contender, &mut failures) {
                kept.push(contender);
            }
        }
        self.contenders = kept;
        Ok(failures)
    }

    fn is_formatted(&self, contender: Contender, failures: &mut Vec<String>) -> bool {
        match Store::format(contender, (self.servers, self.programs), &self.hosts.all()[0]) {
            Ok(()) => true,
            Err(failure) => {
                failures.push(format!("{} is not raced: {failure}", contender.subject().name));
                false
            }
        }
    }
}

fn write(arguments: &Arguments, sheet: &Sheet) -> Result<()> {
    if arguments.dry {
        return Ok(());
    }
    let picture = plot::draw(&sheet.panels());
    write_files(&arguments.name_or("hosts"), &sheet.page(), &sheet.json()?, &picture)
}
