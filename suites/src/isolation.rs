//! Transactions of many processes, judged by a program that knows nothing of Marram: adya, after
//! Elle. Each list is a file of numbers, one a line; a transaction reads some and appends to some.
//!
//! Some clients run commands as transactions, some are programs with transactions of their own, and
//! some change files as plain programs do. What plain programs read is not judged: it comes from
//! the kernel's cache, which is behind a commit for as long as the notices take.

use super::{GIB, Setting, step};
use marram_client::{Error as Uncommitted, Transaction};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, ended, shown, tail};
use marram_lab::project;
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use rustix::fs::{Mode, OFlags, openat};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const VERSION: &str = "0.1.0";
/// Clients: so many of each kind.
const CLIENTS: u64 = 3;
/// Lists in use at a time.
const LISTS: u64 = 5;
/// Appends after which another list takes the place of one.
const APPENDS: u64 = 40;
/// Lists that one transaction reads at the end: a command line is no longer than 128 KiB.
const READ_TOGETHER: usize = 1000;
/// The process that reads all lists at the end.
const LAST_PROCESS: u64 = 1 << 40;
/// Numbers of lists and processes that are planted begin here.
const PLANTED: u64 = 1 << 41;
/// Exit status of a transaction whose commit was refused, and of one of which it is not known.
const REFUSED: i32 = 123;
const UNKNOWN: i32 = 122;

/// 5,000 transactions, 300 when short, or as many as were asked for; as many plain appends at most.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let checker = project::registry_tool("adya", VERSION, &["--no-default-features"])?;
    let mut marram = Marram::make(&setting.folder.join("subject"), &Making::sized(GIB))?;
    let lists = marram.root().canonicalize()?.join("lists");
    std::fs::create_dir(&lists)?;
    let run = Run {
        marram: &marram,
        lists,
        history: Mutex::default(),
        values: AtomicU64::new(1),
        left: AtomicU64::new(setting.transactions),
    };
    run.clients(setting.seed)?;
    run.read_all()?;
    let history = run.history.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let judge = Judge { checker, folder: setting.folder.clone() };
    judge.all(&history)?;
    marram.unmount()?;
    marram.check()
}

/// How a client changes lists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By commands of the shell, each run as a transaction.
    Command,
    /// By transactions of its own.
    Program,
    /// Without transactions.
    Plain,
}

/// What a transaction does with one list.
#[derive(Clone, Copy)]
enum Step {
    Read(u64),
    Append(u64, u64),
}

/// How a transaction ended.
enum Ending {
    Committed(Vec<Value>),
    Refused,
    Unknown,
}

/// A run of all clients, and the history of it.
struct Run<'a> {
    marram: &'a Marram,
    lists: PathBuf,
    history: Mutex<Vec<Value>>,
    /// No number is appended twice.
    values: AtomicU64,
    /// Transactions that are still to be run.
    left: AtomicU64,
}

impl Run<'_> {
    fn clients(&self, seed: u64) -> Result<()> {
        std::thread::scope(|scope| {
            let started: Vec<_> = [Kind::Command, Kind::Program, Kind::Plain]
                .into_iter()
                .flat_map(|kind| (0..CLIENTS).map(move |_| kind))
                .zip(0..)
                .map(|(kind, number)| scope.spawn(move || self.client(kind, number, seed)))
                .collect();
            started.into_iter().try_for_each(|it| {
                it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    fn client(&self, kind: Kind, number: u64, seed: u64) -> Result<()> {
        let clients = 3 * CLIENTS;
        let mut random = Seed::new(seed.wrapping_mul(clients) + number);
        let mut process = number;
        while self.left.load(Ordering::Relaxed) > 0 {
            let steps = match kind {
                Kind::Plain => vec![self.append(&mut random)],
                _ => (0..random.between(1, 5)).map(|_| self.step(&mut random)).collect(),
            };
            let is_known = self.recorded(process, &steps, || match kind {
                Kind::Command => self.by_command(&steps),
                Kind::Program => self.by_program(&steps),
                Kind::Plain => self.plainly(&steps),
            })?;
            if !is_known {
                // What is not known may still happen: a client of that number does nothing more.
                process += clients;
            }
            match kind {
                Kind::Plain => std::thread::sleep(Duration::from_millis(random.between(5, 40))),
                _ => self.count(),
            }
        }
        Ok(())
    }

    /// A transaction has been run.
    fn count(&self) {
        let less = |left: u64| left.checked_sub(1);
        let _none_left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn step(&self, random: &mut Seed) -> Step {
        if random.between(0, 2) == 0 { Step::Read(self.list(random)) } else { self.append(random) }
    }

    fn append(&self, random: &mut Seed) -> Step {
        Step::Append(self.list(random), self.values.fetch_add(1, Ordering::Relaxed))
    }

    /// One of the lists that are in use now.
    fn list(&self, random: &mut Seed) -> u64 {
        let generation = self.values.load(Ordering::Relaxed) / (LISTS * APPENDS);
        generation * LISTS + random.between(0, LISTS)
    }

    /// Runs something between its beginning and its end in the history. Whether its end is known.
    fn recorded(
        &self,
        process: u64,
        steps: &[Step],
        run: impl FnOnce() -> Result<Ending>,
    ) -> Result<bool> {
        let asked: Vec<Value> = steps.iter().map(|step| micro(*step, None)).collect();
        self.note("invoke", process, &asked);
        let (ending, done) = match run()? {
            Ending::Committed(done) => ("ok", done),
            Ending::Refused => ("fail", asked),
            Ending::Unknown => ("info", asked),
        };
        self.note(ending, process, &done);
        Ok(ending != "info")
    }

    fn note(&self, kind: &str, process: u64, done: &[Value]) {
        let mut history = self.history.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = history.len();
        history.push(json!({"index": index, "type": kind, "process": process, "value": done}));
    }

    /// One append, as a program does it that knows nothing of transactions.
    fn plainly(&self, steps: &[Step]) -> Result<Ending> {
        let mut done = Vec::new();
        for step in steps {
            if let Step::Append(list, value) = step {
                let path = self.lists.join(list.to_string());
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
                file.write_all(format!("{value}\n").as_bytes())?;
            }
            done.push(micro(*step, None));
        }
        Ok(Ending::Committed(done))
    }

    /// A transaction of a program's own, below the descriptor of its directory.
    fn by_program(&self, steps: &[Step]) -> Result<Ending> {
        let transaction = Transaction::begin(&self.lists).context(|| "no transaction begins")?;
        let open = |list: u64, flags: OFlags| {
            let flags = flags | OFlags::CLOEXEC;
            openat(transaction.directory(), list.to_string(), flags, Mode::from(0o644))
        };
        let mut done = Vec::new();
        for step in steps {
            let mut seen = String::new();
            match step {
                Step::Read(list) => match open(*list, OFlags::RDONLY) {
                    Ok(file) => drop(File::from(file).read_to_string(&mut seen)?),
                    Err(rustix::io::Errno::NOENT) => (),
                    Err(error) => return Err(std::io::Error::from(error).into()),
                },
                Step::Append(list, value) => {
                    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
                    let mut file = File::from(open(*list, flags).map_err(std::io::Error::from)?);
                    file.write_all(format!("{value}\n").as_bytes())?;
                }
            }
            done.push(micro(*step, Some(&numbers(&seen)?)));
        }
        match transaction.commit() {
            Ok(_) => Ok(Ending::Committed(done)),
            Err(Uncommitted::Refused(_)) => Ok(Ending::Refused),
            Err(Uncommitted::Unknown { .. }) => Ok(Ending::Unknown),
            Err(error) => fail(format!("a commit failed: {error}")),
        }
    }

    /// The same by the shell.
    fn by_command(&self, steps: &[Step]) -> Result<Ending> {
        let line: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Read(list) => format!("if [ -e {list} ]; then cat {list}; fi; echo ."),
                Step::Append(list, value) => format!("echo {value} >> {list}"),
            })
            .collect();
        let mut run = self.marram.command(&["tx", "run", "--", "sh", "-euc", &line.join("\n")]);
        let end = ended(run.current_dir(&self.lists))?;
        match end.status.code() {
            Some(0) => Ok(Ending::Committed(read(steps, &String::from_utf8_lossy(&end.stdout))?)),
            Some(REFUSED) => Ok(Ending::Refused),
            Some(UNKNOWN) => Ok(Ending::Unknown),
            _ => fail(format!("`{}` failed ({}):\n{}", shown(&run), end.status, tail(&end))),
        }
    }

    /// Every list once more: what was lost shows.
    fn read_all(&self) -> Result<()> {
        let last = self.values.load(Ordering::Relaxed) / (LISTS * APPENDS) * LISTS + LISTS;
        let steps: Vec<Step> = (0..last).map(Step::Read).collect();
        for steps in steps.chunks(READ_TOGETHER) {
            self.recorded(LAST_PROCESS, steps, || self.by_command(steps))?;
        }
        Ok(())
    }
}

/// A step as the checker reads it.
fn micro(step: Step, seen: Option<&[u64]>) -> Value {
    match step {
        Step::Read(list) => json!(["r", list, seen]),
        Step::Append(list, value) => json!(["append", list, value]),
    }
}

/// The numbers of a list.
fn numbers(list: &str) -> Result<Vec<u64>> {
    let number = |line: &str| line.parse().context(|| format!("a list has the line {line:?}"));
    list.lines().map(number).collect()
}

/// The steps, with what was read: a line for each number, and a dot behind each list.
fn read(steps: &[Step], told: &str) -> Result<Vec<Value>> {
    let mut lists = told.split_inclusive(".\n").map(|list| list.trim_end_matches(".\n"));
    steps
        .iter()
        .map(|step| match step {
            Step::Append(..) => Ok(micro(*step, None)),
            Step::Read(_) => Ok(micro(*step, Some(&numbers(lists.next().unwrap_or_default())?))),
        })
        .collect()
}

/// The checker, and where histories are put for it.
struct Judge {
    checker: PathBuf,
    folder: PathBuf,
}

impl Judge {
    /// The history is strictly serializable; with each of three anomalies in it, it is not.
    fn all(&self, history: &[Value]) -> Result<()> {
        let count = |kind: &str| history.iter().filter(|it| it["type"] == *kind).count();
        let (committed, refused) = (count("ok"), count("fail"));
        if !self.is_valid("history", history)? {
            let kept = project::target().join("isolation-history.jsonl");
            std::fs::copy(self.folder.join("history.jsonl"), &kept)?;
            let report = self.report(&kept)?;
            return fail(format!(
                "the history in {} is not strictly serializable:\n{report}",
                kept.display()
            ));
        }
        step(&format!("{committed} commits, {refused} refused: strictly serializable"));
        for (name, planted) in planted(history)? {
            if self.is_valid(name, &planted)? {
                return fail(format!("the checker does not find a planted {name}"));
            }
        }
        step("a lost append, a stale read and a write skew are found where they are planted");
        Ok(())
    }

    fn is_valid(&self, name: &str, history: &[Value]) -> Result<bool> {
        let path = self.folder.join(format!("{name}.jsonl"));
        let lines: String = history.iter().map(|entry| format!("{entry}\n")).collect();
        std::fs::write(&path, lines)?;
        let end = ended(&mut self.check(&path))?;
        match end.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => fail(format!("adya gives no verdict ({}): {}", end.status, tail(&end))),
        }
    }

    fn report(&self, history: &Path) -> Result<String> {
        Ok(tail(&ended(&mut self.check(history))?))
    }

    fn check(&self, history: &Path) -> std::process::Command {
        let mut check = command(&[&self.checker.to_string_lossy(), "check"]);
        check.args(["--model", "list-append", "--consistency-models", "strict-serializable"]);
        check.args(["--cycle-search-timeout", "60000"]).arg(history);
        check
    }
}

/// The history with an anomaly in it, once for each kind.
fn planted(history: &[Value]) -> Result<Vec<(&'static str, Vec<Value>)>> {
    let Some((last, before)) = history.split_last() else { return fail("an empty history") };
    let longest = last["value"].as_array().into_iter().flatten().enumerate();
    let longest = longest.max_by_key(|(_, read)| read[2].as_array().map_or(0, Vec::len));
    let Some((place, _)) = longest else { return fail("the history ends without a read") };
    let with = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut last = last.clone();
        if let Some(list) = last["value"][place][2].as_array_mut() {
            change(list);
        }
        before.iter().cloned().chain([last]).collect::<Vec<_>>()
    };
    let lost = with(&|list| {
        list.remove(list.len() / 2);
    });
    let stale = with(&|list| {
        list.pop();
    });
    let skew = history.iter().cloned().chain(skew(history.len())).collect();
    Ok(vec![("lost append", lost), ("stale read", stale), ("write skew", skew)])
}

/// Two transactions of which each has not seen what the other did, and one that has seen both.
fn skew(index: usize) -> impl Iterator<Item = Value> {
    let (one, other, process) = (PLANTED, PLANTED + 1, PLANTED);
    let read = |list: u64, seen: Value| json!(["r", list, seen]);
    let append = |list: u64| json!(["append", list, 1]);
    let entries = [
        ("invoke", 0, json!([read(one, Value::Null), append(other)])),
        ("invoke", 1, json!([read(other, Value::Null), append(one)])),
        ("ok", 0, json!([read(one, json!([])), append(other)])),
        ("ok", 1, json!([read(other, json!([])), append(one)])),
        ("invoke", 2, json!([read(one, Value::Null), read(other, Value::Null)])),
        ("ok", 2, json!([read(one, json!([1])), read(other, json!([1]))])),
    ];
    (index..).zip(entries).map(move |(index, (kind, client, value))| {
        json!({"index": index, "type": kind, "process": process + client, "value": value})
    })
}
