//! `.marram` in every directory of a real mount: its past.

use crate::permissions::{ANN, BOB, owned, shared, shell};
use crate::workbench::{self, Workbench};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn each_directory_shows_its_past_and_it_follows_snapshots_moves_and_removals() {
    let Some(bench) = workbench::mounted() else { return };
    let read = |path: &str| fs::read_to_string(bench.path(path)).unwrap();
    bench.make_folder("mnt/src/lib");
    fs::write(bench.path("mnt/src/lib/a"), "one\n").unwrap();
    let shelf = bench.path("mnt/src/lib/.marram/snapshots");
    assert_eq!(names(&shelf), Vec::<String>::new());
    assert!(!shelf.join("s").exists(), "the kernel remembers that there is none");
    bench.run("snapshot mnt@s").good();
    assert_eq!(names(&shelf), ["s"], "and hears that there is one");
    assert_eq!(fs::read_to_string(shelf.join("s/a")).unwrap(), "one\n");

    fs::write(bench.path("mnt/src/lib/a"), "two, longer\n").unwrap();
    fs::create_dir(bench.path("mnt/src/new")).unwrap();
    bench.run("snapshot mnt@t").good();
    assert_eq!(names(&bench.path("mnt/src/.marram/snapshots/s")), ["lib"]);
    assert_eq!(names(&bench.path("mnt/src/new/.marram/snapshots")), ["t"]);
    assert_eq!(read("mnt/src/lib/.marram/snapshots/s/a"), "one\n");
    assert_eq!(read("mnt/src/lib/.marram/snapshots/t/a"), "two, longer\n");
    let listed = bench.host(&["find", "mnt", "-name", ".marram"]).good().out;
    assert_eq!(listed, "", "it is not listed");
    let written = fs::write(shelf.join("s/a"), "x").unwrap_err();
    assert_eq!(written.kind(), ErrorKind::ReadOnlyFilesystem);
    let made = fs::create_dir(bench.path("mnt/src/.marram")).unwrap_err();
    assert_eq!(made.kind(), ErrorKind::AlreadyExists);
    assert!(fs::remove_dir(bench.path("mnt/src/.marram")).is_err());
    // The commands know what it is.
    let told = bench.run("diff mnt/src/lib/.marram/snapshots/s mnt/src/lib").good().out;
    assert!(told.contains("M ") && told.contains("/a"), "{told}");

    // The kernel knows all of it by now.
    fs::rename(bench.path("mnt/src/lib"), bench.path("mnt/moved")).unwrap();
    assert_eq!(read("mnt/moved/.marram/snapshots/s/a"), "one\n");
    bench.run("rename mnt@s first").good();
    assert_eq!(names(&bench.path("mnt/moved/.marram/snapshots")), ["first", "t"]);
    assert_eq!(read("mnt/moved/.marram/snapshots/first/a"), "one\n");
    bench.run("destroy snapshot mnt first --yes").good();
    assert_eq!(names(&bench.path("mnt/moved/.marram/snapshots")), ["t"]);
    assert!(!bench.path("mnt/moved/.marram/snapshots/first").exists());
    bench.run("undo mnt").good();
    assert_eq!(read("mnt/moved/.marram/snapshots/first/a"), "one\n");
    let held = fs::File::open(bench.path("mnt/moved/.marram/snapshots")).unwrap();
    fs::remove_dir_all(bench.path("mnt/moved")).unwrap();
    fs::remove_dir(bench.path("mnt/src/new")).unwrap();
    assert!(!bench.path("mnt/moved/.marram").exists());
    drop(held);
    fs::create_dir(bench.path("mnt/moved")).unwrap();
    assert_eq!(names(&bench.path("mnt/moved/.marram/snapshots")), Vec::<String>::new());
    end(&bench);
}

#[test]
fn a_user_sees_in_a_past_what_was_open_and_could_be_reached_then() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/private", ANN, 0o700, None);
    owned(&bench, "mnt/ann/private/work", ANN, 0o755, None);
    owned(&bench, "mnt/ann/private/work/secret", ANN, 0o644, Some("secret\n"));
    owned(&bench, "mnt/ann/open", ANN, 0o755, None);
    owned(&bench, "mnt/ann/open/closed", ANN, 0o600, Some("closed\n"));
    owned(&bench, "mnt/ann/open/told", ANN, 0o644, Some("told\n"));
    bench.run("snapshot mnt@s").good();
    // Since then all of it is open to all.
    fs::rename(bench.path("mnt/ann/private/work"), bench.path("mnt/ann/work")).unwrap();
    for path in ["mnt/ann/private", "mnt/ann/work", "mnt/ann/open/closed"] {
        fs::set_permissions(bench.path(path), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let past = "mnt/ann/work/.marram/snapshots/s";
    let secret = format!("cat {past}/secret");
    assert_eq!(shell(&bench, ANN, &secret).good().out, "secret\n");
    assert_eq!(fs::read_to_string(bench.path(past).join("secret")).unwrap(), "secret\n");
    for line in [secret, format!("ls {past}"), format!("stat {past}/secret")] {
        let refused = shell(&bench, BOB, &line);
        assert!(refused.status != 0 && refused.err.contains("ermission denied"), "{}", refused.err);
    }
    let open = "mnt/ann/open/.marram/snapshots/s";
    assert_eq!(shell(&bench, BOB, &format!("cat {open}/told")).good().out, "told\n");
    assert_ne!(shell(&bench, BOB, &format!("cat {open}/closed")).status, 0);
    assert_eq!(shell(&bench, ANN, &format!("cat {open}/closed")).good().out, "closed\n");
    assert_eq!(shell(&bench, BOB, "ls mnt/ann/open/.marram/snapshots").good().out, "s\n");
    // What is closed now keeps out by itself.
    fs::set_permissions(bench.path("mnt/ann/open"), PermissionsExt::from_mode(0o700)).unwrap();
    assert_ne!(shell(&bench, BOB, &format!("cat {open}/told")).status, 0);
    end(&bench);
}

#[test]
fn where_access_lists_decide_there_is_no_past_below_the_root() {
    let Some(bench) = workbench::mounted() else { return };
    bench.run("set mnt acl=nfsv4").good();
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt").good();
    bench.make_folder("mnt/d");
    bench.run("snapshot mnt@s").good();
    assert!(!bench.path("mnt/d/.marram").exists());
    assert!(bench.path("mnt/.marram/snapshots/s/d").exists());
    fs::create_dir(bench.path("mnt/d/.marram")).unwrap();
    assert_eq!(names(&bench.path("mnt/d")), [".marram"]);
    end(&bench);
}
