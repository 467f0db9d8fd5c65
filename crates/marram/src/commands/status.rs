//! `marram status`: how a pool is, or a stream in a file that is mounted. Exits with 0 when all is
//! well, and with 3 when it is not.

use super::sight::{note_sight, place_of};
use super::stream::is_stream;
use crate::arguments::StatusArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons;
use crate::control::protocol::{
    Answer, DaemonReport, DamageRow, MountReport, Operation, ScheduleRow, ShownReport,
    StatusReport, TwoPoolRow, WriteOrder,
};
use crate::control::server::clear_abandoned;
use crate::error::{Error, Kind, Result};
use crate::names::{printable, quoted, shell_word};
use crate::output::{Align, Output, Table, instant_text, size_text};
use crate::target::Target;
use crate::{dead_mounts, paths};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most damaged places that are shown to people; `--json` and the log have all.
const DAMAGE_SHOWN_MAX: usize = 20;

pub(super) fn run(arguments: &StatusArguments, output: &Output) -> Result<u8> {
    // In another user's folder, that user could have us wait, or take away what is no socket.
    let own = paths::private_control_folders_of(paths::own_uid());
    own.iter().for_each(|folder| clear_abandoned(folder));
    let (reports, are_all) = match &arguments.target {
        None => of_all_daemons(),
        Some(path) => (targets(path)?.iter().map(status).collect::<Result<_>>()?, true),
    };
    output.print(&reports, || {
        let text = |report: &Report| match report {
            Report::Pool(report) => text(report, arguments.exact, output),
            Report::Streams(report) => streams(report, output),
        };
        let texts: Vec<String> = reports.iter().map(text).collect();
        match texts.is_empty() && are_all {
            true => "no pool is mounted\n".to_owned(),
            false => texts.join("\n"),
        }
    });
    let is_well = |report: &Report| match report {
        Report::Pool(report) => {
            report.health == "online"
                && report.dead_mounts.is_empty()
                && !report.two_pools.iter().any(|row| row.is_in_doubt)
        }
        Report::Streams(report) => report.health == "online",
    };
    let well = reports.iter().all(is_well);
    Ok(if well && are_all { 0 } else { Kind::Partial.exit_status() })
}

/// What a daemon has.
#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Pool(Box<StatusReport>),
    Streams(Box<ShownReport>),
}

/// Everything that is mounted, and whether all of it is there. A daemon that ends meanwhile has
/// nothing mounted: only daemons are asked, and never their pools in their place. One that does not
/// answer is no reason to leave out the others.
fn of_all_daemons() -> (Vec<Report>, bool) {
    let (daemons, mut are_all) = daemons::all_to_show();
    let mut reports = Vec::new();
    for target in daemons.into_iter().map(Target::of_daemon) {
        match target.ask_daemon(&Operation::Status).and_then(|told| told.map(report).transpose()) {
            Ok(told) => reports.extend(told),
            Err(error) => {
                if let Err(error) = target.among_others::<()>(Err(error)) {
                    target.say_left_out(&error);
                    are_all = false;
                }
            }
        }
    }
    (reports, are_all)
}

/// What is meant by a path.
fn targets(path: &Path) -> Result<Vec<Target>> {
    if !is_stream(path) {
        return Ok(vec![Target::find_served(path)?]);
    }
    let shown: Vec<Target> = daemons::showing(path)?.into_iter().map(Target::of_daemon).collect();
    match shown.is_empty() {
        true => Err(Error::not_found(format!("the stream {} is not mounted", path.display()))
            .hint("`marram check FILE` tells what is in it, and whether it is whole")),
        false => Ok(shown),
    }
}

fn status(target: &Target) -> Result<Report> {
    let mut report = report(target.perform(&Operation::Status)?)?;
    if let (Report::Pool(report), None) = (&mut report, &target.daemon) {
        report.dead_mounts = dead_mounts::of_pool(&target.pool)?;
    }
    Ok(report)
}

fn report(answer: Answer) -> Result<Report> {
    match answer {
        Answer::Status(mut report) => {
            note_sight(&mut report.mounts)?;
            Ok(Report::Pool(report))
        }
        Answer::ShownStatus(mut report) => {
            note_sight(&mut report.mounts)?;
            Ok(Report::Streams(report))
        }
        other => Err(unexpected(&other)),
    }
}

fn streams(report: &ShownReport, output: &Output) -> String {
    let files: Vec<String> = report.streams.iter().map(|file| file.display().to_string()).collect();
    let health = coloured(&report.health, &report.health, output.colour);
    let mut text = format!("stream:       {}\n", files.join(", then "));
    text.push_str(&format!("health:       {health}\n"));
    text.push_str(&format!("daemon:       process {}, marram {}\n", report.pid, report.version));
    text.push_str(&mounts(&report.mounts, output.colour));
    text.push_str(&damage(&report.damage));
    text
}

fn text(report: &StatusReport, exact: bool, output: &Output) -> String {
    let size = |bytes| size_text(bytes, exact);
    let mut lines = vec![format!("pool:         {}", report.pool.display())];
    if !report.label.is_empty() {
        lines.push(format!("label:        {}", report.label));
    }
    lines.push(format!("id:           {}", report.pool_id));
    lines.push(format!("health:       {}", health(report, output.colour)));
    lines.push(match report.total_bytes {
        // A server does not tell what there is.
        0 => format!("space:        {} in use", size(report.allocated_bytes)),
        total => format!(
            "space:        {} of {} in use, {} free",
            size(report.allocated_bytes),
            size(total),
            size(report.free_bytes)
        ),
    });
    lines.push(match &report.medium {
        Some(medium) => format!("medium:       {medium}"),
        None => format!(
            "last commit:  {} (number {})",
            instant_text(report.last_commit_seconds, exact),
            report.group
        ),
    });
    lines.extend(report.write_order.iter().flat_map(|order| order_lines(order, exact)));
    if report.healed_blocks > 0 {
        lines.push(format!("healed:       {} blocks from another copy", report.healed_blocks));
    }
    lines.extend(daemon_lines(report, exact));
    lines.extend(report.snapshots.iter().map(|row| schedule(row, report, exact)));
    let mut text = lines.join("\n") + "\n";
    text.push_str(&devices(report, exact, output.colour));
    text.push_str(&mounts(&report.mounts, output.colour));
    text.push_str(&partials(report, exact, output.colour));
    text.push_str(&two_pools(report));
    text.push_str(&damage(&report.damage));
    text
}

/// Transactions over two pools that are not over.
fn two_pools(report: &StatusReport) -> String {
    let mut text = String::new();
    for row in &report.two_pools {
        let (id, datasets) = (&row.id, row.datasets.join(", "));
        let path = printable(row.other.path.display().to_string());
        let other = if path.is_empty() { format!("pool {}", row.other.id) } else { path };
        let told = match row.state.as_str() {
            TwoPoolRow::PREPARED => format!(
                "in doubt: {other} decides whether it is committed; until then nobody reads or \
                 changes {datasets}; `marram tx resolve` ends it"
            ),
            TwoPoolRow::DECIDED => format!("committed in {datasets}; {other} is to hear of it"),
            TwoPoolRow::COMMITTED_BY_HAND => {
                format!("committed in {datasets} by hand; {other} has not been heard")
            }
            _ => format!("not committed in {datasets} by hand; {other} has not been heard"),
        };
        text.push_str(&format!("\ntransaction {id} over two pools: {told}\n"));
    }
    text
}

/// In which order an image is written, and what that has cost.
fn order_lines(order: &WriteOrder, exact: bool) -> [String; 3] {
    let size = |bytes| size_text(bytes, exact);
    [
        format!(
            "write order:  {}: {} commits, {} waves, {} flushes; {} written, {} of it twice",
            order.consistency,
            order.commits,
            order.waves,
            order.flushes,
            size(order.written_bytes),
            size(order.twice_bytes)
        ),
        format!(
            "patches:      {} made ({} hard), {} joined to them ({} to hard ones, {} overlapped, \
             {} near)",
            order.patches,
            order.hard,
            order.joined,
            order.joined_hard,
            order.joined_overlapped,
            order.joined_near
        ),
        format!(
            "              {} waiting in {}; {} kept to take back, {} now; {} taken back",
            order.waiting,
            size(order.graph_bytes),
            size(order.kept_bytes),
            size(order.undo_bytes),
            order.rollbacks
        ),
    ]
}

/// How snapshots of a dataset are taken by themselves.
fn schedule(row: &ScheduleRow, report: &StatusReport, exact: bool) -> String {
    let next = match report.daemon.is_some() && report.mounts.iter().any(|it| !it.read_only) {
        true => format!("next {}, if changed", instant_text(row.next_seconds, exact)),
        false => "none while the pool is not mounted for writing".to_owned(),
    };
    format!("snapshots:    {} by {}: {} there; {next}", row.dataset, row.rule, row.count)
}

fn health(report: &StatusReport, colour: bool) -> String {
    let named = match &report.reason {
        Some(reason) => format!("{}: {reason}", report.health),
        None => report.health.clone(),
    };
    coloured(&named, &report.health, colour)
}

/// Green if all is well, and red if not.
fn coloured(text: &str, health: &str, colour: bool) -> String {
    match (colour, health) {
        (false, _) => text.to_owned(),
        (true, "online") => format!("\x1b[32m{text}\x1b[0m"),
        (true, _) => format!("\x1b[31m{text}\x1b[0m"),
    }
}

/// What a home holds in memory, in its own terms.
fn memory(report: &StatusReport, daemon: &DaemonReport, exact: bool) -> String {
    let (cache, dirty) = (report.cache_bytes, report.dirty_bytes);
    let [cache, dirty] = [cache, dirty].map(|bytes| size_text(bytes, exact));
    let (seconds, known) = (daemon.commit_seconds, daemon.known_inodes);
    match (&report.medium, &report.write_order) {
        (None, _) => format!(
            "cache {cache}, {dirty} to be committed within {seconds} s; {known} inodes known to \
             the kernel"
        ),
        (_, Some(order)) => {
            let graph = size_text(order.graph_bytes, exact);
            format!("{graph} of changes that wait, written within {seconds} s")
        }
        _ if report.dirty_bytes > 0 => format!("{dirty} wait to be published"),
        _ => "nothing waits".to_owned(),
    }
}

fn daemon_lines(report: &StatusReport, exact: bool) -> Vec<String> {
    let Some(daemon) = &report.daemon else {
        let mut lines = vec!["daemon:       none, the pool is not mounted".to_owned()];
        lines.extend(report.dead_mounts.iter().map(|directory| {
            let place = shell_word(directory);
            let told = quoted(directory.as_os_str().as_bytes());
            format!("dead mount:   {told}: `marram unmount {place}` clears it")
        }));
        return lines;
    };
    let log = daemon.log.as_ref().map_or("standard error".into(), |log| log.display().to_string());
    let mut lines = vec![
        format!(
            "daemon:       process {}, marram {}, since {}",
            daemon.pid,
            daemon.version,
            instant_text(daemon.started_seconds, exact)
        ),
        format!("memory:       {}", memory(report, daemon, exact)),
        format!("log:          {log}"),
    ];
    lines.extend(daemon.dedup.as_ref().map(|totals| {
        let lost = totals.missed_ranges + totals.failed_ranges;
        format!(
            "dedup:        {} of {} written since the mount are shared; {lost} ranges left out",
            size_text(totals.shared_bytes, exact),
            size_text(totals.content_bytes, exact),
        )
    }));
    lines.extend(daemon.rewriting.as_ref().map(|rewriting| {
        let row = &rewriting.rewriting;
        let now = match (rewriting.is_running, rewriting.is_short_of_space) {
            (true, _) => ", one is under way",
            (false, true) => ", the last one for want of space not to the end",
            (false, false) => "",
        };
        format!(
            "rewriting:    {} in {} passes for blocks that took {}{now}",
            size_text(row.rewritten_bytes, exact),
            rewriting.passes,
            size_text(row.released_bytes, exact),
        )
    }));
    lines
}

fn devices(report: &StatusReport, exact: bool, colour: bool) -> String {
    if report.devices.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("DEVICE", Align::Left),
        ("SIZE", Align::Right),
        ("READ ERRORS", Align::Right),
        ("WRITE ERRORS", Align::Right),
        ("CHECKSUM ERRORS", Align::Right),
    ]);
    for device in &report.devices {
        table.row(vec![
            device.name.clone(),
            size_text(device.size_bytes, exact),
            device.read_errors.to_string(),
            device.write_errors.to_string(),
            device.checksum_errors.to_string(),
        ]);
    }
    format!("\n{}", table.columns(colour))
}

fn partials(report: &StatusReport, exact: bool, colour: bool) -> String {
    if report.partials.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("PART OF", Align::Left),
        ("STATE", Align::Left),
        ("ITEMS", Align::Right),
        ("CONTENT", Align::Right),
        ("SINCE", Align::Left),
        ("KEPT AS", Align::Left),
    ]);
    for row in &report.partials {
        table.row(vec![
            row.snapshot.clone(),
            if row.running { "being received" } else { "cut" }.to_owned(),
            row.items.to_string(),
            size_text(row.content_bytes, exact),
            instant_text(row.created_seconds, exact),
            row.name.clone(),
        ]);
    }
    format!("\n{}", table.columns(colour))
}

fn mounts(mounts: &[MountReport], colour: bool) -> String {
    if mounts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("MOUNTED AT", Align::Left),
        ("DATASET", Align::Left),
        ("OPTIONS", Align::Left),
        ("BLOCK DEVICE", Align::Left),
    ]);
    for mount in mounts {
        let device = mount.block_device.as_ref();
        table.row(vec![
            place_of(mount),
            mount.source.clone(),
            mount.options.clone(),
            device.map_or("-".to_owned(), |device| device.display().to_string()),
        ]);
    }
    format!("\n{}", table.columns(colour))
}

fn damage(rows: &[DamageRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "\ndamaged:\n".to_owned();
    for row in rows.iter().take(DAMAGE_SHOWN_MAX) {
        let range = match (row.offset, row.len) {
            (Some(offset), Some(len)) => format!(", {len} bytes at offset {offset}"),
            _ => String::new(),
        };
        let place = printable(row.place.clone());
        text.push_str(&format!("  {place}{range}: {}\n", row.reason));
    }
    if rows.len() > DAMAGE_SHOWN_MAX {
        let more = rows.len() - DAMAGE_SHOWN_MAX;
        text.push_str(&format!("  and {more} more; --json shows all\n"));
    }
    text
}
