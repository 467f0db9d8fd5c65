//! Making files. The kernel makes them by MKNOD and opens them by itself: the maker of a file may
//! write to it whatever its mode says, and no other caller.

use crate::fixture::{USER, mounted, shell, shell_ok};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Runs a Python program as a user without privileges, so that mode bits count.
fn python(directory: &std::path::Path, program: &str) -> String {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(directory.join("program"), program).unwrap();
    shell_ok(directory, USER, "python3 program")
}

#[test]
fn the_maker_of_a_file_may_write_to_it_whatever_its_mode_says() {
    let Some(mounted) = mounted() else { return };
    let written = "
import os
for mode in 0o444, 0o000, 0o200:
    name = f'{mode:03o}'
    file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    os.write(file, b'made')
    os.ftruncate(file, 2)
    os.close(file)
    print(oct(os.stat(name).st_mode), os.stat(name).st_size)
try:
    os.open('444', os.O_CREAT | os.O_WRONLY, 0o644)
except PermissionError:
    print('only once')
";
    let told = python(&mounted.root(), written);
    assert_eq!(told, "0o100444 2\n0o100000 2\n0o100200 2\nonly once\n");
    assert_eq!(fs::read(mounted.path("444")).unwrap(), b"ma");
    mounted.end();
}

#[test]
fn exclusive_truncating_and_plain_creation_do_what_they_say() {
    let Some(mounted) = mounted() else { return };
    let program = "
import os
def tell(name, flags):
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
        print(os.fstat(file).st_size)
        os.close(file)
    except OSError as error:
        print(error.strerror)
tell('new', os.O_EXCL)
with open('old', 'wb') as file: file.write(b'content')
tell('old', os.O_EXCL)
tell('old', 0)
tell('old', os.O_TRUNC)
os.symlink('nowhere', 'dangling')
tell('dangling', os.O_EXCL)
tell('dangling', 0)
tell('.', 0)
print(os.path.exists('nowhere'))
";
    let told = python(&mounted.root(), program);
    assert_eq!(told, "0\nFile exists\n7\n0\nFile exists\n0\nIs a directory\nTrue\n");
    mounted.end();
}

#[test]
fn the_umask_is_taken_off_and_a_directory_passes_on_its_group() {
    let Some(mounted) = mounted() else { return };
    shell_ok(&mounted.root(), 0, "mkdir d && chown 0:7 d && chmod 2777 d");
    shell_ok(&mounted.path("d"), USER, "umask 027; : > f; umask 777; : > g");
    let made = fs::metadata(mounted.path("d/f")).unwrap();
    assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o640, USER, 7));
    assert_eq!(fs::metadata(mounted.path("d/g")).unwrap().mode() & 0o7777, 0);
    mounted.end();
}

#[test]
fn nobody_makes_files_where_they_may_not() {
    let Some(mounted) = mounted() else { return };
    shell_ok(&mounted.root(), 0, "mkdir d; chmod 755 d; : > d/f");
    assert!(!shell(&mounted.path("d"), USER, ": > g").status.success());
    assert!(!shell(&mounted.path("d"), USER, ": > f").status.success());
    assert!(!mounted.path("d/g").exists());
    mounted.end();
}

#[test]
fn many_that_make_one_file_at_once_all_have_it() {
    let Some(mounted) = mounted() else { return };
    for at in 0..50 {
        let path = mounted.path(&at.to_string());
        let inodes: Vec<u64> = std::thread::scope(|scope| {
            let open = || fs::File::create(&path).unwrap().metadata().unwrap().ino();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    }
    mounted.end();
}
