//! What asks for durability reaches the file system, and does not stop the others.

use crate::fixture::{Mounted, can_mount};
use crate::proxy::Proxy;
use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

#[test]
fn fsync_reaches_the_file_system_and_the_end_makes_all_durable() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    let mut file = File::create_new(mounted.path("f")).unwrap();
    file.write_all(b"x").unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    assert_eq!(proxy.syncs.load(SeqCst), 3);
    drop(file);
    mounted.end();
    assert_eq!(proxy.full_syncs.load(SeqCst), 1);
    assert_eq!(proxy.ends.load(SeqCst), 1);
}

#[test]
fn many_slow_syncs_do_not_stop_other_requests() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |options| options.threads = 2);
    let files: Vec<_> = (0..20)
        .map(|at| {
            let path = mounted.path(&at.to_string());
            fs::write(&path, b"x").unwrap();
            File::open(path).unwrap()
        })
        .collect();
    proxy.sync_ms.store(1500, SeqCst);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| file.sync_all().unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        fs::write(mounted.path("other"), b"x").unwrap();
        assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    });
    assert!(begin.elapsed() < Duration::from_secs(6), "who waits together shares a flush");
    proxy.sync_ms.store(0, SeqCst);
    drop(files);
    mounted.end();
}

#[test]
fn written_back_data_keeps_the_times_that_the_kernel_sets() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(Proxy::new(), |options| options.writeback = true);
    let path = mounted.path("f");
    fs::write(&path, vec![3; 100_000]).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    crate::fixture::drop_caches();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.modified().unwrap(), before);
    assert_eq!(metadata.len(), 100_000);
    assert!(fs::read(&path).unwrap() == vec![3; 100_000]);
    mounted.end();
}
