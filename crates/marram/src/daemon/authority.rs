//! What users may ask of root's daemon, and what of its answers they may see.
//!
//! A user has the datasets in sight that are mounted where the user can go, and forks of its own.
//! Whatever is asked of another one is answered as if it were not there. What a dataset hands out
//! beyond that (`marram allow`) concerns the whole of it, whosever its files are. Any other request
//! that goes through carries the rights of its user, which bound what it changes of files: see
//! [`crate::engine::home::Home::perform`].

use super::service::locate;
use super::state::Daemon;
use crate::control::credentials::Credentials;
use crate::control::daemons;
use crate::control::protocol::{
    Answer, Author, BeginOrder, CompareOrder, DatasetRow, DirectoryOrder, GrantOrder, JointCommit,
    MergePlace, MergeRequest, MountReport, Operation, OperationRow, PoolPlace, Request, SendOrder,
};
use crate::engine::home::{Snapshots, lacks};
use crate::engine::rights::may_search;
use crate::error::{Error, Kind, Result};
use crate::names::shell_word;
use marram_store::{DatasetName, Source, Verb};
use marram_vfs::Identity;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Operations that a user may take back after making them; what changes of files is judged anew.
const CAN_TAKE_BACK: [&str; 8] = [
    "fork",
    "merge",
    "rollback-directory",
    "snapshot",
    "rename",
    "destroy",
    "restore",
    "transaction",
];

/// One user before a daemon.
pub(super) struct Authority<'a> {
    daemon: &'a Daemon,
    by: &'a Credentials,
}

impl<'a> Authority<'a> {
    /// What `by` may ask of `daemon`.
    pub(super) fn new(daemon: &'a Daemon, by: &'a Credentials) -> Authority<'a> {
        Authority { daemon, by }
    }

    /// A request as it is to be performed.
    ///
    /// # Errors
    /// What the user lacks for it.
    pub(super) fn admit(&self, request: Request) -> Result<Request> {
        let command = String::new();
        match request {
            Request::Locate { directory, ino } => {
                let gone = || Error::not_found("nothing of that mount is in sight");
                let Answer::Located { source, .. } = locate(self.daemon, &directory, ino)? else {
                    return Err(gone());
                };
                self.check_sight(&source).map_err(|_| gone())?;
                Ok(Request::Locate { directory, ino })
            }
            Request::Perform(operation) => {
                let author = Author { user: self.by.uid(), command, bound: None };
                self.admit_operation(operation, author)
            }
            Request::PerformFor { operation, author } => self.admit_operation(operation, author),
            Request::Send(order) => {
                self.check_send(&order)?;
                Ok(Request::Send(order))
            }
            Request::Compare(order) => {
                self.check_sight(&order.before)?;
                self.check_sight(&order.after)?;
                Ok(Request::Compare(CompareOrder { bound: Some(self.by.clone()), ..order }))
            }
            Request::Begin(order) => self.admit_begin(order),
            Request::Commit(id) => self.check_transaction(&id).map(|()| Request::Commit(id)),
            Request::Prepare(joint) => {
                self.check_transaction(&joint.id)?;
                let other = other_pool(&joint.other)?;
                Ok(Request::Prepare(JointCommit { other, ..joint }))
            }
            Request::Abort(id) => self.check_transaction(&id).map(|()| Request::Abort(id)),
            _ => Err(self.refusal("do this")),
        }
    }

    /// A transaction of a user is one of a program that works in it by a descriptor: what is done
    /// there is checked as on the mount. It ends with the conversation.
    fn admit_begin(&self, order: BeginOrder) -> Result<Request> {
        if !order.descriptor || order.idle_seconds.is_some() {
            return Err(self.refusal("begin a transaction that is seen at a path"));
        }
        if let Some(outer) = &order.inside {
            self.check_transaction(outer)?;
            let author = self.author(&order.author.command);
            return Ok(Request::Begin(BeginOrder { author, id: None, other: None, ..order }));
        }
        let mounts = self.daemon.mounts.reports();
        for place in std::iter::once(&order.directory).chain(&order.also) {
            let is_meant = |mount: &MountReport| mount.directory == *place && self.can_go_to(mount);
            if !mounts.iter().any(is_meant) {
                let place = place.display();
                return Err(Error::not_found(format!("nothing is mounted at {place}")));
            }
        }
        let author = self.author(&order.author.command);
        let other = order.other.as_ref().map(other_pool).transpose()?;
        // Only one that works in another pool has an id from there.
        let id = order.id.clone().filter(|_| other.is_some());
        Ok(Request::Begin(BeginOrder { author, id, other, ..order }))
    }

    fn check_transaction(&self, id: &str) -> Result<()> {
        match self.daemon.transactions.user_of(id) == Some(self.by.uid()) {
            true => Ok(()),
            false => Err(Error::not_found(format!("no transaction {id} of yours is open"))),
        }
    }

    /// The user as the author of what is asked, with a command line that can be shown.
    fn author(&self, command: &str) -> Author {
        let command = command.chars();
        let command = command.map(|it| if it.is_control() { '?' } else { it }).collect();
        Author { user: self.by.uid(), command, bound: Some(self.by.clone()) }
    }

    /// What of an answer the user may see.
    pub(super) fn reveal(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Datasets(rows) => Answer::Datasets(self.rows_in_sight(rows)),
            Answer::Operations(rows) => {
                let own = |row: &OperationRow| row.user == Some(self.by.uid());
                Answer::Operations(rows.into_iter().filter(own).collect())
            }
            Answer::Status(mut status) => {
                // Both name files and datasets, whosever they are.
                (status.damage, status.partials) = (Vec::new(), Vec::new());
                status.mounts.retain(|mount| self.can_go_to(mount));
                let is_seen = |name: &str| name.parse().is_ok_and(|it| self.sees(&it) == Ok(true));
                status.snapshots.retain(|row| is_seen(&row.dataset));
                status.two_pools.retain(|row| row.datasets.iter().all(|name| is_seen(name)));
                // Where it was last, which may be a place that the user knows nothing of.
                status.two_pools.iter_mut().for_each(|row| row.other.path = PathBuf::new());
                Answer::Status(status)
            }
            other => other,
        }
    }

    fn admit_operation(&self, operation: Operation, author: Author) -> Result<Request> {
        let operation = self.admitted(operation)?;
        let author = self.author(&author.command);
        Ok(Request::PerformFor { operation, author })
    }

    fn admitted(&self, operation: Operation) -> Result<Operation> {
        match &operation {
            Operation::Status | Operation::List | Operation::Log | Operation::Sync => (),
            Operation::Get { dataset }
            | Operation::Grants(GrantOrder { dataset, change: None }) => {
                self.check_sight(dataset)?
            }
            Operation::Owners { source } => self.check_allowed(source, Verb::Quota)?,
            Operation::SetLimit { dataset, .. } => self.check_allowed(dataset, Verb::Quota)?,
            Operation::Set { dataset, properties } => self.check_set(dataset, properties.keys())?,
            Operation::Rollback { to } => self.check_allowed(to, Verb::Rollback)?,
            Operation::Fork { dataset, name, root } => self.check_fork(dataset, name, *root)?,
            Operation::ForkPlace { fork } => self.check_own(fork)?,
            Operation::Merge(request) => {
                self.check_own(&request.fork)?;
                if request.update {
                    self.check_update(request)?;
                }
                if let Some(MergePlace { dataset, directory }) = &request.into {
                    self.check_writable(dataset, *directory)?;
                }
                // The lines of both sides tell of files that the user may not be able to read.
                let request = request.clone();
                let request = MergeRequest { marks: false, texts: false, ..request };
                return Ok(Operation::Merge(request));
            }
            Operation::Versions(order) => self.check_sight(&order.dataset)?,
            Operation::RollbackDirectory(order) => self.check_way_back(order)?,
            Operation::Destroy { sources, .. } | Operation::Hide { sources } => {
                sources.iter().try_for_each(|source| self.check_destruction(source))?;
            }
            Operation::Snapshot { dataset, .. } => {
                self.check_own_or(dataset, Verb::Snapshot)?;
            }
            Operation::Rename { from, to } => {
                self.check_own(from)?;
                check_plain(to)?;
            }
            Operation::Undo { number, force } => {
                let number = Some(self.own_entry(*number)?);
                return Ok(Operation::Undo { number, force: *force });
            }
            _ => return Err(self.refusal("do this")),
        }
        Ok(operation)
    }

    fn refusal(&self, what: &str) -> Error {
        Error::refused(format!("user {} may not {what} here", self.by.uid())).hint(
            "root may, and can hand it out with `marram allow`; users fork what they may write, \
             and diff, merge, update, undo, rename and destroy forks of their own",
        )
    }

    fn snapshots(&self) -> Result<&dyn Snapshots> {
        let home = &*self.daemon.home;
        home.snapshots().ok_or_else(|| lacks(home, "snapshots"))
    }

    /// Whether a dataset, snapshot or fork is in sight.
    fn sees(&self, source: &Source) -> Result<bool> {
        if let Some(owner) = self.snapshots()?.owner_of_fork(source)? {
            return Ok(owner == self.by.uid());
        }
        let shows = |mount: &MountReport| {
            let mounted: Option<Source> = mount.source.parse().ok();
            mounted.is_some_and(|mounted| {
                let is_it = mounted.snapshot.is_none() || mounted == *source;
                is_it && mounted.dataset == source.dataset
            })
        };
        let mounts = self.daemon.mounts.reports();
        Ok(mounts.iter().any(|mount| shows(mount) && self.can_go_to(mount)))
    }

    /// Whether the user can go to the directory of a mount. The modes and the access lists of those
    /// above it decide.
    fn can_go_to(&self, mount: &MountReport) -> bool {
        let is_for_all = mount.options.split(',').any(|option| option == "allow_other");
        let mut above = mount.directory.ancestors().skip(1);
        is_for_all && above.all(|directory| may_search(self.by, directory).unwrap_or(false))
    }

    /// What is out of sight is not there.
    fn check_sight(&self, source: &str) -> Result<()> {
        let parsed: Source = source.parse()?;
        let is_internal = parsed.is_own() && self.owner_of(&parsed).is_none();
        let is_seen = match is_internal {
            true => self.bases()?.contains(source),
            false => self.sees(&parsed).unwrap_or(false),
        };
        match is_seen {
            true => Ok(()),
            false => Err(out_of_sight(&parsed)),
        }
    }

    fn owner_of(&self, source: &Source) -> Option<u32> {
        self.snapshots().ok()?.owner_of_fork(source).ok()?
    }

    /// A fork of the user's, or a snapshot of one.
    fn check_own(&self, source: &str) -> Result<()> {
        // A range of snapshots is one of the dataset that it names.
        let dataset = source.split('@').next().unwrap_or_default();
        let live = Source::live(dataset.parse::<DatasetName>()?);
        match self.owner_of(&live) {
            Some(owner) if owner == self.by.uid() => Ok(()),
            None if self.sees(&live).unwrap_or(false) => {
                Err(self.refusal(&format!("do this to {dataset}, which is no fork of yours,")))
            }
            _ => Err(out_of_sight(&live)),
        }
    }

    /// An own fork, or a dataset in sight that hands the verb out.
    fn check_own_or(&self, source: &str, verb: Verb) -> Result<()> {
        self.check_own(source).or_else(|error| match self.check_allowed(source, verb) {
            Err(refusal) if refusal.kind == Kind::Refused => Err(refusal),
            other => other.map_err(|_| error),
        })
    }

    /// A dataset in sight that hands the verb out.
    fn check_allowed(&self, source: &str, verb: Verb) -> Result<()> {
        let dataset = source.split('@').next().unwrap_or_default();
        self.check_sight(dataset)?;
        let grants = self.snapshots()?.grants(&dataset.parse()?)?;
        match grants.allows(verb, self.by.uid(), |group| self.by.is_member(group)) {
            true => Ok(()),
            false => Err(self.refusal(&format!("{} {dataset}", deed(verb)))),
        }
    }

    /// Properties that decide on rights stay root's; those of space have a verb of their own.
    fn check_set<'p>(
        &self,
        dataset: &str,
        mut properties: impl Iterator<Item = &'p String>,
    ) -> Result<()> {
        properties.try_for_each(|property| match property.as_str() {
            "acl" | "allow" | "userforks" => {
                self.check_sight(dataset)?;
                Err(self.refusal(&format!("set {property}, which decides on rights,")))
            }
            "quota" | "reservation" => self.check_allowed(dataset, Verb::Quota),
            _ => self.check_allowed(dataset, Verb::Set),
        })
    }

    /// An own fork, or snapshots of a dataset that allows it.
    fn check_destruction(&self, source: &str) -> Result<()> {
        match source.contains('@') {
            true => self.check_own_or(source, Verb::Destroy),
            false => self.check_own(source),
        }
    }

    /// A stream has all content of a dataset, whosever it is. A token names what it goes on with in
    /// a form that the engine alone reads, so it is root's.
    fn check_send(&self, order: &SendOrder) -> Result<()> {
        if order.resume.is_some() {
            return Err(self.refusal("go on with a stream by its token"));
        }
        self.check_allowed(&order.snapshot, Verb::Send)?;
        order.base.iter().try_for_each(|base| self.check_allowed(base, Verb::Send))
    }

    fn check_fork(&self, dataset: &str, name: &str, root: u64) -> Result<()> {
        check_plain(name)?;
        self.check_writable(dataset, root)?;
        self.check_number(&dataset.parse()?)
    }

    /// A directory that the user comes to, and may write.
    fn check_writable(&self, dataset: &str, directory: u64) -> Result<()> {
        self.check_sight(dataset)?;
        let dataset: DatasetName = dataset.parse()?;
        match self.snapshots()?.may_change_names(&dataset, directory, self.by)? {
            true => Ok(()),
            false => {
                let user = self.by.uid();
                Err(Error::refused(format!("user {user} may not write this directory"))
                    .hint("a fork needs the rights to write and to search the directory"))
            }
        }
    }

    /// An update reads what the user can come to, and the whole of it: a part would leave out that
    /// a directory around it has been closed.
    fn check_update(&self, request: &MergeRequest) -> Result<()> {
        if !request.selection.is_all() {
            return Err(self.refusal("update a part of a fork"));
        }
        let Answer::Datasets(rows) = self.daemon.home.perform(&Operation::List, None, None)? else {
            return Ok(());
        };
        let row = rows.iter().find(|row| row.name == request.fork);
        let origin = row.and_then(|row| Some((row.origin.as_ref()?.parse::<Source>().ok()?, row)));
        let Some((origin, row)) = origin else { return Ok(()) };
        self.check_sight(origin.dataset.as_str())?;
        match self.snapshots()?.may_change_names(&origin.dataset, row.root, self.by)? {
            true => Ok(()),
            false => Err(self.refusal("write the directory of which this is a fork, any more,")),
        }
    }

    /// A user has only so many forks at a time.
    fn check_number(&self, dataset: &DatasetName) -> Result<()> {
        let forks_max = self.snapshots()?.forks_of_user_max(dataset)?;
        let Answer::Datasets(rows) = self.daemon.home.perform(&Operation::List, None, None)? else {
            return Ok(());
        };
        let is_fork = |row: &&DatasetRow| row.kind == "fork" && self.is_of_user(row);
        match rows.iter().filter(is_fork).count() < forks_max {
            true => Ok(()),
            false => Err(Error::refused(format!(
                "a user has at most {forks_max} forks here (property userforks)"
            ))
            .hint("`marram forks TARGET` lists yours; `marram destroy fork` drops one")),
        }
    }

    fn check_way_back(&self, order: &DirectoryOrder) -> Result<()> {
        self.check_sight(&order.dataset)?;
        self.check_sight(&order.to)
    }

    /// The entry of the log that an undo is about: one of the user's own.
    fn own_entry(&self, number: Option<u64>) -> Result<u64> {
        let log = self.daemon.home.perform(&Operation::Log, None, None)?;
        let Answer::Operations(rows) = log else { return Err(self.refusal("undo")) };
        let is_own = |row: &&OperationRow| row.user == Some(self.by.uid());
        let row = match number {
            Some(number) => rows.iter().find(|row| row.number == number).filter(is_own),
            None => rows.iter().rfind(is_own),
        };
        let Some(row) = row else {
            return Err(Error::not_found("no such operation of yours is in the log")
                .hint("`marram log TARGET` shows your operations"));
        };
        let (first, last) = row.together.unwrap_or((row.number, row.number));
        let mut step = rows.iter().filter(|row| (first..=last).contains(&row.number));
        step.try_for_each(|row| self.check_taking_back(row))?;
        Ok(row.number)
    }

    /// What a user was allowed to do counts no more when it is not allowed any more.
    fn check_taking_back(&self, row: &OperationRow) -> Result<()> {
        match (row.operation.as_str(), row.names.as_slice()) {
            ("rollback", [source, ..]) => self.check_allowed(source, Verb::Rollback),
            ("limit", [dataset, ..]) => self.check_allowed(dataset, Verb::Quota),
            ("set", [dataset, property, ..]) => self.check_set(dataset, [property].into_iter()),
            (operation, _) if CAN_TAKE_BACK.contains(&operation) => Ok(()),
            (operation, _) => Err(self.refusal(&format!("take back a {operation}"))),
        }
    }

    /// Whether a row is of a fork of the user's.
    fn is_of_user(&self, row: &DatasetRow) -> bool {
        let source = row.name.parse::<Source>().ok();
        source.and_then(|it| self.owner_of(&it)) == Some(self.by.uid())
    }

    /// What the forks of the user began as, and have been merged at.
    fn bases(&self) -> Result<BTreeSet<String>> {
        match self.daemon.home.perform(&Operation::List, None, None)? {
            Answer::Datasets(rows) => Ok(self.bases_in(&rows)),
            _ => Ok(BTreeSet::new()),
        }
    }

    fn bases_in(&self, rows: &[DatasetRow]) -> BTreeSet<String> {
        let own = rows.iter().filter(|row| self.is_of_user(row));
        own.flat_map(|row| [row.origin.clone(), row.base.clone()]).flatten().collect()
    }

    /// Rows of what the user has in sight; of what the pool made for forks, what is for the user's.
    fn rows_in_sight(&self, rows: Vec<DatasetRow>) -> Vec<DatasetRow> {
        let own = self.bases_in(&rows);
        let is_seen = |row: &DatasetRow| match row.internal {
            true => own.contains(&row.name) || self.is_of_user(row),
            false => {
                row.name.parse::<Source>().is_ok_and(|source| self.sees(&source).unwrap_or(false))
            }
        };
        rows.into_iter().filter(is_seen).collect()
    }
}

/// What a verb stands for, before the name of a dataset.
fn deed(verb: Verb) -> &'static str {
    match verb {
        Verb::Destroy => "destroy snapshots of",
        Verb::Quota => "see and set what owners may use of",
        Verb::Rollback => "roll back the whole of",
        Verb::Send => "send snapshots of",
        Verb::Set => "set properties of",
        Verb::Snapshot => "make snapshots of",
    }
}

/// The other pool of a transaction, where its daemon says that it is: a path of a user's is neither
/// looked at nor shown.
fn other_pool(told: &PoolPlace) -> Result<PoolPlace> {
    let missing = || Error::not_found("no daemon beside this one has the transaction's other pool");
    let found = daemons::own_of_id(&told.id).ok_or_else(missing)?;
    Ok(PoolPlace { id: told.id.clone(), path: found.greeting.pool })
}

/// As the pool says it of what is not there.
fn out_of_sight(source: &Source) -> Error {
    marram_store::Error::NoDataset(source.to_string()).into()
}

/// The name of a fork: one in a directory.
fn check_plain(name: &str) -> Result<()> {
    let is_plain = !name.contains('/') && name.parse::<DatasetName>().is_ok();
    let told = || Error::usage(format!("{} is no name of a fork", shell_word(Path::new(name))));
    if is_plain { Ok(()) } else { Err(told()) }
}
