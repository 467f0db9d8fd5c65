//! `marram send` and `marram receive`: a snapshot as a stream, and a stream as a dataset.

mod progress;

use crate::arguments::{ReceiveArguments, SendArguments};
use crate::commands::answers::unexpected;
use crate::control::protocol::{
    Answer, Author, Operation, PartialRow, ReceiveOrder, SendOrder, StreamSummary,
};
use crate::engine::home::lacks;
use crate::engine::{OpenMode, streams};
use crate::error::{Error, Result};
use crate::names::{self, hexadecimal};
use crate::output::{Output, say, size_text};
use crate::target::{Target, with_snapshot};
use marram_store::{DatasetName, Source};
use progress::{Meter, Metered};
use rustix::termios::isatty;
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

pub(super) fn send(arguments: &SendArguments, output: &Output) -> Result<()> {
    let (target, order) = what_to_send(arguments)?;
    let metered = |send: &mut dyn FnMut(&mut Meter) -> Result<Answer>| {
        let mut meter = Meter::new("sending", arguments.progress, output, None);
        let sent = send(&mut meter);
        meter.end();
        sent
    };
    let Some(file) = &arguments.to_file else {
        if isatty(rustix::stdio::stdout()) {
            return Err(Error::usage("a stream is nothing for a terminal")
                .hint("lead it into a file or into `marram receive POOL NAME`"));
        }
        // Standard output is the stream's: what else is to be said goes elsewhere.
        let summary = summary(metered(&mut |meter| {
            send_to(&target, &order, &mut Metered::new(std::io::stdout().lock(), meter))
        })?)?;
        if output.json {
            let line = serde_json::to_string(&summary);
            say(&line.map_err(|error| Error::failed(error.to_string()))?);
        }
        return Ok(());
    };
    let sent = metered(&mut |meter| {
        to_file(file, &mut |out| send_to(&target, &order, &mut Metered::new(out, meter)))
    });
    let summary = summary(sent?)?;
    output.print(&summary, || {
        let (bytes, place) = (size_text(summary.stream_bytes, false), file.display());
        format!("sent {} to {place}: {bytes}\n", summary.snapshot)
    });
    Ok(())
}

fn what_to_send(arguments: &SendArguments) -> Result<(Target, SendOrder)> {
    if arguments.resume.is_some() {
        let order =
            SendOrder { snapshot: String::new(), base: None, resume: arguments.resume.clone() };
        return Ok((Target::find(&arguments.target)?, order));
    }
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let base = arguments.from.as_deref().map(|from| base(&dataset, from)).transpose()?;
    let order = SendOrder {
        snapshot: Source { dataset, snapshot: Some(snapshot) }.to_string(),
        base: base.map(|base| base.to_string()),
        resume: None,
    };
    Ok((target, order))
}

fn base(dataset: &DatasetName, from: &str) -> Result<Source> {
    match from.contains('@') {
        true => Ok(from.parse()?),
        false => Ok(format!("{dataset}@{from}").parse()?),
    }
}

fn send_to(target: &Target, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    if let Some(client) = target.connect()? {
        return client.send_stream(order, out);
    }
    let home = target.open(&OpenMode::for_command(true))?;
    home.streams().ok_or_else(|| lacks(&*home, "streams"))?.send(order, out)
}

/// Writes a new file, which is there when it is whole and durable, or not at all.
fn to_file(path: &Path, write: &mut dyn FnMut(&mut dyn Write) -> Result<Answer>) -> Result<Answer> {
    if path.exists() {
        return Err(Error::usage(format!("{} exists", path.display()))
            .hint("name a new file, or remove that one first"));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".part");
    let partial = PathBuf::from(partial);
    let mut file = File::create_new(&partial).map_err(|error| not_begun(&partial, error))?;
    let written = write(&mut file).and_then(|answer| {
        file.sync_all().map_err(|error| Error::system("write", &partial, error))?;
        give_name(&partial, path).map_err(|error| Error::system("make", path, error))?;
        sync_folder(path)?;
        Ok(answer)
    });
    // Under the right name, or of no use.
    let _stays_at_worst = std::fs::remove_file(&partial);
    written
}

fn not_begun(partial: &Path, error: std::io::Error) -> Error {
    let is_there = error.kind() == std::io::ErrorKind::AlreadyExists;
    let error = Error::system("create", partial, error);
    match is_there {
        true => error.hint("another send writes it, or one was cut short: then remove it"),
        false => error,
    }
}

/// Gives a file its name, unless somebody has made one of that name meanwhile. Some file systems
/// have no names that cannot overwrite, others no second names.
fn give_name(partial: &Path, path: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, partial, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => std::fs::hard_link(partial, path),
        renamed => Ok(renamed?),
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::system("write", folder, error))
}

pub(super) fn receive(arguments: &ReceiveArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let dataset: DatasetName = arguments.dataset.parse()?;
    if arguments.token {
        return tell_token(&target, &dataset, output);
    }
    if arguments.abort {
        return abort(&target, &dataset, output);
    }
    let order = ReceiveOrder {
        dataset: dataset.to_string(),
        force: arguments.force,
        resumable: arguments.resumable,
        author: Author::of_this_process(),
    };
    let mut input: Box<dyn Read> = match &arguments.from_file {
        Some(path) => {
            Box::new(File::open(path).map_err(|error| Error::system("open", path, error))?)
        }
        None if isatty(rustix::stdio::stdin()) => {
            return Err(Error::usage("a stream does not come from a terminal")
                .hint("lead one here, as in `marram send SNAPSHOT | marram receive POOL NAME`"));
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let known = arguments.from_file.as_ref().and_then(|path| std::fs::metadata(path).ok());
    let bytes = known.filter(std::fs::Metadata::is_file).map(|known| known.len());
    let mut meter = Meter::new("receiving", arguments.progress, output, bytes);
    let answer = receive_from(&target, &order, &mut Metered::new(&mut input, &mut meter));
    meter.end();
    let answer = answer?;
    let summary = summary(answer)?;
    output.print(&summary, || {
        let bytes = size_text(summary.stream_bytes, false);
        let mut text = format!("received {}: {bytes}\n", summary.snapshot);
        if let Some(kept) = &summary.kept {
            text.push_str(&format!("what {dataset} was before is kept as {kept}\n"));
        }
        text
    });
    Ok(())
}

/// Tells what goes on from what is kept of a stream: the token alone, for scripts.
fn tell_token(target: &Target, dataset: &DatasetName, output: &Output) -> Result<()> {
    let rows = match target.perform(&Operation::Partials)? {
        Answer::Partials(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let is_it = |row: &PartialRow| {
        row.snapshot.parse().is_ok_and(|snapshot: Source| snapshot.dataset == *dataset)
    };
    let nothing = || {
        Error::not_found(format!("nothing of a stream is kept for {dataset}"))
            .hint("a receive keeps what has come with --resumable; `marram status` shows it")
    };
    let row = rows.into_iter().find(is_it).ok_or_else(nothing)?;
    let Some(token) = row.token.clone() else { return Err(nothing()) };
    output.print(&row, || format!("{token}\n"));
    Ok(())
}

fn abort(target: &Target, dataset: &DatasetName, output: &Output) -> Result<()> {
    target.perform(&Operation::DropPartial { dataset: dataset.to_string() })?;
    output.print(&(), || format!("dropped what was kept of a stream for {dataset}\n"));
    Ok(())
}

fn receive_from(target: &Target, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
    if let Some(client) = target.connect()? {
        return client.receive_stream(order, input);
    }
    let home = target.open(&OpenMode::for_command(false))?;
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let streams = home.streams().ok_or_else(|| lacks(&*home, "streams"))?;
    let received = streams.receive(order, &mut input, None);
    home.close()?;
    received
}

fn summary(answer: Answer) -> Result<StreamSummary> {
    match answer {
        Answer::Streamed(summary) => Ok(*summary),
        other => Err(unexpected(&other)),
    }
}

/// What is said of a stream in a file that is whole.
#[derive(Serialize)]
struct StreamCheck {
    #[serde(serialize_with = "names::serialize")]
    file: PathBuf,
    clean: bool,
    snapshot: String,
    snapshot_id: String,
    base_id: Option<String>,
    /// It is only the rest of a stream that was cut.
    rest: bool,
    referenced_bytes: u64,
    items_put: u64,
    items_removed: u64,
    blocks: u64,
    content_bytes: u64,
    stream_bytes: u64,
}

/// Whether a file can be read and begins as a stream does.
pub(super) fn is_stream(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST_BYTES).read_to_end(&mut first));
    read.is_ok() && streams::is_stream(&first)
}

/// Bytes of a file by which a stream is known.
const FIRST_BYTES: u64 = 16;
/// Bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Verifies a stream in a file, to its end.
///
/// # Errors
/// Whatever is wrong with it.
pub(super) fn check(path: &Path, output: &Output) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
    let report = streams::verify(&mut BufReader::with_capacity(READ_BYTES, file))
        .map_err(|error| error.during(path.display()))?;
    let (begin, totals) = (&report.begin, &report.totals);
    let found = StreamCheck {
        file: path.to_owned(),
        clean: true,
        snapshot: format!("{}@{}", begin.dataset_name, begin.snapshot_name),
        snapshot_id: hexadecimal(&begin.snapshot.id),
        base_id: begin.base.map(|base| hexadecimal(&base.id)),
        rest: begin.after.is_some(),
        referenced_bytes: begin.referenced_bytes,
        items_put: totals.puts,
        items_removed: totals.removals,
        blocks: totals.blocks,
        content_bytes: totals.stored_bytes,
        stream_bytes: totals.stream_bytes,
    };
    output.print(&found, || {
        let kind = match (found.rest, found.base_id.is_some()) {
            (true, _) => "the rest of a stream",
            (false, true) => "an incremental stream",
            (false, false) => "a full stream",
        };
        format!(
            "{}: clean\n  {kind} of {}, {}: {} items put, {} removed, {} blocks\n",
            path.display(),
            found.snapshot,
            size_text(found.stream_bytes, false),
            found.items_put,
            found.items_removed,
            found.blocks
        )
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::give_name;

    #[test]
    fn a_name_that_is_taken_is_not_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, path) = (folder.path().join("x.part"), folder.path().join("x"));
        std::fs::write(&partial, "new").unwrap();
        std::fs::write(&path, "old").unwrap();
        let refused = give_name(&partial, &path).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        std::fs::remove_file(&path).unwrap();
        give_name(&partial, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
