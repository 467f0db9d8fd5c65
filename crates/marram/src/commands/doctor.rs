//! `marram doctor`: whether this machine has what Marram needs, and what to do where it has not.

use crate::error::Result;
use crate::mountinfo;
use crate::output::{Align, Output, Table};
use crate::paths;
use serde::Serialize;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Fewest open files that a daemon should be allowed.
const OPEN_FILES_MIN: u64 = 1024;
/// Oldest kernel that has all requests that are relied on: 5.14.
const KERNEL_MIN: (u32, u32) = (5, 14);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    Note,
    Bad,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    finding: String,
    advice: Option<&'static str>,
}

fn good(what: &'static str, finding: impl Into<String>) -> Finding {
    Finding { what, verdict: Verdict::Good, finding: finding.into(), advice: None }
}

fn note(what: &'static str, finding: impl Into<String>, advice: &'static str) -> Finding {
    Finding { what, verdict: Verdict::Note, finding: finding.into(), advice: Some(advice) }
}

fn bad(what: &'static str, finding: impl Into<String>, advice: &'static str) -> Finding {
    Finding { what, verdict: Verdict::Bad, finding: finding.into(), advice: Some(advice) }
}

/// Prints all findings; exits with 1 if one is bad.
pub(super) fn run(output: &Output) -> Result<u8> {
    let findings = [
        kernel(),
        fuse_device(),
        transport(),
        fusermount(),
        allow_other(),
        loop_devices(),
        open_files(),
        control_folder(),
        stale_mounts(),
    ];
    output.print(&findings, || {
        let mut table = Table::new(&[
            ("CHECK", Align::Left),
            ("VERDICT", Align::Left),
            ("FINDING", Align::Left),
        ]);
        for finding in &findings {
            table.row(vec![
                finding.what.to_owned(),
                format!("{:?}", finding.verdict).to_lowercase(),
                finding.finding.clone(),
            ]);
        }
        let advice =
            findings.iter().filter_map(|one| Some(format!("{}: {}\n", one.what, one.advice?)));
        let advice: String = advice.collect();
        let gap = if advice.is_empty() { "" } else { "\n" };
        format!("{}{gap}{advice}", table.columns(output.colour))
    });
    Ok(u8::from(findings.iter().any(|finding| finding.verdict == Verdict::Bad)))
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < KERNEL_MIN => {
            bad("kernel", release, "Linux 5.14 or newer is needed")
        }
        _ => good("kernel", release),
    }
}

fn fuse_device() -> Finding {
    let path = Path::new("/dev/fuse");
    if !path.exists() {
        return bad("/dev/fuse", "is not there", "load the kernel module: modprobe fuse");
    }
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => good("/dev/fuse", "can be opened"),
        Err(error) if !paths::is_root() => bad(
            "/dev/fuse",
            error.to_string(),
            "fusermount3 opens it with your rights: as root, chmod 666 /dev/fuse (udev does so)",
        ),
        Err(error) => bad("/dev/fuse", error.to_string(), "the container or system denies FUSE"),
    }
}

/// Whether requests can come over io_uring: they work without.
fn transport() -> Finding {
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    match std::fs::read_to_string(parameter) {
        Ok(value) if value.trim() == "Y" => good("io_uring", "the kernel offers it for requests"),
        Ok(_) => note(
            "io_uring",
            "not offered: requests come over /dev/fuse",
            "it makes small requests cheaper; as root: echo Y > \
             /sys/module/fuse/parameters/enable_uring",
        ),
        Err(_) => note("io_uring", "not known to this kernel", "it came with Linux 6.14"),
    }
}

fn fusermount() -> Finding {
    let Some(program) = paths::find_program("fusermount3") else {
        let advice = "install it (Debian: apt-get install fuse3); users need it to mount";
        return if paths::is_root() {
            note("fusermount3", "is not installed; root mounts without it", advice)
        } else {
            bad("fusermount3", "is not installed", advice)
        };
    };
    let setuid = std::fs::metadata(&program)
        .is_ok_and(|found| found.permissions().mode() & 0o4000 != 0 && found.uid() == 0);
    if setuid {
        return good("fusermount3", program.display().to_string());
    }
    note("fusermount3", "is not setuid root", "users cannot mount until it is: chmod u+s")
}

fn allow_other() -> Finding {
    let text = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if text.lines().any(|line| line.trim() == "user_allow_other") {
        return good("user_allow_other", "users may let others use their mounts");
    }
    note(
        "user_allow_other",
        "not set: only root may mount with allow_other",
        "add the line user_allow_other to /etc/fuse.conf if users need it",
    )
}

fn loop_devices() -> Finding {
    if !paths::is_root() {
        return good("loop devices", "not needed: users mount without them");
    }
    let advice = "without them sync(2) does not reach the daemon; fsync and unmount do";
    if paths::find_program("losetup").is_none() {
        return note("loop devices", "losetup is not installed", advice);
    }
    match OpenOptions::new().read(true).write(true).open("/dev/loop-control") {
        Ok(_) => good("loop devices", "can be had"),
        Err(error) => note("loop devices", format!("/dev/loop-control: {error}"), advice),
    }
}

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.current {
        Some(files) if files < OPEN_FILES_MIN => {
            note("open files", format!("limit is {files}"), "raise it with ulimit -n 1024")
        }
        Some(files) => good("open files", format!("limit is {files}")),
        None => good("open files", "no limit"),
    }
}

fn control_folder() -> Finding {
    let folder = paths::control_folder();
    if !folder.exists() {
        return good("control sockets", format!("{} (not made yet)", folder.display()));
    }
    match paths::check_private_folder(&folder) {
        Ok(()) => good("control sockets", folder.display().to_string()),
        Err(error) => bad("control sockets", error.message, "remove that folder"),
    }
}

fn stale_mounts() -> Finding {
    let mounts = mountinfo::mounts().unwrap_or_default();
    let ours = mounts.into_iter().filter(mountinfo::MountEntry::is_marram);
    let dead: Vec<String> = ours
        .filter(|entry| marram_fuse::is_dead_mount(&entry.directory))
        .map(|entry| entry.directory.display().to_string())
        .collect();
    if dead.is_empty() {
        return good("stale mounts", "none");
    }
    bad("stale mounts", dead.join(", "), "clear each with: marram unmount DIRECTORY")
}
