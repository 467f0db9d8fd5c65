//! Names of the images that a power loss can leave, and ways to go through them.

use std::fmt;
use std::str::FromStr;

use super::SECTOR_BYTES;
use super::trace::{Event, Trace};
use crate::random::Random;

/// One image that a crash can leave of a [`Trace`]: written as `17:all`, `17:durable`,
/// `17:subset:5`, `17:torn:2:512:3` or
/// `17:seed:42`, and read again from that to replay it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrashState {
    /// How many events came before the crash.
    pub cut: usize,
    /// What became of those that were not flushed.
    pub fate: Fate,
}

/// What became of the writes that no flush had covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// All arrived.
    All,
    /// None arrived.
    Durable,
    /// The one numbered `n` (from 0, of those not flushed) arrived if bit `n` is set.
    Subset(u64),
    /// Those before the one numbered `write` (from 0) arrived, it arrived in its first `kept`
    /// sectors of `sector_bytes`, and those after it are lost.
    Torn {
        /// Which write is torn.
        write: usize,
        /// Bytes of a sector: 512 or 4096.
        sector_bytes: usize,
        /// How many sectors of it arrived.
        kept: usize,
    },
    /// Each arrived, was lost, or was torn, as the seed decides.
    Seeded(u64),
}

/// The text does not name a crash state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotACrashState(String);

impl std::error::Error for NotACrashState {}

impl fmt::Display for NotACrashState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is not a crash state like 17:all, 17:durable, 17:subset:5, \
             17:torn:2:512:3 or 17:seed:42",
            self.0
        )
    }
}

impl fmt::Display for CrashState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.cut;
        match self.fate {
            Fate::All => write!(formatter, "{cut}:all"),
            Fate::Durable => write!(formatter, "{cut}:durable"),
            Fate::Subset(mask) => write!(formatter, "{cut}:subset:{mask}"),
            Fate::Torn { write, sector_bytes, kept } => {
                write!(formatter, "{cut}:torn:{write}:{sector_bytes}:{kept}")
            }
            Fate::Seeded(seed) => write!(formatter, "{cut}:seed:{seed}"),
        }
    }
}

impl FromStr for CrashState {
    type Err = NotACrashState;

    fn from_str(text: &str) -> Result<CrashState, NotACrashState> {
        let refused = || NotACrashState(text.to_string());
        let (cut, fate) = text.split_once(':').ok_or_else(refused)?;
        let number = |digits: &str| digits.parse().map_err(|_| refused());
        let fate = match fate.split_once(':') {
            None if fate == "all" => Fate::All,
            None if fate == "durable" => Fate::Durable,
            Some(("subset", digits)) => Fate::Subset(number(digits)?),
            Some(("torn", numbers)) => torn(numbers).ok_or_else(refused)?,
            Some(("seed", digits)) => Fate::Seeded(number(digits)?),
            _ => return Err(refused()),
        };
        let cut = cut.parse().map_err(|_| refused())?;
        Ok(CrashState { cut, fate })
    }
}

/// The three numbers of [`Fate::Torn`].
fn torn(numbers: &str) -> Option<Fate> {
    let numbers: Option<Vec<usize>> = numbers.split(':').map(|text| text.parse().ok()).collect();
    match numbers?[..] {
        [write, sector_bytes @ (SECTOR_BYTES | LARGE_SECTOR_BYTES), kept] => {
            Some(Fate::Torn { write, sector_bytes, kept })
        }
        _ => None,
    }
}

/// Sectors that most media write, in bytes.
const LARGE_SECTOR_BYTES: usize = 4096;
/// Most sectors of one write after which [`Trace::torn`] tears it: of longer writes, the first and
/// last ones.
const TEARS_MAX: usize = 16;
/// Most writes between two flushes of which [`Trace::subsets`] can go through all subsets.
const SUBSET_WRITES_MAX: usize = 16;

impl Trace {
    /// A crash after each event, with all writes before it on the medium and then with none of
    /// those that were not flushed.
    pub fn prefixes(&self) -> impl Iterator<Item = CrashState> {
        (0..=self.events().len())
            .flat_map(|cut| [Fate::All, Fate::Durable].map(|fate| CrashState { cut, fate }))
    }

    /// All subsets of the writes between each two flushes, where these are at most
    /// `writes_max` (and 16): with whole writes, this is every state that there is. What a crash
    /// between two such writes leaves is among them.
    pub fn subsets(&self, writes_max: usize) -> impl Iterator<Item = CrashState> {
        let writes_max = writes_max.min(SUBSET_WRITES_MAX);
        self.cuts_before_flushes()
            .map(move |cut| (cut, self.pending_count(cut)))
            .filter(move |(_, pending)| *pending <= writes_max)
            .flat_map(|(cut, pending)| {
                (0..1 << pending).map(move |mask| {
                    let fate = Fate::Subset(mask);
                    CrashState { cut, fate }
                })
            })
    }

    /// Between each two flushes, every write torn after each of its sectors, small and large, with
    /// all writes before it on the medium and none after it.
    pub fn torn(&self) -> impl Iterator<Item = CrashState> {
        let grains = [SECTOR_BYTES, LARGE_SECTOR_BYTES];
        let cuts = self.cuts_before_flushes();
        cuts.flat_map(move |cut| grains.map(|grain| (cut, grain))).flat_map(|(cut, grain)| {
            let writes = self.pending_sectors(cut, grain);
            writes.into_iter().enumerate().flat_map(move |(write, sectors)| {
                let kept = (1..sectors)
                    .filter(move |kept| *kept <= TEARS_MAX / 2 || *kept + TEARS_MAX / 2 >= sectors);
                kept.map(move |kept| CrashState {
                    cut,
                    fate: Fate::Torn { write, sector_bytes: grain, kept },
                })
            })
        })
    }

    /// Between each two flushes, `count` seeds for lost and torn writes, where more than
    /// `writes_max` writes were under way; all decided by `seed`.
    pub fn seeded_groups(
        &self,
        seed: u64,
        writes_max: usize,
        count: usize,
    ) -> impl Iterator<Item = CrashState> {
        let mut random = Random::new(seed);
        let cuts = self.cuts_before_flushes();
        let cuts = cuts.filter(move |cut| self.pending_count(*cut) > writes_max);
        cuts.flat_map(move |cut| {
            let seeds: Vec<u64> = (0..count).map(|_| random.number()).collect();
            seeds.into_iter().map(move |seed| CrashState { cut, fate: Fate::Seeded(seed) })
        })
    }

    /// `count` crashes at random moments, with lost and torn writes, all decided by `seed`.
    pub fn seeded(&self, seed: u64, count: usize) -> impl Iterator<Item = CrashState> {
        let mut random = Random::new(seed);
        let cuts = self.events().len() as u64 + 1;
        std::iter::repeat_with(move || {
            let cut = usize::try_from(random.below(cuts)).expect("it counts events in memory");
            let fate = Fate::Seeded(random.number());
            CrashState { cut, fate }
        })
        .take(count)
    }

    fn cuts_before_flushes(&self) -> impl Iterator<Item = usize> {
        let events = self.events().iter().enumerate();
        let flushes = events.filter(|(_, event)| **event == Event::Flush);
        flushes.map(|(index, _)| index).chain([self.events().len()])
    }
}

#[cfg(test)]
mod tests {
    use super::CrashState;

    #[test]
    fn a_state_is_read_from_its_name() {
        for name in ["0:all", "17:durable", "17:subset:5", "17:torn:2:512:3", "17:seed:9"] {
            let state: CrashState = name.parse().unwrap();
            assert_eq!(state.to_string(), name);
        }
        for name in
            ["", "all", "1:some", "x:all", "1:seed:", "1:subset:-1", "1:torn:1:2:3", "1:all:2"]
        {
            assert!(name.parse::<CrashState>().is_err(), "{name}");
        }
    }
}
