//! `cargo xtask bench --workloads versions`: 50 versions of a source tree, a mailbox, a database
//! and an image: bytes stored, beside borg and restic, and bytes sent, beside `rsync -z`.
//!
//! The versions come from a seed and from the Linux source; nothing is measured in seconds. Ours is
//! an example of the crate `cluster`, which counts what it sends.

mod inputs;
mod peers;

use super::plot::{Bar, Panel};
use super::{Arguments, machine, plot, work_folder, write_files};
use inputs::Input;
use marram_lab::failure::{Context, Failure, Result, fail};
use marram_lab::{project, setup};
use peers::{Borg, Restic, Rsync};
use serde_json::json;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

/// Versions of each input.
const VERSIONS: usize = 50;
/// The same when quick.
const VERSIONS_QUICK: usize = 5;
/// Bytes that are sent, to those of `rsync -z`, at most.
const SENT_MOST: f64 = 1.2;

/// What all versions of an input have come to, in bytes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Of the first version, as it is.
    content: u64,
    stored: u64,
    borg: u64,
    restic: u64,
    /// Of all versions.
    sent: u64,
    /// Behind the first version.
    sent_later: u64,
    rsync: u64,
    rsync_later: u64,
}

/// Runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    setup::install(&setup::VERSION_PACKAGES)?;
    let versions = if arguments.quick { VERSIONS_QUICK } else { VERSIONS };
    let mut rows = Vec::new();
    for input in Input::ALL {
        let folder =
            tempfile::Builder::new().prefix("versions").tempdir_in(work_folder(arguments)?)?;
        rows.push((input, measured(folder.path(), input, versions)?));
        super::interruption::check()?;
    }
    let mut header = machine()?;
    header.push(("versions".to_owned(), versions.to_string()));
    let page = page(&header, &rows);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    write_files(
        &arguments.name_or("versions"),
        &page,
        &json(&header, &rows)?,
        &plot::draw(&panels(&rows)),
    )
}

fn measured(folder: &Path, input: Input, versions: usize) -> Result<Taken> {
    let at = folder.join("now");
    let mut making = input.begin(&at)?;
    let mut ours = Ours::start(&at, &folder.join("home"), input.is_in_place())?;
    let borg = Borg::begin(&folder.join("borg"))?;
    let restic = Restic::begin(&folder.join("restic"))?;
    let mut rsync = Rsync::begin(&folder.join("copy"));
    let content = bytes_below(&at)?;
    let (mut first, mut last) = ([0; 2], [0; 2]);
    for number in 0..versions {
        if number > 0 {
            making.step()?;
        }
        let name = format!("v{number:02}");
        last = [ours.take(&name)?, rsync.take(&at)?];
        borg.take(&at, &name)?;
        restic.take(&at)?;
        if number == 0 {
            first = last;
        }
        super::interruption::check()?;
    }
    Ok(Taken {
        content,
        stored: ours.end()?,
        borg: borg.end()?,
        restic: restic.end()?,
        sent: last[0],
        sent_later: last[0] - first[0],
        rsync: last[1],
        rsync_later: last[1] - first[1],
    })
}

/// Bytes of all files below a folder.
fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() { bytes_below(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

/// The program that keeps versions in a home.
struct Ours {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Ours {
    fn start(folder: &Path, home: &Path, in_place: bool) -> Result<Ours> {
        let mut program = project::example("marram-cluster", "versions", "release");
        program.arg(folder).arg(home).args(in_place.then_some("--in-place"));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().ok_or_else(|| Failure::new("it says nothing"))?;
        Ok(Ours { child, said: BufReader::new(said) })
    }

    /// Takes a version; the answer is the bytes sent up to now.
    fn take(&mut self, name: &str) -> Result<u64> {
        let into = self.child.stdin.as_mut().ok_or_else(|| Failure::new("it takes nothing"))?;
        writeln!(into, "{name}")?;
        let words = self.line()?;
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["version", said, sent, _] if said == name => number(sent),
            _ => fail(format!("not understood: {words:?}")),
        }
    }

    /// The bytes stored.
    fn end(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let words = self.line()?;
        let stored = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["stored", bytes] => number(bytes),
            _ => fail(format!("not understood: {words:?}")),
        };
        match self.child.wait()?.success() {
            true => stored,
            false => fail("the program that keeps versions has failed"),
        }
    }

    fn line(&mut self) -> Result<Vec<String>> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().split('\t').map(str::to_owned).collect())
    }
}

fn number(word: &str) -> Result<u64> {
    let digits: String = word.chars().filter(|it| *it != ',').collect();
    digits.parse().context(|| format!("no number: {word}"))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

/// A figure beside its bar.
fn judged(bytes: u64, most: f64) -> String {
    match bytes as f64 <= most {
        true => format!("{} met", mebibytes(bytes)),
        false => format!("**{} LOST**", mebibytes(bytes)),
    }
}

fn page(header: &[(String, String)], rows: &[(Input, Taken)]) -> String {
    let mut page = String::from("# Versions of four inputs: bytes stored and sent\n\n");
    let mut put = |line: &str| writeln!(page, "{line}").expect("a string takes all");
    for (name, value) in header {
        put(&format!("- {name}: {value}"));
    }
    put("\nAll figures are MiB. Each version is brought into a cluster home as on a server, \
         and kept by a snapshot. The same folder goes to borg (`--compression zstd`), to \
         restic (format 2, its own compression), and by `rsync -a -z` to a copy. Stored is the \
         whole database with its indexes and its log, or the whole repository.\n");
    put("Sent are keys and values of rows, and the keys of questions; of rsync all bytes of both \
         directions. Versions come from a seed:\n");
    put("| input | what it is | what each version changes |\n| --- | --- | --- |");
    rows.iter().for_each(|(input, _)| {
        let [what, changes] = input.described();
        put(&format!("| {} | {what} | {changes} |", input.name()));
    });
    put("\n## Stored\n\nThe bar is the less of the two peers.\n");
    put("| input | first version, as it is | Marram | borg | restic |");
    put("| --- | ---: | ---: | ---: | ---: |");
    for (input, taken) in rows {
        let ours = judged(taken.stored, taken.borg.min(taken.restic) as f64);
        let [content, borg, restic] = [taken.content, taken.borg, taken.restic].map(mebibytes);
        put(&format!("| {} | {content} | {ours} | {borg} | {restic} |", input.name()));
    }
    put("\n## Sent\n\nThe bar is 1.2 times `rsync -z`.\n");
    put("| input | Marram | `rsync -z` | ratio | behind the first version: Marram | `rsync -z` | \
         ratio |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (input, taken) in rows {
        let ratio = |ours: u64, peer: u64| format!("{:.2}", ours as f64 / peer.max(1) as f64);
        put(&format!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            input.name(),
            judged(taken.sent, taken.rsync as f64 * SENT_MOST),
            mebibytes(taken.rsync),
            ratio(taken.sent, taken.rsync),
            judged(taken.sent_later, taken.rsync_later as f64 * SENT_MOST),
            mebibytes(taken.rsync_later),
            ratio(taken.sent_later, taken.rsync_later),
        ));
    }
    page
}

fn json(header: &[(String, String)], rows: &[(Input, Taken)]) -> Result<String> {
    let header: serde_json::Map<String, serde_json::Value> =
        header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let row = |(input, taken): &(Input, Taken)| {
        json!({
            "input": input.name(), "content": taken.content,
            "stored": { "marram": taken.stored, "borg": taken.borg, "restic": taken.restic },
            "sent": { "marram": taken.sent, "rsync": taken.rsync },
            "sent_later": { "marram": taken.sent_later, "rsync": taken.rsync_later },
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    Ok(serde_json::to_string_pretty(&json!({ "run": header, "rows": rows }))? + "\n")
}

/// Two panels an input.
fn panels(rows: &[(Input, Taken)]) -> Vec<Panel> {
    let bar = |name, is_ours, bytes: u64| Bar {
        name,
        is_ours,
        value: Some((bytes as f64, format!("{} MiB", mebibytes(bytes)))),
    };
    let panels = |(input, taken): &(Input, Taken)| {
        let stored = vec![
            bar("Marram", true, taken.stored),
            bar("borg", false, taken.borg),
            bar("restic", false, taken.restic),
        ];
        let sent = vec![bar("Marram", true, taken.sent), bar("rsync -z", false, taken.rsync)];
        let title = |what: &str| format!("{}: {what}", input.name());
        [Panel { title: title("stored"), bars: stored }, Panel { title: title("sent"), bars: sent }]
    };
    rows.iter().flat_map(panels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_its_bar_is_a_loss() {
        let taken = Taken {
            content: 10 << 20,
            stored: 3 << 20,
            borg: 4 << 20,
            restic: 5 << 20,
            sent: 3 << 20,
            sent_later: 2 << 20,
            rsync: 3 << 20,
            rsync_later: 1 << 20,
        };
        let page = page(&[], &[(Input::Image, taken)]);
        assert!(page.contains("| image | 10.00 | 3.00 met | 4.00 | 5.00 |"), "{page}");
        assert!(
            page.contains("| 3.00 met | 3.00 | 1.00 | **2.00 LOST** | 1.00 | 2.00 |"),
            "{page}"
        );
        assert_eq!(number("1,234").ok(), Some(1234));
        assert!(number("much").is_err());
    }
}
