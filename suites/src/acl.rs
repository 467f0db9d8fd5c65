//! Access control lists on a real mount, by the tools that people set them with, and with forbidden
//! attempts of other users.
//!
//! A refusal counts only if it is one of permissions: a line that fails because a program is
//! missing shows nothing.

use super::{Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, output, require, run, shown};
use marram_lab::subject::{self, Making, Subject};
use std::path::Path;
use std::process::Command;

const SIZE_BYTES: u64 = 256 << 20;
/// A user with a supplementary group, and one without.
const MEMBER: (&str, &str) = ("4101", "4200");
const STRANGER: (&str, &str) = ("4102", "");

/// The user of a line, whether it may succeed, and the line.
type Case = (Option<(&'static str, &'static str)>, bool, &'static str);

const fn root(line: &'static str) -> Case {
    (None, true, line)
}

const fn may(who: (&'static str, &'static str), line: &'static str) -> Case {
    (Some(who), true, line)
}

const fn may_not(who: (&'static str, &'static str), line: &'static str) -> Case {
    (Some(who), false, line)
}

/// `getfacl` and `setfacl`: what the kernel checks and the file system keeps in step.
const POSIX: &[Case] = &[
    root("mkdir d && echo text > d/f && chmod 640 d/f && setfacl -m u:4101:rw,g:4300:r d/f"),
    root("test $(stat -c %a d/f) = 660 && getfacl -c d/f | grep -q '^mask::rw-'"),
    may(MEMBER, "cat d/f && echo more >> d/f"),
    may_not(STRANGER, "cat d/f"),
    root("chmod g-w d/f && getfacl -c d/f | grep -q 'user:4101:rw-.*effective:r--'"),
    may(MEMBER, "cat d/f"),
    may_not(MEMBER, "echo more >> d/f"),
    root("setfacl -m g:4200:rwx d && chmod 770 d"),
    may(MEMBER, "touch d/made && rm d/made"),
    may_not(STRANGER, "ls d"),
    root("setfacl -d -m u:4102:rwX,o::- d && setfacl -m u:4102:rx d"),
    root("umask 077; echo x > d/new; mkdir d/sub; mkfifo d/fifo; ln -s f d/link"),
    root("test $(stat -c %a d/new) = 660 && getfacl -c d/new | grep -q '^user:4102:rwx'"),
    root("getfacl -c d/sub | grep -q '^default:user:4102:rwx'"),
    may(STRANGER, "echo more >> d/new && touch d/sub/made"),
    root(
        "getfacl -R d > /tmp/acl.$$ && setfacl -b -R d && setfacl --restore=/tmp/acl.$$ && \
          getfacl -R d | cmp - /tmp/acl.$$ && rm /tmp/acl.$$",
    ),
    root("setfacl -b d/f && test \"$(getfacl -c d/f | wc -l)\" = 4"),
    root(
        "setfacl -k d && ! getfacl -c d | grep -q default && cp -a d/new d/copy && \
          getfacl -c d/copy | grep -q '^user:4102:rwx'",
    ),
    root("chown 4101:4101 d/copy && chmod 2755 d/copy"),
    may(MEMBER, "test $(stat -c %a d/copy) = 2755 && setfacl -m u:4102:r d/copy"),
    root("test $(stat -c %a d/copy) = 2755 && chgrp 4999 d/copy && chmod 2755 d/copy"),
    may(MEMBER, "setfacl -m u:4102:rx d/copy && test $(stat -c %a d/copy) = 755"),
];

/// What a stranger tries where NFSv4 lists hold: only the daemon stops it.
const STRANGERS: &[Case] = &[
    root("mkdir -m 755 open && echo secret > open/f && chmod 600 open/f"),
    root("mkdir -m 700 closed && echo secret > closed/f && chmod 666 closed/f"),
    may_not(STRANGER, "cat closed/f"),
    root("cat closed/f > /dev/null && ls -l closed > /dev/null"),
    may_not(STRANGER, "cat closed/f"),
    may_not(STRANGER, "ls closed"),
    may_not(STRANGER, "stat closed/f"),
    may_not(STRANGER, "env -C closed true"),
    may_not(STRANGER, "test -r open/f || { echo Permission denied >&2; false; }"),
    may_not(STRANGER, "cat open/f"),
    may_not(STRANGER, "echo x >> open/f"),
    may_not(STRANGER, "truncate -s 0 open/f"),
    may_not(STRANGER, "chmod 777 open/f"),
    may_not(STRANGER, "chown 4102 open/f"),
    may_not(STRANGER, "chgrp 4102 open/f"),
    may_not(STRANGER, "touch open/f"),
    may_not(STRANGER, "touch -d 2001-01-01 open/f"),
    may_not(STRANGER, "rm -f open/f"),
    may_not(STRANGER, "mv open/f open/g"),
    may_not(STRANGER, "mv closed/f /tmp/acl-stolen"),
    may_not(STRANGER, "ln open/f open/g"),
    may_not(STRANGER, "ln -s f open/s"),
    may_not(STRANGER, "mkdir open/d"),
    may_not(STRANGER, "mkfifo open/p"),
    may_not(STRANGER, "echo x > open/new"),
    may_not(STRANGER, "rmdir closed"),
    may_not(STRANGER, "setfattr -n user.a -v x open/f"),
    may_not(STRANGER, "getfattr -n user.a open/f"),
    may_not(STRANGER, "chattr +d open/f"),
    may_not(STRANGER, "nfs4_setfacl -a A::4102:rw open/f"),
    may_not(STRANGER, "setfattr -n system.nfs4_acl -v 0x00000000 open/f"),
    root("mkdir -m 1777 tmp && echo mine > tmp/f"),
    may(STRANGER, "echo his > tmp/his && ln tmp/his tmp/link && rm tmp/link"),
    may_not(STRANGER, "rm -f tmp/f"),
    may_not(STRANGER, "mv tmp/his tmp/f"),
    may_not(STRANGER, "ln tmp/f tmp/link"),
    may_not(MEMBER, "rm -f tmp/his"),
    root("cp /bin/true open/program && chmod 744 open/program"),
    may_not(STRANGER, "open/program"),
    may_not(STRANGER, "test -x open/program || { echo Permission denied >&2; false; }"),
    root("chmod 711 open/program"),
    may(STRANGER, "open/program"),
    may_not(STRANGER, "cat open/program"),
    root("mkfifo -m 600 open/fifo && mknod -m 666 open/null c 1 3"),
    may_not(STRANGER, "timeout 5 sh -c 'echo x > open/fifo'"),
    may_not(STRANGER, "echo x > open/null"),
    root("chmod u+s open/program && chown 4101 open/program && chmod 4755 open/program"),
    may(MEMBER, "echo x >> open/program && test $(stat -c %a open/program) = 755"),
];

/// What lists give, take away, and pass on.
const LISTS: &[Case] = &[
    root("mkdir -m 700 l && nfs4_setfacl -a A::4102:x l && echo text > l/f && chmod 600 l/f"),
    may_not(STRANGER, "cat l/f"),
    root("nfs4_setfacl -a A:g:4200:rt l/f && nfs4_setfacl -a A::4102:rwt l/f"),
    may(STRANGER, "cat l/f && echo more >> l/f"),
    root("nfs4_getfacl l/f | grep -q '^A:g:4200:rt' && getfattr -d -m - l/f | grep -q nfs4_acl"),
    root("nfs4_setfacl -a D::4102:w l/f"),
    may(STRANGER, "cat l/f"),
    may_not(STRANGER, "echo more >> l/f"),
    may_not(MEMBER, "cat l/f"),
    root("nfs4_setfacl -a A:g:4200:x l"),
    may(MEMBER, "cat l/f"),
    root("test $(stat -c %a l/f) = 600 && chmod 640 l/f && test $(stat -c %a l/f) = 640"),
    may_not(MEMBER, "echo x >> l/f"),
    root("chmod 600 l/f"),
    may_not(MEMBER, "cat l/f"),
    may_not(STRANGER, "cat l/f"),
    root("echo begun > l/log && nfs4_setfacl -s A::4102:at l/log"),
    may(STRANGER, "echo more >> l/log"),
    may_not(STRANGER, "echo more > l/log"),
    may_not(STRANGER, "dd of=l/log conv=notrunc status=none < /dev/null"),
    may_not(STRANGER, "cat l/log"),
    (Some(STRANGER), false, CLEAR_APPEND),
    root("test \"$(cat l/log)\" = \"$(printf 'begun\\nmore')\""),
    root("mkdir -m 700 give && nfs4_setfacl -a A:fd:4102:rwaxDdt give"),
    root("umask 022; mkdir -p give/a/b && echo x > give/a/b/f && touch give/g"),
    may(STRANGER, "echo more >> give/a/b/f && ls give/a/b && rm give/g && mkdir give/a/own"),
    may_not(MEMBER, "ls give"),
    root("nfs4_getfacl give/a/b | grep -q '^A:fdi:4102:' && test $(stat -c %a give/a/b/f) = 644"),
    root("(umask 0; install -m 600 /dev/null give/private)"),
    may_not(STRANGER, "cat give/private"),
    root("chown 4102 l/f && nfs4_setfacl -s D::EVERYONE@:rwaxtTnNcCoyd l/f"),
    may_not(STRANGER, "cat l/f"),
    may(STRANGER, "nfs4_getfacl l/f && chmod 600 l/f && cat l/f"),
    root("! nfs4_setfacl -s A::nobody:r l/f 2> /dev/null && ! setfacl -m u:1:r l/f 2> /dev/null"),
];

/// A file that may only grow is opened so, and then asked to be written anywhere.
const CLEAR_APPEND: &str = "perl -e 'use Fcntl; sysopen(F, q(l/log), O_WRONLY|O_APPEND) or exit 0;
    fcntl(F, F_SETFL, 0); sysseek(F, 0, 0); defined(syswrite(F, q(over))) and exit 0;
    truncate(F, 0) and exit 0; print STDERR qq($!\\n); exit 1'";

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("setpriv", "util-linux"), ("setfacl", "acl"), ("setfattr", "attr")])?;
    if !rustix::process::geteuid().is_root() {
        return fail("run it as root: it becomes other users");
    }
    let mut subject = setting.subject(SIZE_BYTES)?;
    cases(subject.root(), POSIX)?;
    remounted(&mut *subject, &[may(STRANGER, "cat d/new"), may_not(MEMBER, "cat d/new")])?;
    step(&format!("{} lines about POSIX lists", POSIX.len()));
    drop(subject);
    if setting.marram_only().is_err() {
        return Ok(());
    }
    require(&[("nfs4_setfacl", "nfs4-acl-tools"), ("perl", "perl-base"), ("chattr", "e2fsprogs")])?;
    let mut making = Making::sized(SIZE_BYTES);
    making.create_words = ["-O", "acl=nfsv4"].map(String::from).into();
    let mut subject = subject::make(setting.kind, &setting.folder.join("nfsv4"), &making)?;
    cases(subject.root(), STRANGERS)?;
    step(&format!("{} lines of strangers where NFSv4 lists hold", STRANGERS.len()));
    cases(subject.root(), LISTS)?;
    remounted(&mut *subject, &[may(STRANGER, "cat give/a/b/f"), may_not(MEMBER, "ls give")])?;
    step(&format!("{} lines about NFSv4 lists", LISTS.len()));
    Ok(())
}

/// Lists outlive a mount, and the pool is sound with them.
fn remounted(subject: &mut dyn Subject, then: &[Case]) -> Result<()> {
    subject.unmount()?;
    subject.check()?;
    subject.mount()?;
    cases(subject.root(), then)?;
    subject.unmount()
}

fn cases(root: &Path, cases: &[Case]) -> Result<()> {
    cases.iter().try_for_each(|case| one(root, case))
}

fn one(root: &Path, (who, allowed, line): &Case) -> Result<()> {
    let mut shell = shell(*who);
    shell.args(["sh", "-c", line]).current_dir(root).env("LC_ALL", "C");
    if *allowed {
        return run(&mut shell);
    }
    let refused = output(&mut shell);
    let said = match refused {
        Ok(_) => return fail(format!("this should have been refused: {}", shown(&shell))),
        Err(failure) => failure.to_string(),
    };
    let denied = ["ermission denied", "not permitted"].iter().any(|words| said.contains(words));
    if denied { Ok(()) } else { fail(format!("refused, but not for want of permission: {said}")) }
}

fn shell(who: Option<(&str, &str)>) -> Command {
    let Some((user, groups)) = who else {
        return command(&["env"]);
    };
    let groups = match groups {
        "" => "--clear-groups".to_owned(),
        groups => format!("--groups={groups}"),
    };
    command(&["setpriv", "--reuid", user, "--regid", user, &groups])
}
