//! A link between two network namespaces that delays, limits, drops and cuts what goes through it:
//! not every kernel has netem, and this needs no module of it.
//!
//! Each end is one half of a pair of virtual Ethernet devices. The other half stays outside, below
//! a macvtap device, which a program reads and writes as a file. Two threads carry whole frames
//! from one such file to the other, each frame when it is due; so every protocol goes through, with
//! its own handshakes, windows and retransmissions. Frames never overtake each other.

use crate::failure::{Context, Result};
use crate::process::{command, run};
use crate::seed::Seed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The header of a frame in the file of a macvtap device: a `struct virtio_net_hdr`. It goes along
/// with its frame, since it says which checksum is left for the device at the other end.
const HEADER_BYTES: usize = 10;
/// The largest frame, with its header.
const FRAME_BYTES_MAX: usize = HEADER_BYTES + 65_536 + 64;
/// Frames on their way in one direction; what comes above that is dropped, as by a router.
const FRAMES_MAX: usize = 10_000;
/// Frames that the kernel keeps until they are read.
const KERNEL_FRAMES_MAX: &str = "5000";
/// How often an idle thread looks whether the link has ended.
const IDLE: Duration = Duration::from_millis(50);
/// The kernel lets a sleep end up to 50 us late, which is a fourth of a short delay.
const TIMER_SLACK_NANOSECONDS: NonZeroU64 = NonZeroU64::MIN;

/// What a link does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long a frame is on its way in one direction.
    pub delay: Duration,
    /// The rate of one direction; none is as fast as the machine.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Frames of a million that are dropped, by a seed.
    pub lost_in_million: u64,
}

impl Conditions {
    /// A link that does nothing but delay, by half of this in each direction.
    pub fn round_trip(time: Duration) -> Self {
        Self { delay: time / 2, bytes_per_second: None, lost_in_million: 0 }
    }
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second.
    There,
    /// From the second end to the first.
    Back,
}

/// What holds in one direction. Numbers are read anew for each frame.
#[derive(Default)]
struct Way {
    delay_nanoseconds: AtomicU64,
    /// 0 is no limit.
    bytes_per_second: AtomicU64,
    lost_in_million: AtomicU64,
    is_cut: AtomicBool,
    is_over: AtomicBool,
}

/// The half of a pair of virtual Ethernet devices that stays outside. The other half, and the
/// device over it, go with it.
struct Pair {
    device: String,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Err(failure) = run(command(&["ip", "link", "delete"]).arg(&self.device)) {
            eprintln!("warning: {failure}");
        }
    }
}

/// One end of a link.
struct End {
    file: Arc<File>,
    _pair: Pair,
}

impl End {
    /// Makes a pair, of which the inner half is `inner` in the network namespace of that name.
    fn make(device: &str, namespace: &str, inner: &str) -> Result<Self> {
        let tap = format!("{device}t");
        let ip = |words: &[&str]| run(command(&["ip", "link"]).args(words));
        let veth = ["type", "veth", "peer", "name", inner, "netns", namespace];
        ip(&[&["add", device][..], &veth].concat())?;
        let pair = Pair { device: device.to_owned() };
        ip(&["add", "link", device, "name", &tap, "type", "macvtap", "mode", "passthru"])?;
        ip(&["set", &tap, "txqueuelen", KERNEL_FRAMES_MAX])?;
        ip(&["set", device, "up"])?;
        ip(&["set", &tap, "up"])?;
        let place = format!("/sys/class/net/{tap}/ifindex");
        let number = std::fs::read_to_string(&place).context(|| &place)?;
        let place = format!("/dev/tap{}", number.trim());
        let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&place, how, Mode::empty())
            .context(|| format!("the file of the device {tap}, {place}"))?;
        Ok(Self { file: Arc::new(File::from(file)), _pair: pair })
    }
}

/// A link. It goes with its owner, with the devices of both ends.
pub struct Link {
    ways: [Arc<Way>; 2],
    threads: Vec<JoinHandle<()>>,
    ends: [End; 2],
}

impl Link {
    /// Joins two network namespaces by devices of these names in them. `number` tells it apart from
    /// other links of this process.
    pub fn between(
        number: usize,
        [there, back]: [(&str, &str); 2],
        conditions: Conditions,
    ) -> Result<Self> {
        let process = std::process::id();
        let first = End::make(&format!("m{process}a{number}"), there.0, there.1)?;
        let second = End::make(&format!("m{process}b{number}"), back.0, back.1)?;
        let ends = [first, second];
        let ways = [Arc::<Way>::default(), Arc::default()];
        let mut link = Self { ways, threads: Vec::new(), ends };
        link.set(conditions);
        for (direction, way) in link.ways.iter().enumerate() {
            let (from, to) = (&link.ends[direction].file, &link.ends[1 - direction].file);
            let (from, to, way) = (Arc::clone(from), Arc::clone(to), Arc::clone(way));
            let seed = Seed::new((number * 2 + direction) as u64);
            let carry = move || Carrier { from, to, way, seed, waiting: VecDeque::new() }.carry();
            link.threads.push(std::thread::Builder::new().name("link".into()).spawn(carry)?);
        }
        Ok(link)
    }

    /// What holds from now on, in both directions.
    pub fn set(&self, conditions: Conditions) {
        let Conditions { delay, bytes_per_second, lost_in_million } = conditions;
        let nanoseconds = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        for way in &self.ways {
            way.delay_nanoseconds.store(nanoseconds, Ordering::Relaxed);
            way.lost_in_million.store(lost_in_million, Ordering::Relaxed);
            let rate = bytes_per_second.map_or(0, NonZeroU64::get);
            way.bytes_per_second.store(rate, Ordering::Relaxed);
        }
    }

    /// Cuts one direction, or joins it again. What is on its way arrives.
    pub fn cut(&self, direction: Direction, is_cut: bool) {
        self.ways[direction as usize].is_cut.store(is_cut, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.ways.iter().for_each(|way| way.is_over.store(true, Ordering::Relaxed));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("warning: a direction of a link ended in a panic");
            }
        }
    }
}

/// A frame, and when it arrives.
struct Frame {
    due: Instant,
    bytes: Vec<u8>,
}

/// One direction at work.
struct Carrier {
    from: Arc<File>,
    to: Arc<File>,
    way: Arc<Way>,
    seed: Seed,
    waiting: VecDeque<Frame>,
}

impl Carrier {
    /// Until the link ends, or a device has gone.
    fn carry(mut self) {
        // Without it delays are a little longer, and the report has them as they are.
        let _is_exact = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOSECONDS));
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let mut free_at = Instant::now();
        while !self.way.is_over.load(Ordering::Relaxed) {
            self.deliver();
            if !self.wait() || !self.take_in(&mut buffer, &mut free_at) {
                return;
            }
        }
    }

    /// Hands over what is due. A device that takes no frame drops it, as a full queue does.
    fn deliver(&mut self) {
        let now = Instant::now();
        while self.waiting.front().is_some_and(|frame| frame.due <= now) {
            let frame = self.waiting.pop_front().expect("there is a first one");
            let _is_taken = (&*self.to).write(&frame.bytes);
        }
    }

    /// Waits for a frame, or until one is due. Returns whether the device is still there.
    fn wait(&self) -> bool {
        let due = self.waiting.front().map(|frame| frame.due);
        let left = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
        let left = Timespec::try_from(left).expect("less than a second");
        let mut places = [PollFd::new(&*self.from, PollFlags::IN)];
        match poll(&mut places, Some(&left)) {
            Ok(_) => !places[0].revents().intersects(PollFlags::HUP | PollFlags::NVAL),
            Err(rustix::io::Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Takes in all that has come. Returns whether the device is still there.
    fn take_in(&mut self, buffer: &mut [u8], free_at: &mut Instant) -> bool {
        loop {
            match (&*self.from).read(buffer) {
                Ok(length) if length > HEADER_BYTES => self.queue(&buffer[..length], free_at),
                Ok(_) => return true,
                Err(error) => {
                    return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                }
            }
        }
    }

    fn queue(&mut self, frame: &[u8], free_at: &mut Instant) {
        const MILLION: u64 = 1_000_000;
        let lost = self.way.lost_in_million.load(Ordering::Relaxed);
        let is_lost = lost > 0 && self.seed.between(0, MILLION) < lost;
        let is_cut = self.way.is_cut.load(Ordering::Relaxed);
        if is_lost || is_cut || self.waiting.len() >= FRAMES_MAX {
            return;
        }
        let now = Instant::now();
        let sent = match self.way.bytes_per_second.load(Ordering::Relaxed) {
            0 => now,
            rate => {
                let time = Duration::from_secs_f64(frame.len() as f64 / rate as f64);
                *free_at = (*free_at).max(now) + time;
                *free_at
            }
        };
        let delay = Duration::from_nanos(self.way.delay_nanoseconds.load(Ordering::Relaxed));
        // A delay that became shorter lets no frame overtake another one.
        let last = self.waiting.back().map_or(now, |frame| frame.due);
        let due = (sent + delay).max(last);
        self.waiting.push_back(Frame { due, bytes: frame.to_vec() });
    }
}
