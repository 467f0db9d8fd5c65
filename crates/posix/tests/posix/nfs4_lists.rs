//! NFSv4 access control lists: kept, inherited, in step with modes, and obeyed.

use crate::{Bench, USER, name};
use marram_posix::{Nfs4Entry as Entry, Nfs4Inheritance as Inheritance, Nfs4List as List};
use marram_posix::{Nfs4Rights as Rights, Nfs4Who as Who};
use marram_vfs::{
    AccessControl, AccessRules, Action, Caller, Error, FileSystem, Identity, Ino, Kind, NewNode,
    Opened, Opening, Result, SetAttributes, SetTime, StoredAccessLists, Timestamp, XattrMode,
};

const LIST: &[u8] = b"system.nfs4_acl";
const READ: Rights = Rights::READ_DATA;
const WRITE: Rights = Rights(Rights::WRITE_DATA.0 | Rights::APPEND_DATA.0);
const BOTH: Inheritance =
    Inheritance { files: true, directories: true, no_propagate: false, inherit_only: false };

/// Somebody with one group and one supplementary group.
struct Person(u32, u32, u32);

impl Identity for Person {
    fn uid(&self) -> u32 {
        self.0
    }

    fn gid(&self) -> u32 {
        self.1
    }

    fn is_member(&self, gid: u32) -> bool {
        gid == self.1 || gid == self.2
    }
}

const ROOT: Person = Person(0, 0, 0);
const OWNER: Person = Person(1000, 1000, 1000);
const STRANGER: Person = Person(2000, 2000, 2001);

fn bench() -> Bench {
    Bench::with_property("acl", "nfsv4")
}

fn control(bench: &Bench) -> &dyn AccessControl {
    match bench.files.access_rules() {
        AccessRules::Own(control) => control,
        _ => panic!("the file system checks by itself"),
    }
}

fn may(bench: &Bench, who: &Person, action: Action<'_>) -> Result<()> {
    control(bench).authorize(who, action)
}

fn set(bench: &Bench, ino: Ino, entries: &[Entry]) -> Result<()> {
    let list = List { entries: entries.to_vec() };
    bench.files.set_access_list(ino, LIST, &list.encode(), false)
}

fn get(bench: &Bench, ino: Ino) -> List {
    List::decode(&bench.files.xattr(ino, LIST).unwrap()).unwrap()
}

fn chmod(bench: &Bench, ino: Ino, permissions: u32) {
    let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    bench.files.set_attributes(USER, ino, &set).unwrap();
}

fn inherited(entry: Entry) -> Entry {
    Entry { inheritance: BOTH, ..entry }
}

fn read_as(bench: &Bench, who: &Person, ino: Ino) -> Result<Opened> {
    control(bench).authorize_open(who, ino, Opening { read: true, ..Opening::default() })
}

#[test]
fn a_mode_is_a_list_and_is_not_kept_as_one() {
    let bench = bench();
    let ino = bench.file("f");
    assert_eq!(get(&bench, ino), List::from_mode(0o644, false));
    assert!(bench.files.list_xattrs(ino).unwrap().is_empty());
    chmod(&bench, ino, 0o4750);
    assert_eq!(get(&bench, ino), List::from_mode(0o750, false));
    set(&bench, ino, &List::from_mode(0o640, false).entries).unwrap();
    assert_eq!(bench.attributes(ino).permissions, 0o4640);
    assert_eq!(bench.keys(ino.0).len(), 1);
}

#[test]
fn list_and_mode_are_kept_in_step() {
    let mut bench = bench();
    let ino = bench.file("f");
    let entries =
        [Entry::allow(Who::NamedUser(2000), READ | WRITE), Entry::allow(Who::Everyone, READ)];
    set(&bench, ino, &entries).unwrap();
    assert_eq!(bench.attributes(ino).permissions, 0o444);
    bench.crash();
    assert_eq!(get(&bench, ino).entries, entries);
    assert_eq!(bench.files.list_xattrs(ino).unwrap(), [LIST.to_vec()]);
    assert_eq!(read_as(&bench, &STRANGER, ino), Ok(Opened::AsAsked));
    chmod(&bench, ino, 0o600);
    assert_eq!(get(&bench, ino).mode(), 0o600);
    assert_eq!(read_as(&bench, &STRANGER, ino), Err(Error::AccessDenied));
    bench.files.remove_xattr(ino, LIST).unwrap();
    assert_eq!(get(&bench, ino), List::from_mode(0o600, false));
}

#[test]
fn what_a_directory_gives_comes_to_all_below_it() {
    let bench = bench();
    let top = bench.directory(Ino::ROOT, "top");
    let stranger = inherited(Entry::allow(Who::NamedUser(2000), READ | WRITE | Rights::EXECUTE));
    set(&bench, top, &[stranger, inherited(Entry::allow(Who::Owner, READ | WRITE))]).unwrap();
    let node = NewNode::Directory { permissions: 0o777 };
    let below = bench.files.create_masked(USER, top, name("below"), node, 0o022).unwrap().ino;
    let file = NewNode::Node { kind: Kind::Regular, permissions: 0o666, device: 0 };
    let file = bench.files.create_masked(USER, below, name("f"), file, 0o022).unwrap();
    assert_eq!(file.permissions, 0o644, "of group and others nothing is said");
    assert_eq!(read_as(&bench, &STRANGER, file.ino), Ok(Opened::AsAsked));
    let private = bench.files.create_anonymous_masked(USER, below, 0o600, 0).unwrap();
    assert_eq!(read_as(&bench, &STRANGER, private.ino), Err(Error::AccessDenied));
    let list = NewNode::Symlink { target: b"f" };
    let link = bench.files.create(USER, below, name("l"), list).unwrap().ino;
    assert_eq!(bench.files.xattr(link, LIST), Err(Error::NotSupported));
}

#[test]
fn what_is_no_list_is_refused_and_a_file_keeps_no_inheritance() {
    let bench = bench();
    let ino = bench.file("f");
    let invalid = Err(Error::InvalidArgument("access control list"));
    for bad in [&b""[..], b"\0\0\0\x01", b"\xff\xff\xff\xff"] {
        assert_eq!(bench.files.set_access_list(ino, LIST, bad, false), invalid);
    }
    let entry = Entry::allow(Who::NamedUser(1), READ);
    assert_eq!(set(&bench, ino, &vec![entry; 513]), invalid);
    set(&bench, ino, &vec![entry; 512]).unwrap();
    let only = Entry { inheritance: Inheritance { inherit_only: true, ..BOTH }, ..entry };
    set(&bench, ino, &[inherited(entry), only]).unwrap();
    assert_eq!(get(&bench, ino).entries, [entry]);
    let create = bench.files.set_xattr(ino, LIST, &List::default().encode(), XattrMode::Create);
    assert_eq!(create, Err(Error::Exists), "a list is always there");
    let posix = bench.files.xattr(ino, b"system.posix_acl_access");
    assert_eq!(posix, Err(Error::NotSupported));
}

#[test]
fn the_owner_is_not_locked_out_and_root_is_bound_by_nothing() {
    let bench = bench();
    let ino = bench.file("f");
    set(&bench, ino, &[Entry::deny(Who::Everyone, Rights::ALL)]).unwrap();
    let read = |who| read_as(&bench, who, ino);
    assert_eq!((read(&OWNER), read(&ROOT)), (Err(Error::AccessDenied), Ok(Opened::AsAsked)));
    let list = |who| may(&bench, who, Action::WriteXattr { ino, name: LIST });
    assert_eq!((list(&OWNER), list(&STRANGER)), (Ok(()), Err(Error::NotPermitted)));
    let tell = |who| may(&bench, who, Action::ReadAttributes(ino));
    assert_eq!((tell(&OWNER), tell(&STRANGER)), (Ok(()), Err(Error::AccessDenied)));
}

#[test]
fn appending_is_a_right_of_its_own() {
    let bench = bench();
    let ino = bench.file("log");
    set(&bench, ino, &[Entry::allow(Who::Everyone, Rights::APPEND_DATA)]).unwrap();
    let open = |append| {
        let how = Opening { write: true, append, ..Opening::default() };
        control(&bench).authorize_open(&STRANGER, ino, how)
    };
    assert_eq!(open(true), Ok(Opened::AppendOnly));
    assert_eq!(open(false), Err(Error::AccessDenied));
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let cut = control(&bench).authorize_change(&STRANGER, ino, &mut cut.clone());
    assert_eq!(cut, Err(Error::AccessDenied));
}

/// RFC 8881, section 6.2.1.3.2: the object's DELETE, the directory's DELETE_CHILD, the answer.
#[test]
fn deleting_asks_both_lists() {
    let (yes, no, silent) = (Some(true), Some(false), None);
    let add = Entry::allow(Who::Everyone, Rights::WRITE_DATA);
    let cases = [
        (yes, yes, true),
        (yes, no, true),
        (no, yes, true),
        (yes, silent, true),
        (silent, yes, true),
        (no, silent, false),
        (silent, no, false),
        (no, no, false),
        (silent, silent, true),
    ];
    for (object, directory, expected) in cases {
        let bench = bench();
        let parent = bench.directory(Ino::ROOT, "d");
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let ino = bench.files.create(USER, parent, name("f"), node).unwrap().ino;
        let entry = |said: Option<bool>, rights| {
            said.map(|allows| Entry { allows, ..Entry::allow(Who::Everyone, rights) })
        };
        let search = Entry::allow(Who::Everyone, Rights::EXECUTE);
        let on_object: Vec<_> = entry(object, Rights::DELETE).into_iter().collect();
        let on_directory = [search, add].into_iter().chain(entry(directory, Rights::DELETE_CHILD));
        set(&bench, ino, &on_object).unwrap();
        set(&bench, parent, &on_directory.collect::<Vec<_>>()).unwrap();
        let remove = Action::Remove { parent, name: name("f") };
        let removed = may(&bench, &STRANGER, remove);
        assert_eq!(removed.is_ok(), expected, "{object:?} {directory:?}");
        let mode = bench.attributes(parent).permissions;
        chmod(&bench, parent, mode | 0o1000);
        assert_eq!(may(&bench, &STRANGER, remove), Err(Error::NotPermitted), "sticky");
    }
}

#[test]
fn moving_takes_rights_on_both_sides() {
    let bench = bench();
    let (from, to) = (bench.directory(Ino::ROOT, "from"), bench.directory(Ino::ROOT, "to"));
    let sub = bench.directory(from, "sub");
    let all = Entry::allow(Who::Everyone, Rights::ALL);
    let rename = Action::Rename {
        parent: from,
        name: name("sub"),
        new_parent: to,
        new_name: name("sub"),
        exchange: false,
    };
    let moved = |bench: &Bench| may(bench, &STRANGER, rename);
    assert_eq!(moved(&bench), Err(Error::AccessDenied));
    set(&bench, from, &[all]).unwrap();
    assert_eq!(moved(&bench), Err(Error::AccessDenied), "may not add there");
    set(&bench, to, &[Entry::allow(Who::Everyone, Rights::EXECUTE | Rights::WRITE_DATA)]).unwrap();
    assert_eq!(moved(&bench), Err(Error::AccessDenied), "files only");
    set(&bench, to, &[all]).unwrap();
    assert_eq!(moved(&bench), Err(Error::AccessDenied), "its .. changes");
    set(&bench, sub, &[all]).unwrap();
    assert_eq!(moved(&bench), Ok(()));
    assert_eq!(may(&bench, &ROOT, rename), Ok(()));
}

#[test]
fn only_some_may_change_attributes() {
    let bench = bench();
    let ino = bench.file("f");
    let plain = SetAttributes::default();
    let ask = |who: &Person, mut set: SetAttributes| {
        control(&bench).authorize_change(who, ino, &mut set).map(|()| set)
    };
    let mode = SetAttributes { permissions: Some(0o2755), ..plain };
    assert_eq!(ask(&STRANGER, mode), Err(Error::NotPermitted));
    assert_eq!(ask(&OWNER, mode), Ok(mode));
    let elsewhere = Person(1000, 9, 9);
    let stripped = SetAttributes { permissions: Some(0o755), ..plain };
    assert_eq!(ask(&elsewhere, mode), Ok(stripped), "setgid is for members");
    let owner = |uid| SetAttributes { uid: Some(uid), ..plain };
    assert_eq!(ask(&OWNER, owner(2000)), Err(Error::NotPermitted), "none is given away");
    assert_eq!(ask(&ROOT, owner(2000)), Ok(owner(2000)));
    let group = |gid| SetAttributes { gid: Some(gid), ..plain };
    assert!(ask(&OWNER, group(1000)).unwrap().clear_privileges);
    assert_eq!(ask(&OWNER, group(2000)), Err(Error::NotPermitted));
    let at = SetAttributes { modified: Some(SetTime::At(Timestamp::default())), ..plain };
    let now = SetAttributes { modified: Some(SetTime::Now), ..plain };
    assert_eq!(ask(&STRANGER, at), Err(Error::NotPermitted));
    assert_eq!(ask(&STRANGER, now), Err(Error::AccessDenied));
    set(&bench, ino, &[Entry::allow(Who::NamedGroup(2001), WRITE | Rights::WRITE_OWNER)]).unwrap();
    assert_eq!(ask(&STRANGER, now), Ok(now));
    assert_eq!(ask(&STRANGER, at), Err(Error::NotPermitted));
    assert!(ask(&STRANGER, owner(2000)).unwrap().clear_privileges, "taken, without setuid");
    assert_eq!(ask(&STRANGER, owner(3000)), Err(Error::NotPermitted));
    assert_eq!(ask(&STRANGER, mode), Err(Error::NotPermitted));
}

#[test]
fn what_is_used_without_an_open_is_not_reached_without_its_rights() {
    let bench = bench();
    let make = |kind, text| {
        let node = NewNode::Node { kind, permissions: 0o644, device: 0 };
        bench.files.create(USER, Ino::ROOT, name(text), node).unwrap().ino
    };
    let (fifo, socket) = (make(Kind::Fifo, "fifo"), make(Kind::Socket, "socket"));
    let reach = |who, ino| may(&bench, who, Action::Reach(ino));
    for ino in [fifo, socket] {
        assert_eq!(reach(&STRANGER, ino), Err(Error::AccessDenied));
        assert_eq!(reach(&OWNER, ino), Ok(()));
        set(&bench, ino, &[Entry::allow(Who::NamedUser(2000), WRITE)]).unwrap();
    }
    assert_eq!(reach(&STRANGER, socket), Ok(()));
    assert_eq!(reach(&STRANGER, fifo), Err(Error::AccessDenied), "it could be read too");
    assert_eq!(reach(&STRANGER, bench.file("plain")), Ok(()));
}

#[test]
fn links_searches_and_probes() {
    let bench = bench();
    let directory = bench.directory(Ino::ROOT, "d");
    let ino = bench.file("f");
    set(&bench, directory, &[Entry::allow(Who::Everyone, READ | WRITE)]).unwrap();
    let search = |who| may(&bench, who, Action::Search(directory));
    assert_eq!((search(&STRANGER), search(&ROOT)), (Err(Error::AccessDenied), Ok(())));
    assert_eq!(may(&bench, &STRANGER, Action::List(directory)), Ok(()));
    let create = Action::Create { parent: directory, directory: false };
    assert_eq!(may(&bench, &STRANGER, create), Err(Error::AccessDenied), "not without searching");
    set(&bench, directory, &[Entry::allow(Who::Everyone, Rights::ALL)]).unwrap();
    let link = Action::Link { ino, parent: directory };
    assert_eq!(may(&bench, &STRANGER, link), Err(Error::NotPermitted), "he could not write it");
    assert_eq!(may(&bench, &OWNER, link), Ok(()));
    let probe =
        |who, execute| may(&bench, who, Action::Probe { ino, read: true, write: false, execute });
    assert_eq!(probe(&STRANGER, false), Ok(()));
    assert_eq!(probe(&ROOT, true), Err(Error::AccessDenied), "nobody runs it");
    let named = |name| may(&bench, &STRANGER, Action::WriteXattr { ino, name });
    assert_eq!(named(b"user.a"), Err(Error::AccessDenied));
    assert_eq!(may(&bench, &STRANGER, Action::ReadXattr { ino, name: b"user.a" }), Ok(()));
    let caller = Caller { uid: 2000, gid: 2000 };
    let node = NewNode::Directory { permissions: 0o755 };
    bench.files.create_masked(caller, directory, name("sub"), node, 0).unwrap();
}

#[test]
fn lists_of_the_other_kind_come_back_unless_the_mode_was_set() {
    let mut bench = bench();
    let (kept, changed) = (bench.file("kept"), bench.file("changed"));
    let entries = [Entry::allow(Who::NamedUser(2000), READ)];
    for ino in [kept, changed] {
        set(&bench, ino, &entries).unwrap();
    }
    bench.set_property("acl", "posix");
    bench.crash();
    assert_eq!(bench.files.xattr(kept, LIST), Err(Error::NotSupported));
    assert!(bench.files.list_xattrs(kept).unwrap().is_empty());
    chmod(&bench, changed, 0o600);
    bench.set_property("acl", "nfsv4");
    bench.crash();
    assert_eq!(get(&bench, kept).entries, entries);
    assert_eq!(get(&bench, changed), List::from_mode(0o600, false));
}
