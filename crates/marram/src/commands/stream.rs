//! `marram send` and `marram receive`: a snapshot as a stream, and a stream as a dataset.

use crate::arguments::{ReceiveArguments, SendArguments};
use crate::control::protocol::{Answer, ReceiveOrder, SendOrder, StreamSummary};
use crate::engine::{OpenMode, OpenPool, hexadecimal, streams};
use crate::error::{Error, Result};
use crate::output::{Output, say, size_text};
use crate::target::{Target, with_snapshot};
use marram_store::{DatasetName, Source};
use rustix::termios::isatty;
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

pub(super) fn send(arguments: &SendArguments, output: &Output) -> Result<()> {
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let base = arguments.from.as_deref().map(|from| base(&dataset, from)).transpose()?;
    let order = SendOrder {
        snapshot: Source { dataset, snapshot: Some(snapshot) }.to_string(),
        base: base.map(|base| base.to_string()),
    };
    let Some(file) = &arguments.to_file else {
        if isatty(rustix::stdio::stdout()) {
            return Err(Error::usage("a stream is nothing for a terminal")
                .hint("lead it into a file or into `marram receive POOL NAME`"));
        }
        // Standard output is the stream's: what else is to be said goes elsewhere.
        let summary = summary(send_to(&target, &order, &mut std::io::stdout().lock())?)?;
        if output.json {
            let line = serde_json::to_string(&summary);
            say(&line.map_err(|error| Error::failed(error.to_string()))?);
        }
        return Ok(());
    };
    let summary = summary(to_file(file, &mut |out| send_to(&target, &order, out))?)?;
    output.print(&summary, || {
        let (bytes, place) = (size_text(summary.stream_bytes, false), file.display());
        format!("sent {} to {place}: {bytes}\n", summary.snapshot)
    });
    Ok(())
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
    let pool = OpenPool::open(&target.pool, &OpenMode::for_stream(true))?;
    streams::send(pool.pool(), order, out)
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
    let mut file =
        File::create_new(&partial).map_err(|error| Error::system("create", &partial, error))?;
    let written = write(&mut file).and_then(|answer| {
        file.sync_all().map_err(|error| Error::system("write", &partial, error))?;
        // Fails if somebody has made a file of that name meanwhile.
        std::fs::hard_link(&partial, path).map_err(|error| Error::system("make", path, error))?;
        sync_folder(path)?;
        Ok(answer)
    });
    // Under the right name, or of no use.
    let _stays_at_worst = std::fs::remove_file(&partial);
    written
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
    let order = ReceiveOrder { dataset: dataset.to_string(), force: arguments.force };
    let answer = match &arguments.from_file {
        Some(path) => {
            let mut file = File::open(path).map_err(|error| Error::system("open", path, error))?;
            receive_from(&target, &order, &mut file)?
        }
        None if isatty(rustix::stdio::stdin()) => {
            return Err(Error::usage("a stream does not come from a terminal")
                .hint("lead one here, as in `marram send SNAPSHOT | marram receive POOL NAME`"));
        }
        None => receive_from(&target, &order, &mut std::io::stdin().lock())?,
    };
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

fn receive_from(target: &Target, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
    if let Some(client) = target.connect()? {
        return client.receive_stream(order, input);
    }
    let pool = OpenPool::open(&target.pool, &OpenMode::for_stream(false))?;
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let received = streams::take_in(pool.pool(), order, &mut input).and_then(streams::publish);
    pool.close()?;
    Ok(streams::received(&received?))
}

fn summary(answer: Answer) -> Result<StreamSummary> {
    match answer {
        Answer::Streamed(summary) => Ok(*summary),
        other => Err(super::unexpected(&other)),
    }
}

/// What is said of a stream in a file that is whole.
#[derive(Serialize)]
struct StreamCheck {
    file: PathBuf,
    clean: bool,
    snapshot: String,
    snapshot_id: String,
    base_id: Option<String>,
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
        referenced_bytes: begin.referenced_bytes,
        items_put: totals.puts,
        items_removed: totals.removals,
        blocks: totals.blocks,
        content_bytes: totals.stored_bytes,
        stream_bytes: totals.stream_bytes,
    };
    output.print(&found, || {
        let kind = if found.base_id.is_some() { "an incremental stream" } else { "a full stream" };
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
