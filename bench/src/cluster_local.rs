//! `cargo xtask bench --workloads cluster-local`: PostMark on a home of this machine, as in the
//! local rows of table 5.1 of the thesis Kabi, beside ext4 behind our pass-through.
//!
//! In the thesis ext4 goes through the same FUSE library as Kabi, so here it goes through ours.
//! Nothing is synced, and no close publishes: ext4 promises nothing at close either.

use super::rates::{self, Configuration, RATES};
use super::sheet::{Line, Sheet, Subject};
use super::{Arguments, interruption, machine, plot, work_folder, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::postgres::Database;
use marram_lab::process::{command, run};
use marram_lab::setup;
use marram_lab::subject::{self, Kind, Making, Marram};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The image of what is no cluster home.
const IMAGE_BYTES: u64 = 6 << 30;
/// Room for the inodes of the large run.
const FILES_MAX: u64 = 1 << 20;
/// Repetitions of PostMark's default, which is short.
const REPETITIONS: usize = 5;

/// The large run, and what it is when quick.
const LARGE: Configuration = Configuration { files: 20_000, transactions: 50_000 };
const LARGE_QUICK: Configuration = Configuration { files: 1_000, transactions: 2_000 };

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Sqlite,
    Postgres,
    Pool,
    PassThrough,
    Ext4,
}

const PLACES: [Place; 5] =
    [Place::Sqlite, Place::Postgres, Place::Pool, Place::PassThrough, Place::Ext4];

impl Place {
    fn subject(self) -> Subject {
        let (name, is_ours) = match self {
            Place::Sqlite => ("sqlite", true),
            Place::Postgres => ("postgres", true),
            Place::Pool => ("pool", true),
            Place::PassThrough => ("pass-through", false),
            Place::Ext4 => ("ext4", false),
        };
        Subject { name, is_ours, durable: "nothing: the program does not sync" }
    }
}

const NOTES: [&str; 2] = [
    "Homes are alone, with the default `close=auto`: what was written is published within a \
     second. PostgreSQL is reached by its socket, with `fsync` on. Databases and images lie on one \
     file system of the machine.",
    "The goals are Kabi's rates to those of ext4 behind the same FUSE library (table 5.1); here \
     ext4 is behind our pass-through.",
];

/// Runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    setup::install(&setup::LOCAL_PACKAGES)?;
    let mut sheet = Sheet::titled("PostMark on a home of this machine");
    sheet.header = machine()?;
    sheet.notes = NOTES.map(String::from).into();
    let repetitions =
        arguments.repetitions.unwrap_or(if arguments.quick { 1 } else { REPETITIONS });
    let scale = if arguments.quick { "quick: not to judge by" } else { "whole" };
    sheet.header.push(("scale".to_owned(), scale.to_owned()));
    sheet.header.push(("repetitions of the default, interleaved".into(), repetitions.to_string()));
    let large = if arguments.quick { LARGE_QUICK } else { LARGE };
    for repetition in 0..repetitions {
        each(arguments, &mut sheet, repetition, Configuration::DEFAULT)?;
    }
    each(arguments, &mut sheet, 0, large)?;
    goals(&mut sheet, [Configuration::DEFAULT, large]);
    println!("{}", sheet.page());
    if !arguments.dry {
        let picture = plot::draw(&sheet.panels());
        write_files(&arguments.name_or("cluster-local"), &sheet.page(), &sheet.json()?, &picture)?;
    }
    match sheet.failures.len() {
        0 => Ok(()),
        count => fail(format!("{count} failures, listed in the report")),
    }
}

fn key(configuration: Configuration, rate: &str) -> String {
    format!("{} files: {rate}", configuration.files)
}

/// Every place once; another one begins each repetition.
fn each(
    arguments: &Arguments,
    sheet: &mut Sheet,
    repetition: usize,
    configuration: Configuration,
) -> Result<()> {
    for turn in 0..PLACES.len() {
        interruption::check()?;
        let place = PLACES[(repetition + turn) % PLACES.len()];
        let folder = tempfile::Builder::new()
            .prefix("local")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(work_folder(arguments)?)?;
        match on(place, folder.path(), configuration) {
            Ok(rates) => {
                for ((rate, ..), value) in RATES.iter().zip(rates) {
                    let Configuration { files, transactions } = configuration;
                    let title = format!("{files} files, {transactions} changes: {rate}");
                    let line = Line::rate(key(configuration, rate), title);
                    sheet.add(&line, place.subject(), value);
                }
            }
            Err(failure) => sheet.failures.push(format!("{}: {failure}", place.subject().name)),
        }
    }
    Ok(())
}

fn on(place: Place, folder: &Path, configuration: Configuration) -> Result<rates::Rates> {
    let making = Making { files_max: Some(FILES_MAX), ..Making::sized(IMAGE_BYTES) };
    let mounted = folder.join("mounted");
    match place {
        Place::Sqlite => {
            let url = format!("sqlite:{}", folder.join("home.db").display());
            with_home(&mounted, &url, configuration)
        }
        Place::Postgres => {
            let host = folder.join("host");
            let database = Database::make(folder, &host, 1, 1)?;
            let server = database.start()?;
            let url = format!("postgres://postgres@/postgres?host={}", host.display());
            let rates = with_home(&mounted, &url, configuration)?;
            database.stop(server)?;
            Ok(rates)
        }
        Place::Pool => with(subject::make(Kind::Marram, &mounted, &making)?, configuration),
        Place::PassThrough => {
            with(subject::make(Kind::OwnPassthrough, &mounted, &making)?, configuration)
        }
        Place::Ext4 => with(subject::make(Kind::Ext4, &mounted, &making)?, configuration),
    }
    .context(|| place.subject().name)
}

fn with_home(folder: &Path, url: &str, configuration: Configuration) -> Result<rates::Rates> {
    with(Box::new(Marram::make_home(folder, url, Vec::new())?), configuration)
}

fn with(
    mut subject: Box<dyn subject::Subject>,
    configuration: Configuration,
) -> Result<rates::Rates> {
    let folder = subject.root().join("mail");
    std::fs::create_dir(&folder)?;
    run(&mut command(&["sync"]))?;
    let script = tempfile::NamedTempFile::new()?;
    let rates = rates::measure(configuration, &folder, script.path(), |postmark| {
        let mut same = Command::new(postmark.get_program());
        same.args(postmark.get_args());
        same
    })?;
    subject.unmount()?;
    Ok(rates)
}

fn goals(sheet: &mut Sheet, configurations: [Configuration; 2]) {
    let beside = Place::PassThrough.subject().name;
    for configuration in configurations {
        for place in [Place::Sqlite, Place::Postgres] {
            let name = place.subject().name;
            for (rate, of_kabi, _) in RATES {
                let key = key(configuration, rate);
                let ratio = sheet.median(&key, name).zip(sheet.median(&key, beside));
                let what = format!("{key}, {name}: to the pass-through");
                sheet.at_least(what, ratio.map(|(ours, theirs)| ours / theirs), of_kabi, "times");
            }
        }
    }
}
