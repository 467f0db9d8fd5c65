//! How long after a close on one host a `stat` on another one shows what was written.

use super::super::interruption;
use super::super::sheet::{Line, Sheet, Subject};
use super::contender::Contender;
use super::{ROUND_TRIP, Setting};
use marram_lab::failure::{Result, fail};
use marram_lab::hosts::Apart;
use marram_lab::process::{OwnedChild, command, run};
use marram_lab::subject::{Marram, Subject as _};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is not seen until then is reported as so late.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(200);
/// Rounds of a peer, which may take as long as all patience.
const PEER_ROUNDS: usize = 8;
/// The goal of a home on a server beyond two round trips, and that of one in a file.
const BY_PUSH: Duration = Duration::from_millis(50);
const BY_POLLING: Duration = Duration::from_millis(150);

const SQLITE: Subject = Subject { name: "sqlite", is_ours: true, durable: "what was closed" };

/// Milliseconds from the return of each close to the first look that shows its file whole.
fn times(here: &Path, there: &Path, rounds: usize) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    let (name, text) = ("seen-elsewhere", [b'x'; 100]);
    File::create(here.join(name))?;
    for round in 1..=rounds {
        interruption::check()?;
        // It is known there before, so that caches have a part in it.
        let _is_known = std::fs::metadata(there.join(name));
        let mut file = File::options().append(true).open(here.join(name))?;
        file.write_all(&text)?;
        drop(file);
        let wanted = (round * text.len()) as u64;
        let closed = Instant::now();
        while closed.elapsed() < PATIENCE {
            if std::fs::metadata(there.join(name)).is_ok_and(|found| found.len() == wanted) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        times.push(closed.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn note(sheet: &mut Sheet, key: &str, title: &str, subject: Subject, times: Vec<f64>) {
    let line =
        Line::cost(format!("{key}, p99"), format!("{title}: p99 (3,000 is not in 3 s)"), "ms");
    let mut sorted = times;
    sorted.sort_by(f64::total_cmp);
    let late = sorted.len() * 99 / 100;
    sheet.add(&line, subject, sorted[late.min(sorted.len() - 1)]);
    let line = Line::cost(format!("{key}, median"), format!("{title}: median"), "ms");
    sheet.add(&line, subject, sorted[sorted.len() / 2]);
}

/// Over links.
pub(super) fn between_hosts(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let [first, second] = setting.hosts(2) else { return fail("there are no two hosts") };
    let (key, title) =
        ("seen between hosts", "closed on one host, seen by `stat` on another, 1 ms");
    for contender in &setting.contenders {
        let store = setting.store(*contender, "sight")?;
        let (here, there) = (store.mount(first)?, store.mount(second)?);
        let rounds = match contender {
            Contender::Marram => setting.sizes.sights,
            _ => PEER_ROUNDS,
        };
        let found = times(&here.seen(), &there.seen(), rounds)?;
        note(sheet, key, title, contender.subject(), found);
        there.unmount()?;
        here.unmount()?;
    }
    let late = sheet.median(&format!("{key}, p99"), Contender::Marram.subject().name);
    let most = (2 * ROUND_TRIP + BY_PUSH).as_secs_f64() * 1e3;
    sheet.at_most("seen on another host, p99", late, most, "ms");
    Ok(())
}

/// In a file of SQLite, for two daemons of one host.
pub(super) fn in_a_file(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let folder = setting.folder.join("sight");
    let url = format!("sqlite:{}", folder.join("home.db").display());
    let words = ["-o", "close=publish"].map(String::from);
    let mut here = Marram::make_home(&folder, &url, words.into())?;
    let apart = Apart::make()?;
    let place = folder.join("there");
    std::fs::create_dir(&place)?;
    let mut mount = here.command(&["mount", "--foreground", &url]);
    mount.arg(&place).env("XDG_STATE_HOME", folder.join("state"));
    let log = File::create(folder.join("there.log"))?;
    let mut mount = apart.around(mount.stdout(log.try_clone()?).stderr(log));
    let mut daemon = OwnedChild::start(&mut mount)?;
    let seen = apart.seen(&place);
    let began = Instant::now();
    let outside = std::fs::metadata(&folder)?.dev();
    while !std::fs::metadata(&seen).is_ok_and(|root| root.dev() != outside) {
        if began.elapsed() > 10 * PATIENCE || daemon.ended()?.is_some() {
            return fail(format!("no second mount of {url}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let found = times(here.root(), &seen, setting.sizes.sights)?;
    let (key, title) =
        ("seen in a file", "closed by one daemon, seen by `stat` at another, SQLite");
    note(sheet, key, title, SQLITE, found);
    run(&mut apart.around(command(&["umount"]).arg(&place)))?;
    daemon.wait(10 * PATIENCE)?;
    here.unmount()?;
    let late = sheet.median(&format!("{key}, p99"), SQLITE.name);
    let most = BY_POLLING.as_secs_f64() * 1e3;
    sheet.at_most("seen by another daemon, SQLite, p99", late, most, "ms");
    Ok(())
}
