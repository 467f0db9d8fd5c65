//! Two users of one mount: each has what belongs to it, up to its limit, and learns in time.

use super::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{Making, Marram, Subject};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Users of no system, with groups of the same numbers.
const USERS: [u32; 2] = [64_101, 64_102];
const PROJECT: u32 = 64_200;

/// Limits on bytes and inodes, chown, projects, a dataset's quota; compared with `du` throughout.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("setpriv", "util-linux"), ("chattr", "e2fsprogs")])?;
    let mut marram = Marram::make(&setting.folder.join("subject"), &Making::sized(512 * MIB))?;
    for id in USERS {
        let home = marram.root().join(id.to_string());
        std::fs::create_dir(&home).context(|| home.display())?;
        chown(&home, Some(id), Some(id))?;
    }
    limits(&marram)?;
    projects(&marram)?;
    marram.remount()?;
    compare_with_du(&marram)?;
    dataset_quota(&marram)?;
    marram.remount()?;
    compare_with_du(&marram)?;
    marram.unmount()?;
    marram.check()
}

/// One user comes to its limits; the other does not notice.
fn limits(marram: &Marram) -> Result<()> {
    let [limited, free] = USERS;
    let user = limited.to_string();
    quota(marram, &["--user", &user, "--bytes", "8M", "--inodes", "20"])?;
    as_user(marram, limited, "head -c 7M /dev/urandom > big")?;
    refused(marram, limited, "head -c 2M /dev/urandom > more")?;
    as_user(marram, free, "head -c 9M /dev/urandom > big; touch $(seq 50)")?;
    as_user(marram, limited, "rm -f more; dd if=/dev/zero of=big bs=1M count=7 conv=notrunc")?;
    refused(marram, limited, "touch $(seq 50)")?;
    as_user(marram, limited, "rm -f [0-9]* && rm big && head -c 8M /dev/urandom > big")?;
    compare_with_du(marram)?;
    step("one user at his limits of bytes and inodes, the other not in his way");
    let given = marram.root().join(free.to_string()).join("big");
    chown(&given, Some(limited), Some(limited)).context(|| "root gives to a full user")?;
    refused(marram, limited, "head -c 5000 /dev/zero > another")?;
    quota(marram, &["--user", &user, "--bytes", "none", "--inodes", "none"])?;
    as_user(marram, limited, "head -c 5000 /dev/zero > another")?;
    compare_with_du(marram)?;
    step("chown moved what was used; limits taken away while mounted");
    Ok(())
}

/// A directory whose project passes on and has a limit.
fn projects(marram: &Marram) -> Result<()> {
    let folder = marram.root().join("project");
    std::fs::create_dir(&folder)?;
    let id = PROJECT.to_string();
    run(command(&["chattr", "-p", &id, "+P"]).arg(&folder))?;
    quota(marram, &["--project", &id, "--bytes", "4M"])?;
    std::fs::write(folder.join("file"), vec![1; 3 << 20])?;
    let full = std::fs::write(folder.join("more"), vec![1; 2 << 20]);
    expect_quota(full, "a project at its limit")?;
    std::fs::remove_file(folder.join("more"))?;
    soon(&|| {
        let row = row(marram, "project", PROJECT)?;
        let expected = [(3 << 20).to_string(), (4 << 20).to_string(), "2".to_owned()];
        if row.starts_with(&expected) { Ok(()) } else { fail(format!("the project: {row:?}")) }
    })?;
    step("a project and its limit");
    Ok(())
}

/// The dataset as a whole.
fn dataset_quota(marram: &Marram) -> Result<()> {
    run(marram.command(&["set"]).arg(marram.root()).arg("quota=64M"))?;
    let size = text(command(&["df", "--output=size", "-B1"]).arg(marram.root()))?;
    let size: u64 = size.lines().last().unwrap_or_default().trim().parse().unwrap_or(0);
    if size > 64 * MIB {
        return fail(format!("df shows {size} bytes for a dataset of 64 MiB"));
    }
    let full = as_user(marram, USERS[1], "head -c 80M /dev/urandom > all");
    if full.is_ok() {
        return fail("a dataset of 64 MiB took 80 MiB more");
    }
    as_user(marram, USERS[1], "rm all && head -c 10M /dev/urandom > some")?;
    step("a dataset at its quota, and below it again");
    Ok(())
}

/// Runs `marram quota` on the mount.
fn quota(marram: &Marram, words: &[&str]) -> Result<String> {
    text(marram.command(&["quota"]).arg(marram.root()).args(["-H", "-p"]).args(words))
}

/// What `marram quota` shows of an owner behind class, number and name.
fn row(marram: &Marram, class: &str, id: u32) -> Result<Vec<String>> {
    let option = format!("--{class}");
    let said = quota(marram, &[&option, &id.to_string()])?;
    let fields = said.trim_end().split('\t').skip(3).map(str::to_owned);
    Ok(fields.collect())
}

/// Fails unless it is so in a moment: what was removed counts until the kernel lets go of it.
fn soon(check: &dyn Fn() -> Result<()>) -> Result<()> {
    for _ in 0..50 {
        if check().is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    check()
}

/// Fails unless each user uses what `du` and `find` say.
fn compare_with_du(marram: &Marram) -> Result<()> {
    soon(&|| compare_users(marram))
}

fn compare_users(marram: &Marram) -> Result<()> {
    for id in USERS {
        let find = ["find", ".", "-user", &id.to_string(), "-printf", "%i %b\n"];
        let found = text(command(&find).current_dir(marram.root()))?;
        let mut inodes: Vec<(&str, &str)> =
            found.lines().filter_map(|line| line.split_once(' ')).collect();
        inodes.sort_unstable();
        inodes.dedup();
        let blocks: u64 = inodes.iter().filter_map(|(_, blocks)| blocks.parse::<u64>().ok()).sum();
        let expected = ((blocks * 512).to_string(), inodes.len().to_string());
        let row = row(marram, "user", id)?;
        if row.first() != Some(&expected.0) || row.get(2) != Some(&expected.1) {
            return fail(format!("user {id}: {row:?}, but du and find say {expected:?}"));
        }
    }
    Ok(())
}

/// A shell command of a user in the user's own folder.
fn as_user(marram: &Marram, id: u32, line: &str) -> Result<String> {
    text(&mut shell(marram.root(), id, line))
}

fn shell(root: &Path, id: u32, line: &str) -> Command {
    let (id, home) = (id.to_string(), root.join(id.to_string()));
    let mut setpriv = command(&["setpriv", "--clear-groups", "--reuid", &id, "--regid", &id]);
    setpriv.args(["sh", "-ec", line]).current_dir(home);
    setpriv
}

/// A shell command of a user that must fail for its quota.
fn refused(marram: &Marram, id: u32, line: &str) -> Result<()> {
    let output = shell(marram.root(), id, line).output().context(|| line.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("quota exceeded") {
        return Ok(());
    }
    fail(format!("`{line}` of a user at his limit: {}, {said:?}", output.status))
}

fn expect_quota(result: std::io::Result<()>, what: &str) -> Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::QuotaExceeded => Ok(()),
        other => fail(format!("{what}: {other:?}, wanted EDQUOT")),
    }
}
