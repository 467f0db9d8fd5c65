//! A file system that checks permissions itself is asked before everything, and the kernel answers
//! nothing in its place.

use crate::fixture::{Mounted, USER, can_mount, shell, shell_ok};
use crate::proxy::Proxy;
use marram_vfs::{
    AccessControl, Action, Error, Identity, Ino, Opened, Opening, Result, SetAttributes,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Refuses the actions on its list, and allows all else.
#[derive(Default)]
pub(crate) struct Rules {
    refused: Mutex<&'static str>,
    /// The callers that asked for what was refused.
    askers: Mutex<Vec<(u32, u32)>>,
    append_only: Mutex<bool>,
}

impl Rules {
    fn refuse(&self, what: &'static str) {
        *self.refused.lock().unwrap() = what;
        self.askers.lock().unwrap().clear();
    }

    fn answer(&self, who: &dyn Identity, what: &str) -> Result<()> {
        if *self.refused.lock().unwrap() != what || who.uid() == 0 {
            return Ok(());
        }
        self.askers.lock().unwrap().push((who.uid(), who.gid()));
        Err(Error::AccessDenied)
    }
}

impl AccessControl for Rules {
    fn authorize(&self, who: &dyn Identity, action: Action<'_>) -> Result<()> {
        let what = match action {
            Action::Search(_) => "search",
            Action::Reach(_) => "reach",
            Action::Probe { .. } => "probe",
            Action::List(_) => "list",
            Action::ReadAttributes(_) => "attributes",
            Action::Create { directory: true, .. } => "directory",
            Action::Create { .. } => "create",
            Action::Link { .. } => "link",
            Action::Remove { .. } => "remove",
            Action::Rename { .. } => "rename",
            Action::ReadXattr { .. } => "read xattr",
            Action::WriteXattr { .. } => "write xattr",
        };
        self.answer(who, what)
    }

    fn authorize_open(&self, who: &dyn Identity, _: Ino, how: Opening) -> Result<Opened> {
        let kinds = [
            (how.execute, "run"),
            (how.append, "append"),
            (how.write, "write"),
            (how.read, "read"),
        ];
        for (_, what) in kinds.iter().filter(|(asked, _)| *asked) {
            self.answer(who, what)?;
        }
        let grows = *self.append_only.lock().unwrap() && how.append;
        Ok(if grows { Opened::AppendOnly } else { Opened::AsAsked })
    }

    fn authorize_change(&self, who: &dyn Identity, _: Ino, _: &mut SetAttributes) -> Result<()> {
        self.answer(who, "change")
    }
}

fn mounted() -> Option<(Mounted, Arc<Proxy>)> {
    if !can_mount() {
        return None;
    }
    let proxy = Proxy::with_rules();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    Some((mounted, proxy))
}

#[test]
fn every_operation_asks_first() {
    let Some((mounted, proxy)) = mounted() else { return };
    let root = mounted.root();
    shell_ok(&root, 0, "mkdir -m 777 d e; cp /bin/true program; echo x > d/f");
    let cases = [
        ("search", "cat @/d/f"),
        ("reach", "cat @/d/f"),
        ("read", "cat @/d/f"),
        ("write", "echo x > @/d/f"),
        ("append", "echo x >> @/d/f"),
        ("run", "@/program"),
        ("list", "ls @/d"),
        ("probe", "test -r @/d/f"),
        ("probe", "env -C @/d true"),
        ("attributes", "stat @/d/f"),
        ("attributes", "ls -l @/d/f"),
        ("create", "touch @/new"),
        ("create", "ln -s f @/new"),
        ("create", "mkfifo @/new"),
        ("directory", "mkdir @/new"),
        ("link", "ln @/d/f @/new"),
        ("remove", "rm -f @/d/f"),
        ("remove", "rmdir @/e"),
        ("rename", "mv @/d/f @/d/g"),
        ("change", "chmod 777 @/d/f"),
        ("change", ": > @/d/f"),
        ("change", "chmod u+s @/program"),
        ("write xattr", "setfattr -n user.b -v x @/d/f"),
        ("write xattr", "setfattr -x user.a @/d/f"),
        ("read xattr", "getfattr -n user.a @/d/f"),
    ];
    shell_ok(&root, 0, "setfattr -n user.a -v x d/f");
    for (what, line) in cases {
        proxy.rules.refuse(what);
        shell(&root, 0, "cat d/f > /dev/null; ls -lR > /dev/null");
        let line = line.replace('@', root.to_str().unwrap());
        let outcome = shell(Path::new("/"), USER, &line);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(!outcome.status.success(), "{what}: {line}");
        assert!(said.is_empty() || said.contains("ermission denied"), "{line}: {said}");
        assert!(proxy.rules.askers.lock().unwrap().contains(&(USER, USER)), "{what}: {line}");
    }
    proxy.rules.refuse("");
    shell_ok(&root, USER, "cat d/f && ./program && ln d/f new && mv d/f d/g && rm new && ls -l d");
    mounted.end();
}

#[test]
fn what_may_only_grow_grows_and_nothing_else() {
    let Some((mounted, proxy)) = mounted() else { return };
    let path = mounted.path("log");
    std::fs::write(&path, b"begun\n").unwrap();
    *proxy.rules.append_only.lock().unwrap() = true;
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"more\n").unwrap();
    rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::empty()).unwrap();
    let refused = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(1));
    };
    refused(log.write_all_at(b"over", 0));
    refused(log.set_len(0));
    refused(rustix::fs::fallocate(&log, allocation(), 0, 4).map_err(Into::into));
    log.write_all_at(b"end\n", 11).unwrap();
    drop(log);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut File::open(&path).unwrap(), &mut said).unwrap();
    assert_eq!(said, "begun\nmore\nend\n");
    mounted.end();
}

fn allocation() -> rustix::fs::FallocateFlags {
    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE
}
