//! Benchmarks that others wrote: dbench, fs_mark, Bonnie++, each with its own way of counting.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, text};
use std::cell::RefCell;

/// dbench's load, a file server's.
const LOAD: &str = "/usr/share/dbench/client.txt";

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    require(&[("dbench", "dbench"), ("fs_mark", "fsmark"), ("bonnie++", "bonnie++")])?;
    dbench(stage)?;
    fs_mark(stage)?;
    bonnie(stage)
}

fn dbench(stage: &mut Stage<'_>) -> Result<()> {
    let seconds = stage.scaled(20, 2).to_string();
    for clients in ["1", "4"] {
        let folder = stage.folder(&format!("dbench-{clients}"))?;
        let title = format!("dbench, {clients} clients, {seconds} s");
        let key = format!("dbench_{clients}");
        let line = Line::new(&key, title, Unit::MebibytesPerSecond, Ending::ByProgram);
        stage.rate(line, || {
            let words = ["dbench", "-t", &seconds, "-c", LOAD, "-D"];
            throughput(&text(command(&words).arg(&folder).arg(clients))?)
        })?;
        std::fs::remove_dir_all(&folder)?;
        stage.settle()?;
    }
    Ok(())
}

/// `Throughput 118.714 MB/sec  2 clients ...`
fn throughput(said: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Throughput "));
    let word = line.and_then(|line| line.split(' ').next()).unwrap_or_default();
    word.parse().context(|| format!("dbench printed no throughput: {said}"))
}

fn fs_mark(stage: &mut Stage<'_>) -> Result<()> {
    let count = stage.scaled(10_000, 500).to_string();
    for (method, key, ending, words) in [
        ("1", "synced", Ending::EachSynced, "each synced"),
        ("0", "plain", Ending::Nothing, "none synced"),
    ] {
        let folder = stage.folder(&format!("fs_mark-{key}"))?;
        let title = format!("fs_mark: {count} files of 16 KiB, {words}");
        let line = Line::new(&format!("fs_mark_{key}"), title, Unit::PerSecond, ending);
        stage.rate(line, || {
            // It takes only short names of folders, and leaves its log where it is started.
            let words = ["fs_mark", "-d", "files", "-n", &count, "-s", "16384", "-S", method];
            files_per_second(&text(command(&words).current_dir(&folder))?)
        })?;
        std::fs::remove_dir_all(&folder)?;
        stage.settle()?;
    }
    Ok(())
}

/// The row below the heading: `FSUse% Count Size Files/sec App Overhead`.
fn files_per_second(said: &str) -> Result<f64> {
    const COLUMN: usize = 3;
    let mut lines = said.lines().skip_while(|line| !line.contains("Files/sec"));
    let row = lines.nth(1).unwrap_or_default();
    let word = row.split_whitespace().nth(COLUMN).unwrap_or_default();
    word.parse().context(|| format!("fs_mark printed no rate: {said}"))
}

fn bonnie(stage: &mut Stage<'_>) -> Result<()> {
    let megabytes = stage.scaled(1024, 64);
    let thousands = stage.scaled(16, 1);
    let folder = stage.folder("bonnie")?;
    let said = RefCell::new(String::new());
    let title = format!("Bonnie++: a file of {megabytes} MiB, {thousands} times 1,024 files");
    stage.time(Line::seconds("bonnie", title, Ending::Syncfs), || {
        // What it says of the machine's memory only sets the least size that it takes.
        let ram = megabytes / 4;
        let mut bonnie = command(&["bonnie++", "-q", "-f", "-u", "root", "-m", "race", "-d"]);
        bonnie.arg(&folder).arg("-s").arg(megabytes.to_string());
        bonnie.arg("-r").arg(ram.to_string()).arg("-n").arg(thousands.to_string());
        *said.borrow_mut() = text(&mut bonnie)?;
        Ok(())
    })?;
    for part in bonnie_parts(&said.borrow())? {
        let (key, title, unit, value) = part;
        let line = Line::new(&format!("bonnie_{key}"), title, unit, Ending::ByProgram);
        stage.note(line, value);
    }
    Ok(())
}

type Part = (&'static str, &'static str, Unit, f64);

/// What Bonnie++ prints in one line of fields. What was too fast to be counted stands there as
/// `+++` and is left out, as is what was not asked for.
fn bonnie_parts(said: &str) -> Result<Vec<Part>> {
    const KIB_EACH_MIB: f64 = 1024.0;
    const FIELDS: usize = 38;
    let (bytes, count) = (Unit::MebibytesPerSecond, Unit::PerSecond);
    let parts = [
        (11, "write", "Bonnie++: blocks written", bytes),
        (13, "rewrite", "Bonnie++: blocks read and written back", bytes),
        (17, "read", "Bonnie++: blocks read", bytes),
        (19, "seek", "Bonnie++: seeks", count),
        (26, "create", "Bonnie++: files made in order", count),
        (30, "delete", "Bonnie++: files removed in order", count),
        (32, "create_random", "Bonnie++: files made at random", count),
        (36, "delete_random", "Bonnie++: files removed at random", count),
    ];
    let line = said.lines().find(|line| line.starts_with("1.98,")).unwrap_or_default();
    let fields: Vec<&str> = line.split(',').collect();
    if fields.len() < FIELDS {
        return fail(format!("Bonnie++ printed no fields: {said}"));
    }
    let part = |(field, key, title, unit): (usize, _, _, Unit)| {
        let value: f64 = fields[field].parse().ok()?;
        let divisor = if unit == Unit::MebibytesPerSecond { KIB_EACH_MIB } else { 1.0 };
        Some((key, title, unit, value / divisor))
    };
    Ok(parts.into_iter().filter_map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_of_dbench_is_in_its_last_line() {
        let said = " Flush  436  3.186  25.091\n\n\
                    Throughput 118.714 MB/sec  2 clients  2 procs  max_latency=31.574 ms\n";
        assert!((throughput(said).expect("a rate") - 118.714).abs() < 1e-9);
        assert!(throughput("releasing clients\n").is_err());
    }

    #[test]
    fn the_rate_of_fs_mark_stands_below_its_heading() {
        let said = "#\tFiles info: size 4096 bytes\n\n\
                    FSUse%        Count         Size    Files/sec     App Overhead\n    \
                    82          200         4096        314.6             3586\n";
        assert!((files_per_second(said).expect("a rate") - 314.6).abs() < 1e-9);
        assert!(files_per_second("FSUse% Count Size Files/sec\n").is_err());
    }

    #[test]
    fn what_bonnie_could_not_count_is_left_out() {
        let said = "1.98,2.00a,vm,1,1795295503,64M,,8192,5,560,62,2048,20,+++++,+++,1326,87,\
                    +++++,+++,+++++,+++,1,1024,512,,4,+++++,+++,+++++,+++,1539,9,+++++,+++,+++++,\
                    +++,2011,10,212ms,8105us,5182us,11775us,96us,34698us,4599us,4130us\n";
        let parts = bonnie_parts(said).expect("a line of fields");
        let told: Vec<(&str, f64)> = parts.iter().map(|part| (part.0, part.3)).collect();
        assert_eq!(told, [("write", 2.0), ("delete", 1539.0), ("delete_random", 2011.0)]);
        assert!(bonnie_parts("1.98,2.00a,vm\n").is_err());
    }
}
