//! Setuid and setgid do not survive changes by callers that have no right to them.

use crate::fixture::{Mounted, USER, mounted, shell, shell_ok};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// A file that anyone may write, with both bits.
fn privileged(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, vec![b'x'; 10_000]).unwrap();
    chown(&path, Some(0), Some(0)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
}

fn mode(mounted: &Mounted) -> u32 {
    fs::metadata(mounted.path("f")).unwrap().mode() & 0o7777
}

const CHANGES: [&str; 6] = [
    "printf y >> f",
    "dd if=/dev/zero of=f bs=100 count=1 conv=notrunc 2>&1",
    "truncate -s 5 f",
    ": > f",
    "fallocate -l 20000 f",
    "python3 -c 'import os; f = os.open(\"f\", os.O_RDWR); os.copy_file_range(f, f, 10, 0, 500)'",
];

#[test]
fn an_unprivileged_change_clears_them() {
    let Some(mounted) = mounted() else { return };
    for change in CHANGES {
        privileged(&mounted);
        shell_ok(&mounted.root(), USER, change);
        assert_eq!(mode(&mounted), 0o777, "{change}");
    }
    mounted.end();
}

#[test]
fn setgid_that_is_no_privilege_goes_with_a_strangers_change() {
    let Some(mounted) = mounted() else { return };
    for (who, left) in [(USER, 0o666), (0, 0o2666)] {
        for change in CHANGES {
            privileged(&mounted);
            let permissions = fs::Permissions::from_mode(0o2666);
            fs::set_permissions(mounted.path("f"), permissions).unwrap();
            shell_ok(&mounted.root(), who, change);
            assert_eq!(mode(&mounted), left, "{change} by {who}");
        }
    }
    mounted.end();
}

#[test]
fn a_change_of_owner_to_nobody_clears_them() {
    let Some(mounted) = mounted() else { return };
    let change = "python3 -c 'import os; os.chown(\"f\", -1, -1)'";
    let cases = [
        (0, 0, 0o6777, 0o6777),
        (USER, USER, 0o2666, 0o2666),
        (USER, USER, 0o6777, 0o777),
        (0, USER, 0o6777, 0o6777),
    ];
    for (owner, who, before, after) in cases {
        privileged(&mounted);
        chown(mounted.path("f"), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(mounted.path("f"), fs::Permissions::from_mode(before)).unwrap();
        shell_ok(&mounted.root(), who, change);
        assert_eq!(mode(&mounted), after, "{before:o} of {owner}, changed by {who}");
    }
    mounted.end();
}

#[test]
fn with_write_back_too() {
    if !crate::fixture::can_mount() {
        return;
    }
    let mounted = Mounted::with(crate::fixture::model(), |options| options.writeback = true);
    for change in CHANGES {
        privileged(&mounted);
        shell_ok(&mounted.root(), USER, change);
        assert_eq!(mode(&mounted), 0o777, "{change}");
    }
    mounted.end();
}

#[test]
fn a_change_by_root_keeps_them() {
    let Some(mounted) = mounted() else { return };
    for change in CHANGES {
        privileged(&mounted);
        shell_ok(&mounted.root(), 0, change);
        assert_eq!(mode(&mounted), 0o6777, "{change}");
    }
    // What the kernel then says before the write sounds as a `chown` of nothing does.
    privileged(&mounted);
    let capable = "python3 -c 'import os, struct; os.setxattr(\"f\", \"security.capability\", \
                   struct.pack(\"<5I\", 0x2000001, 1 << 13, 0, 0, 0))'";
    shell_ok(&mounted.root(), 0, capable);
    shell_ok(&mounted.root(), 0, "echo more >> f");
    assert_eq!(mode(&mounted), 0o6777, "a file with capabilities");
    mounted.end();
}

#[test]
fn that_they_are_gone_is_seen_by_one_who_asks_for_the_mode_alone() {
    let Some(mounted) = mounted() else { return };
    let file = mounted.path("f");
    fs::write(&file, vec![1; 8192]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let changes = [
        "printf x > f",
        "dd if=/dev/zero of=f bs=4096 count=1 oflag=direct conv=notrunc status=none",
        "fallocate -l 4096 f",
        "fallocate -p -o 0 -l 4096 f",
    ];
    for change in changes {
        shell_ok(&mounted.root(), 0, "chmod 6777 f; stat -c %a f");
        shell_ok(&mounted.root(), USER, change);
        let told = shell_ok(&mounted.root(), 0, "stat -c %a f");
        assert_eq!(told.trim(), "777", "after {change}");
    }
    mounted.end();
}

#[test]
fn a_new_owner_does_not_inherit_them() {
    let Some(mounted) = mounted() else { return };
    privileged(&mounted);
    shell_ok(&mounted.root(), 0, &format!("chown {USER} f"));
    assert_eq!(mode(&mounted), 0o777);
    fs::create_dir(mounted.path("d")).unwrap();
    fs::set_permissions(mounted.path("d"), fs::Permissions::from_mode(0o2755)).unwrap();
    shell_ok(&mounted.root(), 0, &format!("chown {USER} d"));
    assert_eq!(fs::metadata(mounted.path("d")).unwrap().mode() & 0o7777, 0o2755);
    mounted.end();
}

#[test]
fn an_idmapped_mount_shows_and_stores_its_own_users() {
    let Some(mounted) = mounted() else { return };
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let inside = USER - 1;
    let script = format!(
        r#"
import ctypes, os, struct, subprocess, time
libc = ctypes.CDLL(None, use_errno=True)
sleeper = subprocess.Popen(["unshare", "-U", "sleep", "10"])
try:
    mine = os.readlink("/proc/self/ns/user")
    while os.readlink("/proc/%d/ns/user" % sleeper.pid) == mine and sleeper.poll() is None:
        time.sleep(0.01)
    for table in ("uid_map", "gid_map"):
        open("/proc/%d/%s" % (sleeper.pid, table), "w").write("0 0 1\n{inside} {USER} 1\n")
    space = os.open("/proc/%d/ns/user" % sleeper.pid, os.O_RDONLY)
except OSError as error:
    print("skipped:", error)
    raise SystemExit
finally:
    sleeper.kill()
tree = libc.syscall(428, -100, b".", 1 | 0x80000)
assert tree >= 0, os.strerror(ctypes.get_errno())
changed = libc.syscall(442, tree, b"", 0x1000, struct.pack("QQQQ", 0x00100000, 0, 0, space), 32)
assert changed == 0, os.strerror(ctypes.get_errno())
os.fchdir(tree)
os.setgid({USER})
os.setuid({USER})
os.close(os.open("made", os.O_CREAT | os.O_WRONLY))
os.mkdir("directory")
print(os.stat("made").st_uid, os.stat("directory").st_gid)
"#
    );
    let told = shell_ok(&mounted.root(), 0, &format!("python3 - <<'END'\n{script}\nEND"));
    if told.starts_with("skipped") {
        eprintln!("{told}");
        return mounted.end();
    }
    assert_eq!(told.trim(), format!("{USER} {USER}"));
    assert_eq!(fs::metadata(mounted.path("made")).unwrap().uid(), inside);
    assert_eq!(fs::metadata(mounted.path("directory")).unwrap().gid(), inside);
    mounted.end();
}

#[test]
fn a_user_namespace_gives_nobody_power_over_a_mount() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    fs::set_permissions(mounted.path("f"), fs::Permissions::from_mode(0o666)).unwrap();
    shell_ok(
        &mounted.root(),
        0,
        "python3 -c 'import os; os.setxattr(\"f\", \"trusted.t\", b\"\")'",
    );
    let script = r#"
import errno, fcntl, os
print(sorted(os.listxattr("f")))
shut_down, trim, set_label = (0x8004587d, 4), (0xc0185879, 24), (0x41009432, 256)
for command, argument_bytes in (shut_down, trim, set_label):
    try:
        fcntl.ioctl(os.open("f", os.O_RDWR), command, bytearray(argument_bytes))
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;
    let run = |how: &str| format!("{how} python3 - <<'END'\n{script}\nEND");
    if !shell(&mounted.root(), USER, "unshare -r true").status.success() {
        eprintln!("skipped: users cannot make user namespaces here");
        return mounted.end();
    }
    let told = shell_ok(&mounted.root(), USER, &run("unshare -r"));
    assert_eq!(told.split_whitespace().collect::<Vec<_>>(), ["[]", "EPERM", "EPERM", "EPERM"]);
    let told = shell_ok(&mounted.root(), 0, &run("unshare -r"));
    assert_eq!(told.split_whitespace().collect::<Vec<_>>(), ["[]", "EPERM", "EPERM", "EPERM"]);
    let told = shell_ok(&mounted.root(), 0, &run(""));
    assert!(told.contains("trusted.t") && !told.contains("EPERM"), "{told}");
    mounted.end();
}

/// OverlayFS acts in the name of its mounter, root, for any process.
#[test]
fn a_strangers_change_through_an_overlay_clears_them() {
    let Some(mounted) = mounted() else { return };
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(mounted.path(name)).unwrap();
    }
    let root = mounted.root();
    let layer = |name: &str| format!("{name}dir={}", mounted.path(name).display());
    let merged = tempfile::tempdir().unwrap();
    let options = ["lower", "upper", "work"].map(layer).join(",");
    let mount = format!("mount -t overlay overlay -o {options} {}", merged.path().display());
    if !shell(&root, 0, &mount).status.success() {
        eprintln!("skipped: needs OverlayFS");
        return mounted.end();
    }
    fs::set_permissions(merged.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let as_root = |line: &str| shell_ok(merged.path(), 0, line);
    for change in CHANGES {
        as_root("rm -f f; cp /usr/bin/id f; chmod 6777 f; stat -c %a f; ./f -u");
        shell_ok(merged.path(), USER, change);
        assert_eq!(as_root("stat -c %a f").trim(), "777", "{change}");
    }
    // What has lost its setuid in the listing must have lost it when it is run too.
    as_root("rm -f f; cp /usr/bin/id f; chmod 6777 f; ./f -u");
    let told = shell_ok(merged.path(), USER, "./f -u; printf x >> f; ./f -u");
    assert_eq!(told, format!("0\n{USER}\n"));
    for change in CHANGES {
        as_root("rm -f f; cp /usr/bin/id f; chmod 6777 f");
        as_root(change);
        assert_eq!(as_root("stat -c %a f").trim(), "6777", "{change} by root");
    }
    as_root(&format!("cd /; umount {}", merged.path().display()));
    mounted.end();
}

#[test]
fn what_a_stranger_has_changed_gives_who_runs_it_nothing() {
    let Some(mounted) = mounted() else { return };
    shell_ok(&mounted.root(), 0, "cp /usr/bin/id f; chmod 6777 f; stat f");
    let told = shell_ok(&mounted.root(), USER, "./f -u; printf x >> f; ./f -u");
    assert_eq!(told, format!("0\n{USER}\n"));
    mounted.end();
}
