//! Mount options: what `-o` and a line of `/etc/fstab` may say.
//!
//! An option that nobody knows is refused, since a misspelt `ro` that mounts writable would be
//! found out too late. The few that `mount(8)` and systemd pass along for themselves are
//! swallowed.

use crate::error::{Error, Result};
use crate::sizes::parse_size;
use serde::{Deserialize, Serialize};

/// Least and most bytes of cache that can be asked for.
const CACHE_BYTES: std::ops::RangeInclusive<u64> = (16 << 20)..=(1 << 40);
/// Least and most seconds between two group commits.
const COMMIT_SECONDS: std::ops::RangeInclusive<u64> = 1..=300;
/// Most seconds between two passes of rewriting in the background: a year.
const DEFRAGMENT_SECONDS_MAX: u64 = 365 * 86_400;

/// When reading a file moves its access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessTimes {
    /// Never.
    Never,
    /// When the file has changed since, or a day has passed.
    #[default]
    Relative,
    /// Always.
    Strict,
}

/// Whether a mount of root's goes through a block device, so that `sync` reaches the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BlockDevice {
    /// If one can be had.
    #[default]
    Auto,
    /// Never: type `fuse.marram`, and the pool's path as the source.
    Off,
    /// Or the mount is refused.
    On,
}

/// In which order an ext2 or ext3 image is written, and so what a crash may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Consistency {
    /// Each change after all that it depends on.
    SoftUpdates,
    /// Metadata through the journal, data before it.
    Journal,
    /// All through the journal.
    JournalFull,
    /// Metadata through the journal, data whenever.
    JournalWriteback,
    /// None.
    Async,
}

impl Consistency {
    const ALL: [Consistency; 5] = [
        Consistency::SoftUpdates,
        Consistency::Journal,
        Consistency::JournalFull,
        Consistency::JournalWriteback,
        Consistency::Async,
    ];

    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Consistency::SoftUpdates => "soft-updates",
            Consistency::Journal => "journal",
            Consistency::JournalFull => "journal-full",
            Consistency::JournalWriteback => "journal-writeback",
            Consistency::Async => "async",
        }
    }
}

/// When what has returned survives a power cut, in a pmem home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durable {
    /// At once.
    Each,
    /// With the next operation.
    Epoch,
    /// With the next checkpoint or `fsync`.
    Checkpoint,
}

impl Durable {
    const ALL: [Durable; 3] = [Durable::Each, Durable::Epoch, Durable::Checkpoint];

    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durable::Each => "each",
            Durable::Epoch => "epoch",
            Durable::Checkpoint => "checkpoint",
        }
    }
}

/// When what a program has written and closed is durable, if it asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Close {
    /// With the next publication or group commit; beside other clients at once.
    #[default]
    Auto,
    /// Before the close returns.
    Publish,
    /// As long after it as the home likes, which is a second.
    Later,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    /// What has proven itself: classic.
    #[default]
    Auto,
    /// By reading `/dev/fuse`.
    Classic,
    /// Over io_uring, or the mount is refused.
    IoUring,
}

/// What an image in a file begins at a multiple of.
const SECTOR_BYTES: u64 = 512;

/// All that can be said about one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountOptions {
    /// Nothing can be changed through it.
    pub(crate) read_only: bool,
    /// That it can be was said, and not only not denied: of a remount that is another thing.
    #[serde(default)]
    pub(crate) says_writable: bool,
    /// The pool is shown as its last group commit left it; only with `read_only`.
    #[serde(default)]
    pub(crate) no_recovery: bool,
    /// When reading moves access times; `None` leaves it to the dataset's property `atime`.
    pub(crate) access_times: Option<AccessTimes>,
    /// Reading moves no access times of directories.
    #[serde(default)]
    pub(crate) no_directory_access_times: bool,
    /// Access times are kept in memory, and written with something else.
    #[serde(default)]
    pub(crate) lazy_times: bool,
    /// Other users than the mounting one may use it; `None`: as root they may.
    pub(crate) allow_other: Option<bool>,
    /// The kernel may gather writes of its own accord.
    pub(crate) writeback: bool,
    /// Memory for the pool's cache, in bytes.
    pub(crate) cache_bytes: Option<u64>,
    /// Most seconds between two group commits.
    pub(crate) commit_seconds: Option<u64>,
    /// In which order an image is written.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// Where in a file or device the image begins, in bytes.
    #[serde(default)]
    pub(crate) offset_bytes: Option<u64>,
    /// In an image every user of the mount may do what only the superuser may.
    #[serde(default)]
    pub(crate) fakeroot: bool,
    /// In an image names are the same when only their case differs.
    #[serde(default)]
    pub(crate) casefold: bool,
    /// When what has returned survives a power cut.
    #[serde(default)]
    pub(crate) durable: Option<Durable>,
    /// Seconds between two passes of rewriting in the background; 0 is never.
    #[serde(default)]
    pub(crate) defragment_seconds: Option<u64>,
    /// Setuid and setgid bits count.
    pub(crate) suid: Option<bool>,
    /// Device nodes work.
    pub(crate) dev: Option<bool>,
    /// Programs can be run.
    pub(crate) exec: Option<bool>,
    /// Which dataset, if not the root dataset.
    pub(crate) dataset: Option<String>,
    /// Which snapshot of the dataset.
    pub(crate) snapshot: Option<String>,
    /// Whether the mount goes through a block device.
    pub(crate) block_device: BlockDevice,
    /// Processors do not halt while requests flow; `None`: where that is worth its price.
    #[serde(default)]
    pub(crate) wakeful: Option<bool>,
    /// The daemon is asked at each opening.
    #[serde(default)]
    pub(crate) strict_open: bool,
    /// Handles of files cannot be opened.
    #[serde(default)]
    pub(crate) no_handles: bool,
    /// When what was closed is durable.
    #[serde(default)]
    pub(crate) close: Close,
    /// How requests come from the kernel.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// Not a new mount: change the options of the one that is there.
    pub(crate) remount: bool,
}

/// Options that are meant for `mount(8)`, systemd or other systems' helpers, or that say what is
/// the case anyway. The kernel's own (`user_id`) come back from `mount(8)` when it remounts.
const SWALLOWED: &[&str] = &[
    "_netdev",
    "async",
    "auto",
    "blksize",
    "comment",
    "default_permissions",
    "defaults",
    "group",
    "group_id",
    "loud",
    "max_read",
    "noauto",
    "nofail",
    "nogroup",
    "nonempty",
    "noowner",
    "nouser",
    "nousers",
    "owner",
    "silent",
    "strict",
    "rootmode",
    "user",
    "user_id",
    "users",
];

/// The answer to an option that is not known.
const KNOWN: &str = "ro, rw, norecovery, noatime, relatime, strictatime, diratime, nodiratime, \
    lazytime, nolazytime, allow_other, noallow_other, default_permissions, ordered, writeback, \
    cache=SIZE, commit=SECONDS, defragment=SECONDS, consistency=ORDER, \
    offset=BYTES, fakeroot, casefold, durable=each|epoch|checkpoint, suid, nosuid, dev, nodev, \
    exec, noexec, dataset=NAME, subvol=NAME, snapshot=NAME, blkdev=auto|on|off, \
    transport=auto|classic|io_uring, close=auto|publish|later, strict, \
    strictopen, nostrictopen, handles, nohandles, wakeful, nowakeful, remount";

impl MountOptions {
    /// Reads lists of comma-separated options; where two contradict each other the later counts.
    ///
    /// # Errors
    /// Names the first option that is not known or whose value makes no sense.
    pub(crate) fn parse(lists: &[String]) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        let words = lists.iter().flat_map(|list| list.split(','));
        for word in words.filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => options.set_value(name, value)?,
                None => options.set_flag(word)?,
            }
        }
        if options.no_recovery && !options.read_only {
            return Err(Error::usage("mount option norecovery goes only with ro").hint(
                "a pool that was changed without its log would lose what was synced: -o \
                 ro,norecovery",
            ));
        }
        if options.fakeroot && options.allow_other == Some(true) {
            return Err(Error::usage("mount options fakeroot and allow_other exclude each other")
                .hint("every user could change all files of the image; leave one of them out"));
        }
        Ok(options)
    }

    fn set_flag(&mut self, word: &str) -> Result<()> {
        match word {
            "ro" => (self.read_only, self.says_writable) = (true, false),
            "rw" => (self.read_only, self.says_writable) = (false, true),
            "norecovery" => self.no_recovery = true,
            "noatime" => self.access_times = Some(AccessTimes::Never),
            "atime" | "relatime" => self.access_times = Some(AccessTimes::Relative),
            "strictatime" => self.access_times = Some(AccessTimes::Strict),
            "diratime" => self.no_directory_access_times = false,
            "nodiratime" => self.no_directory_access_times = true,
            "lazytime" => self.lazy_times = true,
            "nolazytime" => self.lazy_times = false,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            "ordered" => self.writeback = false,
            "writeback" => self.writeback = true,
            "suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "dev" => self.dev = Some(true),
            "nodev" => self.dev = Some(false),
            "exec" => self.exec = Some(true),
            "noexec" => self.exec = Some(false),
            "strictopen" => self.strict_open = true,
            "nostrictopen" => self.strict_open = false,
            "handles" => self.no_handles = false,
            "nohandles" => self.no_handles = true,
            "wakeful" => self.wakeful = Some(true),
            "nowakeful" => self.wakeful = Some(false),
            "fakeroot" => self.fakeroot = true,
            "casefold" => self.casefold = true,
            "remount" => self.remount = true,
            _ if is_swallowed(word) => {}
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "cache" => self.cache_bytes = Some(cache_size(value)?),
            "defragment" => self.defragment_seconds = Some(defragment_interval(value)?),
            "consistency" => self.consistency = Some(consistency(value)?),
            "offset" => self.offset_bytes = Some(offset(value)?),
            "durable" => self.durable = Some(durable(value)?),
            "commit" => self.commit_seconds = Some(commit_interval(value)?),
            "dataset" | "subvol" => {
                let name = value.parse::<marram_store::DatasetName>()?;
                self.dataset = Some(name.as_str().to_owned());
            }
            "snapshot" => self.snapshot = Some(snapshot_name(value)?),
            "blkdev" => self.block_device = block_device(value)?,
            "transport" => self.transport = transport(value)?,
            "close" => self.close = close(value)?,
            _ if is_swallowed(name) => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// What was asked for of a mount, in words, that no remount changes: when reading moves access
    /// times, and all else but what may be another thing at each mount.
    pub(crate) fn words_of_mount(&self) -> (Vec<String>, Vec<String>) {
        let times = self.access_times.map(|asked| match asked {
            AccessTimes::Never => "noatime",
            AccessTimes::Relative => "relatime",
            AccessTimes::Strict => "strictatime",
        });
        let flags = [
            (self.no_directory_access_times, "nodiratime"),
            (self.lazy_times, "lazytime"),
            (self.allow_other == Some(true), "allow_other"),
            (self.writeback, "writeback"),
            (self.strict_open, "strictopen"),
            (self.no_handles, "nohandles"),
            (self.close == Close::Publish, "close=publish"),
            (self.fakeroot, "fakeroot"),
            (self.casefold, "casefold"),
            (self.no_recovery, "norecovery"),
        ];
        let flags =
            flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word.to_owned());
        let values = [
            self.offset_bytes.map(|bytes| format!("offset={bytes}")),
            self.consistency.map(|order| format!("consistency={}", order.name())),
            self.durable.map(|durable| format!("durable={}", durable.name())),
            self.cache_bytes.map(|bytes| format!("cache={bytes}")),
            self.commit_seconds.map(|seconds| format!("commit={seconds}")),
            self.defragment_seconds.map(|seconds| format!("defragment={seconds}")),
        ];
        let times = times.into_iter().map(str::to_owned).collect();
        (times, flags.chain(values.into_iter().flatten()).collect())
    }

    /// The options for a mount that is made anew to be writable: what is not asked for stays as it
    /// was shown before.
    pub(crate) fn made_writable(&self, shown: &MountOptions) -> MountOptions {
        MountOptions {
            read_only: false,
            no_recovery: false,
            allow_other: self.allow_other.or(Some(shown.allow_other == Some(true))),
            suid: self.suid.or(shown.suid).or(Some(true)),
            dev: self.dev.or(shown.dev).or(Some(true)),
            exec: self.exec.or(shown.exec).or(Some(true)),
            // A read-only mount moves none, whatever was asked for.
            access_times: self.access_times.filter(|asked| *asked != AccessTimes::Never),
            no_directory_access_times: self.no_directory_access_times
                || shown.no_directory_access_times,
            lazy_times: self.lazy_times || shown.lazy_times,
            writeback: self.writeback || shown.writeback,
            strict_open: self.strict_open || shown.strict_open,
            no_handles: self.no_handles || shown.no_handles,
            close: if self.close == Close::Auto { shown.close } else { self.close },
            consistency: self.consistency.or(shown.consistency),
            durable: self.durable.or(shown.durable),
            cache_bytes: self.cache_bytes.or(shown.cache_bytes),
            commit_seconds: self.commit_seconds.or(shown.commit_seconds),
            defragment_seconds: self.defragment_seconds.or(shown.defragment_seconds),
            block_device: self.block_device,
            transport: self.transport,
            wakeful: self.wakeful,
            ..shown.clone()
        }
    }

    /// Which dataset or snapshot is meant.
    ///
    /// # Errors
    /// When a name is none.
    pub(crate) fn source(&self) -> Result<marram_store::Source> {
        let dataset = match &self.dataset {
            Some(name) => name.parse()?,
            None => marram_store::DatasetName::root(),
        };
        Ok(marram_store::Source { dataset, snapshot: self.snapshot.clone() })
    }
}

fn is_swallowed(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || SWALLOWED.contains(&name)
}

fn unknown(name: &str) -> Error {
    Error::usage(format!("unknown mount option {name:?}")).hint(format!("known are: {KNOWN}"))
}

fn cache_size(value: &str) -> Result<u64> {
    let bytes = parse_size(value).map_err(|error| error.during("mount option cache"))?;
    if CACHE_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(Error::usage(format!("mount option cache: {value} is out of range: 16M to 1T")))
}

fn commit_interval(value: &str) -> Result<u64> {
    let seconds = value.parse().ok();
    let allowed = seconds.filter(|seconds| COMMIT_SECONDS.contains(seconds));
    allowed.ok_or_else(|| {
        Error::usage(format!("mount option commit: {value:?} is out of range: 1 to 300 seconds"))
    })
}

fn defragment_interval(value: &str) -> Result<u64> {
    let seconds = if value == "off" { Some(0) } else { value.parse().ok() };
    let allowed = seconds.filter(|seconds| *seconds <= DEFRAGMENT_SECONDS_MAX);
    allowed.ok_or_else(|| {
        Error::usage(format!(
            "mount option defragment: {value:?} is out of range: 0 (never) to 31536000 seconds"
        ))
    })
}

/// Checks the name of a snapshot.
///
/// # Errors
/// Says what a name looks like.
pub(crate) fn snapshot_name(value: &str) -> Result<String> {
    let source: marram_store::Source = format!("root@{value}").parse()?;
    if source.is_own() {
        return Err(Error::usage(format!("{value}: the pool gives such names itself"))
            .hint("take one that does not begin with fork:, base:, former:, merge: or diff:"));
    }
    Ok(source.snapshot.unwrap_or_default())
}

fn consistency(value: &str) -> Result<Consistency> {
    let found = Consistency::ALL.into_iter().find(|known| known.name() == value);
    found.ok_or_else(|| {
        let words = Consistency::ALL.map(Consistency::name).join(", ");
        Error::usage(format!("mount option consistency: {value:?} is not one of {words}"))
    })
}

fn offset(value: &str) -> Result<u64> {
    let bytes = parse_size(value).map_err(|error| error.during("mount option offset"))?;
    if bytes.is_multiple_of(SECTOR_BYTES) {
        return Ok(bytes);
    }
    Err(Error::usage(format!("mount option offset: {value} is not a multiple of 512 bytes"))
        .hint("`sfdisk -d` shows where partitions begin, in sectors; 2048 sectors are 1M"))
}

fn durable(value: &str) -> Result<Durable> {
    let found = Durable::ALL.into_iter().find(|known| known.name() == value);
    found.ok_or_else(|| {
        let words = Durable::ALL.map(Durable::name).join(", ");
        Error::usage(format!("mount option durable: {value:?} is not one of {words}"))
    })
}

fn close(value: &str) -> Result<Close> {
    match value {
        "auto" => Ok(Close::Auto),
        "publish" => Ok(Close::Publish),
        "later" => Ok(Close::Later),
        _ => {
            let text = format!("mount option close: {value:?} is not one of auto, publish, later");
            Err(Error::usage(text))
        }
    }
}

fn block_device(value: &str) -> Result<BlockDevice> {
    match value {
        "auto" => Ok(BlockDevice::Auto),
        "on" => Ok(BlockDevice::On),
        "off" => Ok(BlockDevice::Off),
        _ => {
            Err(Error::usage(format!("mount option blkdev: {value:?} is not one of auto, on, off")))
        }
    }
}

fn transport(value: &str) -> Result<Transport> {
    match value {
        "auto" => Ok(Transport::Auto),
        "classic" => Ok(Transport::Classic),
        "io_uring" => Ok(Transport::IoUring),
        _ => Err(Error::usage(format!(
            "mount option transport: {value:?} is not one of auto, classic, io_uring"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessTimes, BlockDevice, MountOptions};
    use crate::error::Kind;

    fn parse(list: &str) -> crate::error::Result<MountOptions> {
        MountOptions::parse(&[list.to_owned()])
    }

    #[test]
    fn the_options_that_mount_users_expect_are_read() {
        let options = parse("ro,noatime,allow_other,default_permissions,cache=512M").unwrap();
        assert!(options.read_only && !options.writeback);
        assert_eq!(options.access_times, Some(AccessTimes::Never));
        assert_eq!(options.allow_other, Some(true));
        assert_eq!(options.cache_bytes, Some(512 << 20));
        assert!(!options.no_recovery && parse("norecovery,ro").unwrap().no_recovery);
        let options = parse("writeback,commit=30,suid,nodev,noexec,subvol=a/b,snapshot=x").unwrap();
        assert!(options.writeback);
        assert_eq!(options.commit_seconds, Some(30));
        assert_eq!(parse("defragment=7200").unwrap().defragment_seconds, Some(7200));
        assert_eq!(parse("defragment=off").unwrap().defragment_seconds, Some(0));
        assert_eq!(
            (options.suid, options.dev, options.exec),
            (Some(true), Some(false), Some(false))
        );
        assert_eq!(options.source().unwrap().to_string(), "a/b@x");
        assert_eq!(parse("wakeful,nowakeful").unwrap().wakeful, Some(false));
        assert_eq!(parse("").unwrap().wakeful, None);
        assert_eq!(parse("offset=1M").unwrap().offset_bytes, Some(1 << 20));
        assert!(parse("fakeroot").unwrap().fakeroot && !parse("").unwrap().fakeroot);
        assert!(parse("casefold").unwrap().casefold && !parse("").unwrap().casefold);
        assert_eq!(parse("strict,close=publish").unwrap().close, super::Close::Publish);
        assert!(parse("close=never").unwrap_err().to_string().contains("auto, publish, later"));
        assert!(parse("strictopen").unwrap().strict_open);
        assert!(!parse("strictopen,nostrictopen").unwrap().strict_open);
    }

    #[test]
    fn when_access_times_are_written_can_be_chosen() {
        let options = parse("nodiratime,lazytime").unwrap();
        assert!(options.no_directory_access_times && options.lazy_times);
        let options = parse("nodiratime,lazytime,diratime,nolazytime").unwrap();
        assert_eq!(options, MountOptions::default());
    }

    #[test]
    fn a_mount_that_is_made_writable_keeps_what_it_was_mounted_with() {
        let words = "ro,nosuid,noatime,ordered,offset=1048576,consistency=journal,close=publish";
        let shown = parse(words).unwrap();
        let again = parse("remount,rw,suid").unwrap().made_writable(&shown);
        assert!(!again.read_only && !again.remount && again.suid == Some(true));
        assert_eq!((again.offset_bytes, again.close), (Some(1 << 20), super::Close::Publish));
        assert_eq!(again.consistency, Some(super::Consistency::Journal));
        let (times, others) = shown.words_of_mount();
        assert_eq!(times, ["noatime"]);
        assert_eq!(others, ["close=publish", "offset=1048576", "consistency=journal"]);
    }

    #[test]
    fn the_later_of_two_that_contradict_counts() {
        let lists = ["ro,strictatime".to_owned(), "rw,relatime,blkdev=off".to_owned()];
        let options = MountOptions::parse(&lists).unwrap();
        assert!(!options.read_only);
        assert_eq!(options.access_times, Some(AccessTimes::Relative));
        assert_eq!(options.block_device, BlockDevice::Off);
    }

    #[test]
    fn what_mount_and_systemd_pass_is_swallowed() {
        let kernels = "rw,relatime,user_id=0,group_id=0,default_permissions,blksize=4096";
        assert!(parse(kernels).is_ok());
        let list = "defaults,nofail,_netdev,user,noauto,x-systemd.automount,\
                    x-gvfs-name=a b,comment=hello,X-mount.mkdir=0755,nonempty,,";
        assert_eq!(parse(list).unwrap(), MountOptions::default());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let bad = [
            ("readonly", "readonly"),
            ("ro,frobnicate=1", "frobnicate"),
            ("cache=lots", "cache"),
            ("cache=1", "16M"),
            ("commit=0", "300"),
            ("commit=x", "300"),
            ("defragment=soon", "31536000"),
            ("dataset=..", ".."),
            ("snapshot=a/b", "a/b"),
            ("blkdev=maybe", "auto, on, off"),
            ("transport=pigeon", "auto, classic, io_uring"),
            ("norecovery", "only with ro"),
            ("ro,norecovery,rw", "only with ro"),
            ("sync", "sync"),
            ("offset=7", "512"),
            ("offset=far", "offset"),
            ("fakeroot,allow_other", "exclude"),
            ("\u{e4}", "unknown"),
        ];
        for (list, named) in bad {
            let error = parse(list).unwrap_err();
            assert_eq!(error.kind, Kind::Usage, "{list}");
            assert!(error.message.contains(named), "{list}: {error}");
        }
    }
}
