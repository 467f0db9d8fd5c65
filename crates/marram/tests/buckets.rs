//! A cluster home whose blocks lie in a bucket, as users have it.

use crate::outside::{check, noise};
use crate::seaweed::{SECRET, Seaweed, USER};
use crate::workbench::{Outcome, Workbench, can_mount};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const MARRAM: &str = env!("CARGO_BIN_EXE_marram");

/// Writes keys where the tools of Amazon have them.
fn put_keys(bench: &Workbench, secret: &str) {
    let file = bench.make_folder(".aws").join("credentials");
    let text = format!("[default]\naws_access_key_id={USER}\naws_secret_access_key={secret}\n");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Runs the program with the endpoint in its environment, where only `create` looks for it.
fn create(bench: &Workbench, endpoint: &str, line: &str) -> Outcome {
    let variables =
        [format!("HOME={}", bench.path("").display()), format!("AWS_ENDPOINT_URL={endpoint}")];
    let mut words = vec!["env", &variables[0], &variables[1], MARRAM, "create"];
    words.extend(line.split(' '));
    bench.host(&words)
}

#[test]
fn content_lies_in_a_bucket_and_everything_works() {
    if !can_mount() {
        return;
    }
    let Some(server) = Seaweed::start() else { return };
    let bench = Workbench::new();
    let (mnt, endpoint) = (bench.make_folder("mnt"), server.endpoint());
    put_keys(&bench, SECRET);
    create(&bench, &endpoint, "sqlite:work.db --blocks s3://tests/work").good();
    bench.run("mount sqlite:work.db mnt").good();
    let content = noise(3 << 20, 1);
    fs::write(mnt.join("large"), &content).unwrap();
    bench.run("snapshot mnt@a").good();
    bench.run("fork mnt try").good();
    fs::write(mnt.join(".marram/forks/try/new"), noise(100_000, 2)).unwrap();
    bench.run("merge mnt/.marram/forks/try").good();
    let status = bench.run("status mnt").good().out;
    let place = format!("SQLite with blocks in s3://tests/work at {endpoint}");
    assert!(status.contains(&place), "{status}");
    let space = bench.run("space mnt --json").result();
    assert!(space["allocated_bytes"].as_u64().unwrap() > 3 << 20, "{space}");
    assert!(space["in_database"]["database_bytes"].as_u64().unwrap() < 1 << 20, "{space}");
    bench.run("unmount mnt").good();
    check(&bench);
    assert!(fs::metadata(bench.path("work.db")).unwrap().len() < 1 << 20);
    bench.run("mount sqlite:work.db mnt").good();
    assert_eq!(fs::read(mnt.join("large")).unwrap(), content);
    assert_eq!(fs::read(mnt.join("new")).unwrap(), noise(100_000, 2));
    bench.run("unmount mnt").good();
    let said = bench.log();
    assert!(!said.contains(SECRET), "a secret stands in the log");
    // What is not that of this home, or not to be reached, is refused, and leaves nothing.
    let other = create(&bench, &endpoint, "sqlite:other.db --blocks s3://tests/work");
    other.refused(1, &["is not empty", "prefix"]);
    let elsewhere = create(&bench, "http://192.0.2.1", "sqlite:other.db --blocks s3://tests/b");
    elsewhere.refused(2, &["is encrypted"]);
    put_keys(&bench, "another");
    bench.run("mount sqlite:work.db mnt").refused(1, &["s3://tests/work", "keys are wrong"]);
    bench.run("check sqlite:work.db").refused(1, &["s3://tests/work", "keys are wrong"]);
    fs::remove_file(bench.path(".aws/credentials")).unwrap();
    bench.run("mount sqlite:work.db mnt").refused(2, &["there are no keys for the bucket"]);
    assert!(!bench.path("other.db").exists());
}
