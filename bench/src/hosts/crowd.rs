//! Many hosts that make files at once: in one directory, and each in a fork of its own.

use super::super::interruption;
use super::super::sheet::{Line, Sheet, Subject};
use super::contender::{Contender, Mounted};
use super::{HOSTS, Setting};
use marram_lab::failure::{Context, Result, fail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a file has.
const FILE_BYTES: usize = 1_000;
/// How many times faster than one eight hosts in forks should be.
const FORKS: f64 = 3.0;

fn subject(hosts: usize) -> Subject {
    let name = match hosts {
        1 => "1 host",
        4 => "4 hosts",
        _ => "8 hosts",
    };
    Subject { name, is_ours: true, durable: "each file that was closed, with its name" }
}

/// Files a second of all together, each host in its own of these folders, by one thread.
fn rate(folders: &[PathBuf], time: Duration) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    let work = |(number, folder): (usize, &PathBuf)| -> Result<u64> {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let file = folder.join(format!("host-{number}-file-{count}"));
            std::fs::write(&file, [b'x'; FILE_BYTES]).context(|| file.display().to_string())?;
            count += 1;
        }
        Ok(count)
    };
    let began = Instant::now();
    let counts = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            folders.iter().enumerate().map(|each| scope.spawn(move || work(each))).collect();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| fail("a host's work panicked")))
            .collect::<Result<Vec<u64>>>()
    })?;
    Ok(counts.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
}

/// So many hosts have the home mounted.
fn all_mounted<'run>(
    setting: &Setting<'run>,
    name: &str,
) -> Result<(super::Store<'run>, Vec<Mounted<'run>>)> {
    let store = setting.store(Contender::Marram, name)?;
    let mounted =
        setting.hosts(HOSTS).iter().map(|host| store.mount(host)).collect::<Result<Vec<_>>>()?;
    Ok((store, mounted))
}

/// One, four and eight hosts in one directory; eight have it mounted all the time.
pub(super) fn one_directory(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let (_store, mounted) = all_mounted(setting, "crowd")?;
    let title = "files of 1,000 bytes made in one directory by so many hosts, all together, 1 ms";
    let line = Line::rate("one directory", title);
    for hosts in [1, 4, HOSTS] {
        interruption::check()?;
        let name = format!("by-{hosts}");
        std::fs::create_dir(mounted[0].seen().join(&name))?;
        let folder = |mounted: &Mounted<'_>| mounted.seen().join(&name);
        let folders: Vec<PathBuf> = mounted[..hosts].iter().map(folder).collect();
        sheet.add(&line, subject(hosts), rate(&folders, setting.sizes.crowd)?);
    }
    let [four, eight] = [4, HOSTS].map(|hosts| sheet.median(&line.key, subject(hosts).name));
    let ratio = eight.zip(four).map(|(eight, four)| eight / four);
    sheet.at_least("eight hosts in one directory: to four", ratio, 1.0, "times");
    mounted.into_iter().try_for_each(Mounted::unmount)
}

/// One and eight hosts, each in a fork of its own.
pub(super) fn forks(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let (store, mounted) = all_mounted(setting, "forked")?;
    let root = mounted[0].place().to_string_lossy().into_owned();
    let fork = |number: usize| Path::new(".marram/forks").join(format!("of-{number}"));
    for number in 0..HOSTS {
        store.ask(&mounted[0], &["fork", &root, &format!("of-{number}")])?;
    }
    let title = "files of 1,000 bytes made by so many hosts, each in its own fork, 1 ms";
    let line = Line::rate("forks", title);
    for hosts in [1, HOSTS] {
        interruption::check()?;
        let folder = |(number, mounted): (usize, &Mounted<'_>)| {
            let folder = mounted.seen().join(fork(number)).join(format!("by-{hosts}"));
            std::fs::create_dir(&folder).context(|| folder.display().to_string())?;
            Ok(folder)
        };
        let folders: Vec<PathBuf> =
            mounted[..hosts].iter().enumerate().map(folder).collect::<Result<_>>()?;
        sheet.add(&line, subject(hosts), rate(&folders, setting.sizes.crowd)?);
    }
    let [one, eight] = [1, HOSTS].map(|hosts| sheet.median(&line.key, subject(hosts).name));
    let ratio = eight.zip(one).map(|(eight, one)| eight / one);
    sheet.at_least("eight hosts in eight forks: to one", ratio, FORKS, "times");
    mounted.into_iter().try_for_each(Mounted::unmount)
}
