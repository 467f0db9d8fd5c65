//! Runs histories against the model for as long as wanted: what `cargo xtask sim` starts.
//!
//! `history [--branches] [--home HOME] [--seed S] [--steps N] [--histories N] [--keep 1,4,7-9]`

#[path = "../tests/homes/mod.rs"]
mod homes;

use homes::{
    busy_memory_home, busy_pool_home, full_pool_home, memory_home, minimal_home, pool_home,
};
use marram_sim::{HistoryClock, Home, HomeResult, ModelHome, Options, Report, Theme, run_history};
use std::process::ExitCode;
use std::sync::Arc;

/// What the command line asks for.
struct Request {
    home: String,
    first: Options,
    histories: u64,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
    let first = Options::new(0, 2000);
    let mut request = Request { home: "pool".to_owned(), first, histories: 1 };
    while let Some(word) = words.next() {
        if word == "--branches" {
            request.first.theme = Theme::Branches;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--home" => request.home = value,
            "--seed" => request.first.seed = number()?,
            "--steps" => request.first.steps = number()? as usize,
            "--histories" => request.histories = number()?,
            "--shrink-runs" => request.first.shrink_runs_max = number()? as usize,
            "--keep" => request.first.kept = Some(value.parse()?),
            _ => return Err(format!("{word} is no option of this command")),
        }
    }
    Ok(request)
}

fn make_home(name: &str, seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    match name {
        "pool" => pool_home(seed, clock),
        "full-pool" => full_pool_home(seed, clock),
        "busy-pool" => busy_pool_home(seed, clock),
        "busy-posix" => busy_memory_home(seed, clock),
        "posix" => memory_home(seed, clock),
        "minimal" => minimal_home(seed, clock),
        "model" => Ok(Box::new(ModelHome::new(clock))),
        _ => Err(format!(
            "no home {name:?}: use pool, busy-pool, full-pool, posix, busy-posix, minimal or model"
        )),
    }
}

fn run(request: &Request) -> Result<Report, String> {
    let mut sum = Report::default();
    for number in 0..request.histories {
        let seed = request.first.seed.wrapping_add(number);
        let options = Options { seed, ..request.first.clone() };
        let report = run_history(&options, &|clock| make_home(&request.home, seed, clock))
            .map_err(|failure| failure.to_string())?;
        sum.add(&report);
        println!("seed {seed}: {} operations so far", sum.operations());
    }
    Ok(sum)
}

fn main() -> ExitCode {
    let request = match read_request(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    match run(&request) {
        Ok(report) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
