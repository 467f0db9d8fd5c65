//! What work costs beside its time: processors, memory of the daemon, and what reached the device.
//!
//! Everything is read from `/proc`. Processor time of programs is ours and that of children that
//! have ended and were waited for, so a daemon that ends inside a line would be counted as a
//! program: remounts stand between lines, never in one. What the kernel's own threads do for a
//! file system (checksums, compression, write-back) is in no program's account: that is what the
//! machine's column is for.

use marram_lab::failure::{Context, Result, fail};
use marram_lab::subject::{Subject, Traffic, peak_memory_bytes};

/// A moment before or after a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    program_seconds: f64,
    daemon_seconds: Option<f64>,
    machine_seconds: f64,
    traffic: Traffic,
}

/// What lies between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Processor time of the programs that did the work.
    pub(super) program_seconds: f64,
    /// Processor time of the daemon.
    pub(super) daemon_seconds: Option<f64>,
    /// Processor time of everything on the machine.
    pub(super) machine_seconds: f64,
    /// The most memory that the daemon held meanwhile.
    pub(super) daemon_peak_bytes: Option<u64>,
    /// Bytes that reached the device.
    pub(super) written_bytes: Option<u64>,
    /// Flushes of the device.
    pub(super) flushes: Option<u64>,
}

impl Moment {
    /// Before a line: the daemon's peak of memory begins anew here.
    pub(super) fn before(subject: &dyn Subject) -> Result<Self> {
        if let Some(daemon) = subject.daemon() {
            forget_peak(daemon);
        }
        let traffic = subject.traffic()?;
        Self::now(subject, traffic)
    }

    fn now(subject: &dyn Subject, traffic: Traffic) -> Result<Self> {
        let ticks = |process: &str| processor_ticks(process);
        let [user, system, child_user, child_system] = ticks("self")?;
        let daemon = subject.daemon().map(|daemon| ticks(&daemon.to_string())).transpose()?;
        Ok(Self {
            program_seconds: seconds(user + system + child_user + child_system),
            daemon_seconds: daemon.map(|[user, system, ..]| seconds(user + system)),
            machine_seconds: seconds(machine_ticks(&std::fs::read_to_string("/proc/stat")?)?),
            traffic,
        })
    }

    /// What was spent since then.
    pub(super) fn cost_until_now(self, subject: &dyn Subject) -> Result<Cost> {
        // Asking for the traffic may run a program: the processors are read before.
        let now = Self::now(subject, Traffic::default())?;
        let traffic = subject.traffic()?;
        let more = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        Ok(Cost {
            program_seconds: now.program_seconds - self.program_seconds,
            daemon_seconds: now.daemon_seconds.zip(self.daemon_seconds).map(|(b, a)| b - a),
            machine_seconds: now.machine_seconds - self.machine_seconds,
            daemon_peak_bytes: subject.daemon().map(peak_memory_bytes).transpose()?,
            written_bytes: more(traffic.written_bytes, self.traffic.written_bytes),
            flushes: more(traffic.flushes, self.traffic.flushes),
        })
    }
}

/// Begins the daemon's peak anew. Where the kernel refuses it, the peak is that since the mount:
/// too high rather than too low.
fn forget_peak(daemon: u32) {
    const RESET_PEAK: &str = "5";
    if let Err(error) = std::fs::write(format!("/proc/{daemon}/clear_refs"), RESET_PEAK) {
        eprintln!("warning: the peak of process {daemon} is that since its mount: {error}");
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn processor_ticks(process: &str) -> Result<[u64; 4]> {
    let place = format!("/proc/{process}/stat");
    process_ticks(&std::fs::read_to_string(&place).context(|| &place)?)
}

/// User, system, and the same of children that were waited for (proc(5), fields 14 to 17). The
/// name before them may hold spaces and brackets.
fn process_ticks(stat: &str) -> Result<[u64; 4]> {
    const AFTER_NAME: usize = 11;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let numbers: Vec<u64> = fields
        .split_whitespace()
        .skip(AFTER_NAME)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    match numbers.try_into() {
        Ok(ticks) => Ok(ticks),
        Err(_) => fail(format!("not a line of /proc/PID/stat: {stat}")),
    }
}

/// What all processors did, without being idle, waiting for devices, and being kept from work by
/// the host (user, nice, system, irq, softirq of the first line).
fn machine_ticks(stat: &str) -> Result<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields: Vec<u64> =
        line.unwrap_or("").split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [user, nice, system, _idle, _waiting, irq, softirq, ..] => {
            Ok(user + nice + system + irq + softirq)
        }
        _ => fail("/proc/stat has no line of all processors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_spaces_and_brackets() {
        let stat = "4242 (a (b) c) S 1 4242 4242 0 -1 4194560 900 800 0 0 11 22 33 44 20 0 1 0 5";
        assert_eq!(process_ticks(stat).expect("a whole line"), [11, 22, 33, 44]);
        assert!(process_ticks("4242 (a) S 1").is_err());
    }

    #[test]
    fn an_idle_machine_has_spent_nothing() {
        let stat = "cpu  100 10 50 90000 7000 3 2 55 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine_ticks(stat).expect("a whole line"), 165);
    }
}
