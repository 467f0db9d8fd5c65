//! How many requests a second the way to the kernel and back carries, and what each costs: a file
//! system that does nothing, served by a process of its own over each transport in turn, and
//! threads here that ask it for one thing again and again. `cargo xtask bench --workloads
//! transport` runs it. Needs root.
//!
//! Nothing is remembered by the kernel, so each call is one request: `lookup` asks for a name that
//! is not there, `getattr` for an open file's attributes, `write` overwrites 4 KiB, `fsync` syncs
//! a clean file, `read 1M` and `write 1M` go past the page cache.

mod null;

use marram_fuse::{MountOptions, TransportChoice, mount, unmount};
use null::NullFileSystem;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long each case runs.
const CASE: Duration = Duration::from_millis(1500);
/// How many threads ask.
const THREADS: [usize; 3] = [1, 8, 32];
/// How many times a second the kernel counts processor time.
const TICKS: f64 = 100.0;

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

/// One kind of request.
#[derive(Clone, Copy)]
enum Request {
    Lookup,
    GetAttributes,
    Write,
    Sync,
    LargeRead,
    LargeWrite,
}

impl Request {
    const ALL: [Request; 6] = [
        Request::Lookup,
        Request::GetAttributes,
        Request::Write,
        Request::Sync,
        Request::LargeRead,
        Request::LargeWrite,
    ];

    fn name(self) -> &'static str {
        match self {
            Request::Lookup => "lookup",
            Request::GetAttributes => "getattr",
            Request::Write => "write",
            Request::Sync => "fsync",
            Request::LargeRead => "read 1M",
            Request::LargeWrite => "write 1M",
        }
    }

    fn make(self, root: &File, file: &File, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Request::Lookup => {
                let missing = rustix::fs::openat(root, "missing", OFlags::PATH, Mode::empty());
                assert_eq!(missing.err(), Some(rustix::io::Errno::NOENT));
                Ok(())
            }
            Request::GetAttributes => rustix::fs::fstat(file).map(drop).map_err(io::Error::from),
            Request::Write => file.write_all_at(&buffer[..4096], 0),
            Request::Sync => file.sync_all(),
            Request::LargeRead => file.read_exact_at(buffer, 0),
            Request::LargeWrite => file.write_all_at(buffer, 0),
        }
    }

    fn flags(self) -> i32 {
        let is_large = matches!(self, Request::LargeRead | Request::LargeWrite);
        if is_large { i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0) } else { 0 }
    }
}

/// What a case came to.
struct Outcome {
    requests_per_second: f64,
    server_us_per_request: f64,
    callers_us_per_request: f64,
}

fn main() -> AnyResult<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", mountpoint, transport] => serve(mountpoint, transport),
        _ => race(&words),
    }
}

fn serve(mountpoint: &str, transport: &str) -> AnyResult<()> {
    let mut options = MountOptions::new(mountpoint, "null");
    options.entry_timeout = Duration::ZERO;
    options.attributes_timeout = Duration::ZERO;
    options.transport = match transport {
        "classic" => TransportChoice::Classic,
        "io_uring" => TransportChoice::IoUring,
        _ => return Err(format!("{transport} is no transport").into()),
    };
    options.wakeful = marram_fuse::should_be_wakeful();
    mount(Arc::new(NullFileSystem), options)?.wait()?;
    Ok(())
}

/// Runs all cases over the transports that are named, and prints a table of each.
fn race(transports: &[String]) -> AnyResult<()> {
    for transport in transports {
        let folder = tempfile::tempdir()?;
        let mut server = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args([folder.path().as_os_str(), transport.as_ref()])
            .spawn()?;
        let measured = measure(transport, folder.path(), &mut server);
        let _gone_with_its_server = unmount(folder.path(), true);
        server.wait()?;
        measured?;
    }
    Ok(())
}

fn measure(transport: &str, root: &Path, server: &mut Child) -> AnyResult<()> {
    wait_until_mounted(root, server)?;
    println!("| {transport} | threads | requests/s | us server | us callers |");
    println!("| --- | --- | --- | --- | --- |");
    for request in Request::ALL {
        for threads in THREADS {
            let outcome = case(request, threads, root, server.id())?;
            println!(
                "| {} | {threads} | {:.0} | {:.1} | {:.1} |",
                request.name(),
                outcome.requests_per_second,
                outcome.server_us_per_request,
                outcome.callers_us_per_request,
            );
        }
    }
    Ok(())
}

fn wait_until_mounted(root: &Path, server: &mut Child) -> AnyResult<()> {
    let begin = Instant::now();
    while !marram_fuse::mounts().iter().any(|entry| entry.mountpoint == root) {
        if begin.elapsed() > Duration::from_secs(10) || server.try_wait()?.is_some() {
            return Err("the server does not mount".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn case(request: Request, threads: usize, root: &Path, server: u32) -> AnyResult<Outcome> {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = (processor_seconds(server)?, processor_seconds(std::process::id())?);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (is_over, count) = (&is_over, &count);
            scope.spawn(move || {
                let made = ask(request, &root.join(thread.to_string()), root, is_over);
                count.fetch_add(made.expect("the null file system says yes"), Ordering::Relaxed);
            });
        }
        std::thread::sleep(CASE);
        is_over.store(true, Ordering::Relaxed);
    });
    let seconds = begin.elapsed().as_secs_f64();
    let count = count.load(Ordering::Relaxed) as f64;
    let us_since = |now: f64, before: f64| (now - before) * 1e6 / count;
    Ok(Outcome {
        requests_per_second: count / seconds,
        server_us_per_request: us_since(processor_seconds(server)?, before.0),
        callers_us_per_request: us_since(processor_seconds(std::process::id())?, before.1),
    })
}

/// One thread's requests; returns how many there were.
fn ask(request: Request, path: &Path, root: &Path, is_over: &AtomicBool) -> io::Result<u64> {
    let root = File::open(root)?;
    let mut open = File::options();
    let file = open.read(true).write(true).custom_flags(request.flags()).open(path)?;
    let mut space = vec![1; (1 << 20) + 4096];
    let begin = space.as_ptr().align_offset(4096);
    let buffer = &mut space[begin..begin + (1 << 20)];
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        request.make(&root, &file, buffer)?;
        count += 1;
    }
    Ok(count)
}

/// Processor time of a process so far.
fn processor_seconds(process: u32) -> io::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = status.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS)
}
