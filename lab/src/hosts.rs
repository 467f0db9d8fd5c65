//! Hosts on this one machine: a server and some clients, each joined to it by a [link](Link).
//!
//! The server is a network namespace. A client has namespaces of networks, mounts and names, the
//! number of a machine and that of a boot, so that a program takes it for another host. What is
//! mounted there is seen there alone, and from outside below [`Host::seen`]. All of it goes with
//! its owner: processes first, then links, then namespaces.

mod link;

use crate::failure::{Context, Result, fail};
use crate::process::{OwnedChild, command, run};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use link::{Conditions, Direction, Link};

/// The address of the server, for all clients.
pub const SERVER_ADDRESS: &str = "10.77.0.1";

/// Clients that the addresses have room for.
const HOSTS_MAX: usize = 200;
/// How long an answer may take when the round trip is measured.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Has namespaces let go of the mounts of others, hides the sockets of their daemons, makes them
/// another host if there is a name for it, says so, and stays.
const APART: &str = r#"
for at in $(grep 'fuse' /proc/self/mounts | cut -d' ' -f2); do
    case $at in /sys/*) ;; *) umount -il "$at" ;; esac
done
mount -t tmpfs none /run
if test $# -gt 0; then
    hostname "$1"
    mount --bind "$2/machine-id" /etc/machine-id
    mount --bind "$2/boot-id" /proc/sys/kernel/random/boot_id
fi
echo apart
exec sleep infinity
"#;

/// A network namespace, which goes with its owner.
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn make(name: String) -> Result<Self> {
        run(command(&["ip", "netns", "add"]).arg(&name))?;
        let made = Self { name };
        made.ip(&["link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// `ip` in it.
    fn ip(&self, words: &[&str]) -> Result<()> {
        run(command(&["ip", "-netns", &self.name]).args(words))
    }

    fn file(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// The same command, with its network here.
    pub fn around(&self, inner: &Command) -> Command {
        around(command(&["nsenter"]).arg(format!("--net={}", self.file().display())), inner)
    }

    /// Does something in a thread whose network is here: a socket that it opens stays here.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = File::open(self.file())?;
        let enter = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        };
        std::thread::scope(|scope| match scope.spawn(enter).join() {
            Ok(done) => done,
            Err(_) => fail("what was done in a namespace ended in a panic"),
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(failure) = run(command(&["ip", "netns", "delete"]).arg(&self.name)) {
            eprintln!("warning: {failure}");
        }
    }
}

/// `inner` behind the words of `outer`, with its environment and folder.
fn around(outer: &mut Command, inner: &Command) -> Command {
    let mut whole = Command::new(outer.get_program());
    whole.args(outer.get_args()).arg("--").arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    if let Some(folder) = inner.get_current_dir() {
        whole.current_dir(folder);
    }
    whole.stdin(Stdio::null());
    whole
}

/// Namespaces of mounts and names, as those of a container. They go with their owner.
pub struct Apart {
    keeper: OwnedChild,
}

impl Apart {
    /// A container of this host.
    pub fn make() -> Result<Self> {
        Self::keep(&[], |keeper| keeper)
    }

    fn keep(words: &[&str], place: impl FnOnce(Command) -> Command) -> Result<Self> {
        let mut keep = command(&["unshare", "--mount", "--uts", "--propagation", "private"]);
        keep.args(["sh", "-euc", APART, "keep"]).args(words);
        let mut keeper = OwnedChild::start(place(keep).stdout(Stdio::piped()))?;
        let mut said = String::new();
        if let Some(output) = keeper.take_output() {
            BufReader::new(output).read_line(&mut said)?;
        }
        match said.as_str() {
            "apart\n" => Ok(Self { keeper }),
            _ => fail(format!("namespaces that are not apart: their shell said {said:?}")),
        }
    }

    /// A path of it as a process outside of it reaches it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The same command in it.
    pub fn around(&self, inner: &Command) -> Command {
        let id = self.keeper.id().to_string();
        let words = ["nsenter", "--target", &id, "--mount", "--uts", "--net"];
        around(&mut command(&words), inner)
    }
}

/// A client.
pub struct Host {
    apart: Apart,
    link: Link,
    network: Namespace,
    folder: PathBuf,
}

impl Host {
    fn make(
        folder: PathBuf,
        number: usize,
        server: &Namespace,
        conditions: Conditions,
    ) -> Result<Self> {
        let network = Namespace::make(format!("marram-{}-{number}", std::process::id()))?;
        let name = format!("host{number}");
        let ends = [(&*network.name, "eth0"), (&*server.name, &*name)];
        let link = Link::between(number, ends, conditions)?;
        let (near, far) = (format!("10.77.{number}.2/24"), format!("10.77.{number}.1/24"));
        network.ip(&["address", "add", &near, "dev", "eth0"])?;
        network.ip(&["link", "set", "eth0", "up"])?;
        server.ip(&["address", "add", &far, "dev", &name])?;
        server.ip(&["link", "set", &name, "up"])?;
        let gateway = format!("10.77.{number}.1");
        network.ip(&["route", "add", SERVER_ADDRESS, "via", &gateway])?;
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("machine-id"), format!("{number:032x}\n"))?;
        std::fs::write(folder.join("boot-id"), format!("boot-of-host-{number}\n"))?;
        let place = folder.to_string_lossy().into_owned();
        let words = [&*name, &*place];
        let apart = Apart::keep(&words, |keeper| network.around(&keeper))?;
        Ok(Self { apart, link, network, folder })
    }

    /// A folder of the machine that is for this host alone.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its namespaces.
    pub fn apart(&self) -> &Apart {
        &self.apart
    }

    /// The same command on this host.
    pub fn around(&self, inner: &Command) -> Command {
        self.apart.around(inner)
    }

    /// A path of this host as a process outside of it reaches it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        self.apart.seen(path)
    }

    /// The link to the server.
    pub fn link(&self) -> &Link {
        &self.link
    }
}

/// A server and its clients. A process has one such set at a time: names of devices are short.
pub struct Hosts {
    hosts: Vec<Host>,
    server: Namespace,
}

impl Hosts {
    /// So many clients, with folders in `folder`. The links are all alike.
    pub fn make(folder: &Path, count: usize, conditions: Conditions) -> Result<Self> {
        if count > HOSTS_MAX {
            return fail(format!("{count} hosts, and there are addresses for {HOSTS_MAX}"));
        }
        let server = Namespace::make(format!("marram-{}-server", std::process::id()))?;
        server.ip(&["address", "add", &format!("{SERVER_ADDRESS}/32"), "dev", "lo"])?;
        let mut made = Self { hosts: Vec::new(), server };
        for number in 1..=count {
            let folder = folder.join(format!("host{number}"));
            made.hosts.push(Host::make(folder, number, &made.server, conditions)?);
        }
        Ok(made)
    }

    /// The network of the server.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The clients.
    pub fn all(&self) -> &[Host] {
        &self.hosts
    }

    /// What holds from now on on all links.
    pub fn set(&self, conditions: Conditions) {
        self.hosts.iter().for_each(|host| host.link.set(conditions));
    }

    /// How long a datagram of the first client takes to the server and back: the median of some.
    /// Nothing comes back over a link that is cut.
    pub fn round_trip(&self) -> Result<Duration> {
        const ROUNDS: usize = 101;
        let bind = |address| UdpSocket::bind((address, 0)).context(|| "a socket of datagrams");
        // An answer comes from the address that was asked, so it is bound to that.
        let there = self.server.within(|| bind(SERVER_ADDRESS))?;
        let [host, ..] = &self.hosts[..] else { return fail("there are no clients") };
        let here = host.network.within(|| bind("0.0.0.0"))?;
        there.set_read_timeout(Some(ANSWER_LIMIT))?;
        here.set_read_timeout(Some(ANSWER_LIMIT))?;
        here.connect((SERVER_ADDRESS, there.local_addr()?.port()))?;
        let mut times = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            scope.spawn(|| {
                let mut bytes = [0; 64];
                for _ in 0..ROUNDS {
                    let Ok((length, from)) = there.recv_from(&mut bytes) else { return };
                    if there.send_to(&bytes[..length], from).is_err() {
                        return;
                    }
                }
            });
            for _ in 0..ROUNDS {
                let began = Instant::now();
                here.send(b"there and back")?;
                here.recv(&mut [0; 64]).context(|| "no answer over the link")?;
                times.push(began.elapsed());
            }
            Ok(())
        })?;
        times.sort();
        Ok(times[times.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    const DELAY: Duration = Duration::from_millis(5);

    fn made() -> (tempfile::TempDir, Hosts) {
        let folder = tempfile::tempdir().expect("a folder");
        let hosts = Hosts::make(folder.path(), 1, Conditions::round_trip(2 * DELAY));
        (folder, hosts.expect("two namespaces and a link"))
    }

    #[test]
    #[ignore = "needs root"]
    fn a_link_delays_is_cut_has_a_rate_and_loses_frames_and_nothing_of_it_is_left() {
        let (_folder, hosts) = made();
        let time = hosts.round_trip().expect("an answer");
        assert!((2 * DELAY..10 * DELAY).contains(&time), "{time:?}");
        hosts.set(Conditions::round_trip(Duration::ZERO));
        let time = hosts.round_trip().expect("an answer");
        assert!(time < 2 * DELAY, "{time:?}");
        for direction in [Direction::There, Direction::Back] {
            hosts.all()[0].link().cut(direction, true);
            assert!(arrives(&hosts).is_none(), "{direction:?}");
            hosts.all()[0].link().cut(direction, false);
            assert!(arrives(&hosts).is_some(), "{direction:?}");
        }
        let limited = Conditions {
            delay: Duration::ZERO,
            bytes_per_second: NonZeroU64::new(4_000_000),
            lost_in_million: 0,
        };
        hosts.set(limited);
        let time = sent(&hosts, 1_000_000);
        let expected = Duration::from_millis(250);
        assert!((expected..10 * expected).contains(&time), "{time:?}");
        hosts.set(Conditions { lost_in_million: 1_000_000, ..limited });
        assert!(arrives(&hosts).is_none());
        let names = [hosts.server.name.clone(), hosts.all()[0].network.name.clone()];
        let device = format!("/sys/class/net/m{}a1", std::process::id());
        assert!(Path::new(&device).exists());
        drop(hosts);
        assert!(!Path::new(&device).exists());
        assert!(names.iter().all(|name| !Path::new("/run/netns").join(name).exists()));
    }

    /// How long a connection takes, if it comes about soon.
    fn arrives(hosts: &Hosts) -> Option<Duration> {
        let listener = hosts.server.within(|| Ok(std::net::TcpListener::bind("0.0.0.0:0")?));
        let port = listener.as_ref().expect("a port").local_addr().expect("an address").port();
        let address = format!("{SERVER_ADDRESS}:{port}").parse().expect("an address");
        let began = Instant::now();
        let patience = Duration::from_millis(500);
        let connect = || Ok(std::net::TcpStream::connect_timeout(&address, patience)?);
        hosts.all()[0].network.within(connect).ok().map(|_| began.elapsed())
    }

    /// How long so many bytes take to the server.
    fn sent(hosts: &Hosts, bytes: usize) -> Duration {
        use std::io::{Read, Write};
        let listen = || Ok(std::net::TcpListener::bind("0.0.0.0:0")?);
        let listener = hosts.server.within(listen).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connect = || Ok(std::net::TcpStream::connect((SERVER_ADDRESS, port))?);
        let mut client = hosts.all()[0].network.within(connect).expect("a connection");
        let (mut server, _) = listener.accept().expect("the other end");
        let began = Instant::now();
        let writer = std::thread::spawn(move || client.write_all(&vec![1; bytes]));
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("all bytes");
        writer.join().expect("a writer").expect("written");
        assert_eq!(all.len(), bytes);
        began.elapsed()
    }
}
