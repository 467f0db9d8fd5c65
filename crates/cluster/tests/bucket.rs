//! Blocks in a bucket: the contract of a store on a real service, and what services, networks and
//! people may do.

use crate::bucket_service::{BUCKET, Fate, Service, USER};
use crate::certificates::Root;
use crate::crashes::put;
use crate::directory::folder;
use crate::histories::run_made;
use crate::seaweed::{Seaweed, access, access_with};
use crate::stores::{StillClock, after_all, made_with, options};
use marram_cluster::bucket::{Access, Bucket, Keys};
use marram_cluster::format::{BucketPlace, ObjectName};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify_reached;
use marram_cluster::{Cluster, Database, Objects, marker};
use marram_store::{Error, Key, Result, Store, conformance, kind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that are made at most where each fails.
const TRIES: usize = 7;

fn place_at(endpoint: &str) -> BucketPlace {
    BucketPlace::new(&format!("s3://{BUCKET}/home"), "us-east-1", endpoint).unwrap()
}

fn place(service: &Service) -> BucketPlace {
    place_at(&format!("http://127.0.0.1:{}", service.port()))
}

fn created(service: &Service) -> Bucket {
    Bucket::create(place(service), &[7; 16], access()).unwrap()
}

/// Makes a store of that number in a database, with its blocks in a new part of a bucket.
fn made_in(database: &Arc<dyn Database>, place: BucketPlace, number: u8) {
    let bucket = Bucket::create(place, &[number; 16], access()).unwrap();
    made_with(database, number, Some(Arc::new(bucket)));
}

fn name(first: u8, number: u8) -> ObjectName {
    ObjectName { block: [first; 32], upload: [number; 8] }
}

fn findings(memory: &MemoryDatabase) -> Vec<String> {
    verify_reached(memory, Some(&access())).unwrap().findings
}

#[test]
fn a_store_with_blocks_in_a_bucket_keeps_the_contract() {
    let Some(server) = Seaweed::start() else { return };
    conformance::all(&|| {
        let database: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
        made_in(&database, server.new_place(), 7);
        Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
    });
    operations_are_each_at_one_moment(&server);
    what_is_there_and_what_is_not(&server);
}

fn operations_are_each_at_one_moment(server: &Seaweed) {
    let folder = folder();
    let file = folder.path().join("store");
    let first: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
    made_in(&first, server.new_place(), 7);
    run_made(7000, &[first, Arc::new(SqliteDatabase::open(&file).unwrap())], None).unwrap();
}

fn what_is_there_and_what_is_not(server: &Seaweed) {
    let place = server.new_place();
    let bucket = Bucket::create(place.clone(), &[7; 16], access()).unwrap();
    // More than a service has on one page of a list.
    let objects: Vec<_> = (0..2_u16)
        .flat_map(|high| (0..=255_u8).map(move |low| (high, low)))
        .map(|(high, low)| {
            let upload = [high.to_le_bytes()[0], low, 0, 0, 0, 0, 0, 1];
            (ObjectName { block: [3; 32], upload }, vec![low; 10])
        })
        .collect();
    bucket.write(&objects).unwrap();
    bucket.write(&[(name(4, 1), vec![9; 1 << 20])]).unwrap();
    assert_eq!(bucket.list(3).unwrap().len(), objects.len());
    assert_eq!(bucket.list(5), Ok(Vec::new()));
    assert_eq!(bucket.read(&name(4, 1)), Ok(Some(vec![9; 1 << 20])));
    assert_eq!(bucket.read(&name(4, 2)), Ok(None));
    bucket.remove(&name(4, 1)).unwrap();
    bucket.remove(&name(4, 1)).unwrap();
    assert_eq!(bucket.read(&name(4, 1)), Ok(None));
    assert_eq!(bucket.holder(), Ok(None));
    [b"one", b"two"].iter().for_each(|said| bucket.set_holder(*said).unwrap());
    assert_eq!(bucket.holder(), Ok(Some(b"two".to_vec())));
    let refused = |made: Result<Bucket>| made.map(|_| ()).unwrap_err().to_string();
    let other = refused(Bucket::create(place.clone(), &[8; 16], access()));
    assert!(other.contains("is not empty"), "{other}");
    let other = refused(Bucket::open(place.clone(), &[8; 16], access()));
    assert!(other.contains("another home"), "{other}");
    let wrong = refused(Bucket::open(place.clone(), &[7; 16], access_with("wrong")));
    assert!(wrong.contains("the keys are wrong") && !wrong.contains("Signature="), "{wrong}");
    let none = server.place("s3://nowhere/x");
    let gone = refused(Bucket::open(none.clone(), &[7; 16], access()));
    assert!(gone.contains("the bucket is not there"), "{gone}");
    let gone = refused(Bucket::create(none, &[7; 16], access()));
    assert!(gone.contains("the bucket is not there"), "{gone}");
    bucket.set_holder(b"three").unwrap();
    objects.iter().for_each(|(name, _)| bucket.remove(name).unwrap());
    Bucket::open(place.clone(), &[7; 16], access()).unwrap().discard();
    Bucket::create(place, &[8; 16], access()).unwrap();
}

#[test]
fn what_fails_for_a_while_or_has_lost_its_answer_is_done_again() {
    let service = Service::start();
    // Each request fails in four ways before it goes well.
    let times: Mutex<BTreeMap<String, usize>> = Mutex::default();
    service.plan(move |method, path| {
        let mut times = times.lock();
        let count = times.entry(format!("{method} {path}")).or_default();
        *count += 1;
        match *count % 5 {
            1 => Some(Fate::Refused(503, "SlowDown", "")),
            2 => Some(Fate::Lost),
            3 if method != "DELETE" => Some(Fate::Cut),
            4 => Some(Fate::Refused(500, "InternalError", "")),
            _ => None,
        }
    });
    let bucket = created(&service);
    let objects: Vec<_> = (0..20).map(|it| (name(it, 1), vec![it; 1000])).collect();
    bucket.write(&objects).unwrap();
    for (name, bytes) in &objects {
        assert_eq!(bucket.read(name).unwrap().as_ref(), Some(bytes));
        assert_eq!(bucket.list(name.block[0]), Ok(vec![*name]));
    }
    assert_eq!(service.objects().len(), objects.len() + 1);
    objects.iter().for_each(|(name, _)| bucket.remove(name).unwrap());
    let there: Vec<_> = service.objects().into_iter().collect();
    assert_eq!(there, [("home/marram-blocks".to_owned(), marker(&[7; 16]).into_bytes())]);
}

#[test]
fn long_lists_are_read_whole_and_other_names_are_none() {
    let service = Service::start();
    let bucket = created(&service);
    let names: Vec<_> = (0..20).map(|it| name(3, it)).collect();
    bucket.write(&names.iter().map(|it| (*it, vec![1])).collect::<Vec<_>>()).unwrap();
    service.set("home/03/letter", Some(vec![1]));
    service.set("other", Some(vec![1]));
    assert_eq!(bucket.list(3), Ok(names));
    assert!(service.asked().iter().filter(|it| it.contains("continuation-token")).count() > 5);
    let there = || service.objects().into_keys().filter(|it| !it.starts_with("home/03/"));
    bucket.set_holder(b"one").unwrap();
    service.set("home/marram-blocks", Some(marker(&[8; 16]).into_bytes()));
    bucket.discard();
    let of_another = ["home/marram-blocks", "home/marram-blocks-holder", "other"];
    assert_eq!(there().collect::<Vec<_>>(), of_another, "it is another home's by now");
    service.set("home/marram-blocks", Some(marker(&[7; 16]).into_bytes()));
    let others = service.objects().len() - 2;
    bucket.discard();
    assert_eq!(there().collect::<Vec<_>>(), ["other"]);
    assert_eq!(service.objects().len(), others, "it takes nothing that others may have put");
    for (answer, words) in [
        ("HTTP/1.1 200 so\r\ncontent-length: 2\r\n\r\nno", "is no list"),
        (
            "HTTP/1.1 200 so\r\ncontent-length: 71\r\n\r\n\
             <ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>   ",
            "goes on",
        ),
    ] {
        service.plan(move |_, _| Some(Fate::Answered(answer)));
        let failed = bucket.list(3).unwrap_err().to_string();
        assert!(failed.contains(words) && failed.contains("s3://team/home/03/"), "{failed}");
    }
}

#[test]
fn what_lasts_is_named_with_what_to_do_about_it() {
    let service = Service::start();
    let bucket = created(&service);
    let (file, region) = (name(3, 1), "<Region>eu-west-3</Region>");
    let clock = "<ServerTime>2026-01-01T00:00:00Z</ServerTime>";
    for (status, code, more, words) in [
        (403, "AccessDenied", "", ["s3:PutObject", "AWS_ACCESS_KEY_ID"]),
        (403, "InvalidAccessKeyId", "", ["the keys are wrong", "~/.aws/credentials"]),
        (403, "RequestTimeTooSkewed", clock, ["2026-01-01", "set the clock"]),
        (400, "AuthorizationHeaderMalformed", region, ["eu-west-3", "AWS_REGION=eu-west-3"]),
        (301, "PermanentRedirect", "", ["is elsewhere", "AWS_ENDPOINT_URL"]),
        (400, "ExpiredToken", "", ["session of the keys has ended", "~/.aws/credentials"]),
        (404, "NoSuchBucket", "", ["the bucket is not there", "bring it back"]),
        (418, "Strange", "", ["Strange (418)", "as the test has it"]),
        (503, "SlowDown", "", ["SlowDown", "tried 7 times"]),
    ] {
        service.plan(move |_, _| Some(Fate::Refused(status, code, more)));
        let before = service.asked().len();
        let failed = bucket.write(&[(file, vec![1])]).unwrap_err();
        assert!(matches!(failed, Error::Io(_)), "{failed}");
        let failed = failed.to_string();
        let is_named = words.iter().all(|word| failed.contains(word));
        let key = format!("cannot write s3://team/home/03/{file}");
        assert!(is_named && failed.contains(&key), "{code}: {failed}");
        assert!(!failed.contains("Signature="), "{failed}");
        assert!(service.asked().len() - before <= TRIES, "{code}");
        assert!(bucket.read(&file).is_err(), "{code}: it is not taken for one that is gone");
    }
    service.plan(|_, _| Some(Fate::Answered("SSH-2.0-server\r\n\r\n")));
    let failed = bucket.read(&file).unwrap_err().to_string();
    assert!(failed.contains(&format!("127.0.0.1:{}", service.port())), "{failed}");
    drop(service);
}

#[test]
fn a_full_bucket_is_no_space_and_has_it_back_at_once() {
    let service = Service::start();
    let bucket = created(&service);
    let count = AtomicUsize::new(0);
    service.plan(move |method, _| {
        let is_full = method == "PUT" && count.fetch_add(1, Ordering::Relaxed) > 4;
        is_full.then_some(Fate::Refused(507, "XMinioStorageFull", ""))
    });
    let objects: Vec<_> = (0..20).map(|it| (name(it, 1), vec![it; 1000])).collect();
    assert_eq!(bucket.write(&objects), Err(Error::NoSpace));
    assert_eq!(service.objects().len(), 1, "the marker");
}

#[test]
fn keys_that_have_ended_are_asked_for_again() {
    let service = Service::start();
    created(&service);
    let given = Arc::new(AtomicUsize::new(0));
    let keys = {
        let given = Arc::clone(&given);
        move || {
            let is_first = given.fetch_add(1, Ordering::Relaxed) == 0;
            let id = if is_first { "ENDED" } else { USER };
            Ok(Keys {
                id: id.to_owned(),
                secret: "s".to_owned(),
                token: Some("session".to_owned()),
            })
        }
    };
    let access = Access { keys: Arc::new(keys), ..access() };
    let bucket = Bucket::open(place(&service), &[7; 16], access).unwrap();
    bucket.write(&[(name(3, 1), vec![1])]).unwrap();
    assert_eq!(given.load(Ordering::Relaxed), 2);
    assert!(service.asked().last().unwrap().ends_with(" session"), "{:?}", service.asked());
    // A service that is not there is given up after a while, and one without keys is not asked.
    let none = Access {
        keys: Arc::new(|| Err(Error::Invalid("there are no keys".to_owned()))),
        ..crate::seaweed::access()
    };
    let before = service.asked().len();
    let failed = Bucket::open(place(&service), &[7; 16], none).map(|_| ()).unwrap_err();
    assert_eq!(failed.to_string(), "there are no keys");
    assert_eq!(service.asked().len(), before);
    let nowhere = place_at("http://127.0.0.1:1");
    let failed = Bucket::open(nowhere, &[7; 16], crate::seaweed::access()).map(|_| ());
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("127.0.0.1:1") && failed.contains("tried 7 times"), "{failed}");
}

#[test]
fn a_place_that_is_not_that_of_the_home_is_refused() {
    let service = Service::start();
    let refused = |made: Result<Bucket>, words: &str| {
        let why = made.map(|_| ()).unwrap_err().to_string();
        assert!(why.contains(words) && why.contains("s3://team/home"), "{why}");
    };
    let create = |number| Bucket::create(place(&service), &[number; 16], access());
    let open = |number| Bucket::open(place(&service), &[number; 16], access());
    refused(open(7), "no object marram-blocks");
    service.set("home/letter", Some(vec![1]));
    refused(create(7), "is not empty: it has letter");
    assert_eq!(service.objects().len(), 1, "nothing was written");
    service.set("home/letter", None);
    // Another one comes between the look and the marker.
    let other = marker(&[8; 16]).into_bytes();
    service.set("home/marram-blocks", Some(other.clone()));
    service.plan(|_, path| {
        let page = "HTTP/1.1 200 so\r\ncontent-length: 37\r\n\r\n\
                    <ListBucketResult></ListBucketResult>";
        (path == "/team").then_some(Fate::Answered(page))
    });
    refused(create(7), "another home");
    assert_eq!(service.objects()["home/marram-blocks"], other);
    service.plan(|_, _| None);
    refused(open(7), "another home");
    let bucket = open(8).unwrap();
    assert_eq!(bucket.read(&name(3, 1)), Ok(None));
    // One that goes away while it is open has lost nothing.
    service.set("home/marram-blocks", None);
    let gone = bucket.read(&name(3, 1)).unwrap_err();
    assert!(matches!(gone, Error::Io(_)), "{gone}");
}

/// A store with one block in a bucket, and the name of its object.
fn with_a_block(service: &Service) -> (MemoryDatabase, String) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_in(&database, place(service), 7);
    let cluster = Cluster::open(database, options(1, None, &StillClock::new())).unwrap();
    put(&cluster, "root", 2, 1).unwrap();
    cluster.close().unwrap();
    let mut names = service.objects().into_keys();
    (memory, names.find(|name| !name.contains("marram-blocks")).unwrap())
}

fn content(memory: &MemoryDatabase) -> Result<usize> {
    let options = after_all(2, &StillClock::new());
    let view = Cluster::open(Arc::new(memory.clone()), options)?.open(&"root".parse().unwrap())?;
    let item = view.get(Key::new(2, kind::SECTION, 0))?.unwrap();
    Ok(view.read_block(&item.block.unwrap())?.len())
}

#[test]
fn a_block_that_is_gone_or_changed_in_the_bucket_is_named() {
    let service = Service::start();
    let (memory, key) = with_a_block(&service);
    assert_eq!(content(&memory), Ok(3000));
    assert_eq!(findings(&memory), [""; 0]);
    let whole = service.objects()[&key].clone();
    let name = format!("s3://team/{key}");
    let is_named = |words: &str| {
        let Err(Error::Damaged(damage)) = content(&memory) else { panic!("it was read") };
        assert_eq!(damage.place, name);
        assert!(damage.reason.contains("bring"), "{damage}");
        let found = findings(&memory);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&name) && found[0].contains(words), "{found:?}");
    };
    service.set(&key, None);
    is_named("is gone");
    let mut changed = whole.clone();
    changed[9] ^= 1;
    service.set(&key, Some(changed));
    is_named("another content");
    service.set(&key, Some(whole[..9].to_vec()));
    is_named("another content");
    service.set(&key, Some([&whole[..], &vec![0; 2 << 20]].concat()));
    is_named("another content");
    service.set(&key, Some(whole));
    assert_eq!(content(&memory), Ok(3000), "it was brought back");
}

#[test]
fn a_bucket_that_fails_fails_the_sync_and_what_waits_is_kept() {
    let service = Service::start();
    let (memory, _) = with_a_block(&service);
    let options = after_all(2, &StillClock::new());
    let cluster = Cluster::open(Arc::new(memory.clone()), options).unwrap();
    service.plan(|method, _| (method == "PUT").then_some(Fate::Refused(503, "SlowDown", "")));
    let failed = put(&cluster, "root", 3, 2).unwrap_err();
    assert!(failed.to_string().contains("SlowDown"), "{failed}");
    service.plan(|_, _| None);
    put(&cluster, "root", 4, 3).unwrap();
    cluster.close().unwrap();
    assert_eq!(findings(&memory), [""; 0]);
    // The marker, the holder, and three blocks.
    assert!(service.objects().len() >= 5);
    // A copy of the database takes nothing of it.
    let copy = memory.copy();
    let cluster = Cluster::open(Arc::new(memory), after_all(3, &StillClock::new())).unwrap();
    put(&cluster, "root", 5, 4).unwrap();
    cluster.close().unwrap();
    let opened = Cluster::open(Arc::new(copy), after_all(4, &StillClock::new()));
    let refused = opened.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("s3://team/home/marram-blocks-holder"), "{refused}");
}

#[test]
fn a_service_of_buckets_proves_its_name() {
    let (folder, good, other) = (folder(), Root::new(), Root::new());
    for (name, root) in [("good", &good), ("other", &other)] {
        std::fs::write(folder.path().join(name), root.pem()).unwrap();
    }
    let opened = |port: u16, roots: &str| {
        let access = Access { roots: Some(folder.path().join(roots)), ..access() };
        Bucket::create(place_at(&format!("https://localhost:{port}")), &[7; 16], access)
    };
    let refused = |port, roots, words: &str| {
        let why = opened(port, roots).map(|_| ()).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    };
    let service = Service::start_with(Some(&good.proof(&["localhost"], false)));
    let bucket = opened(service.port(), "good").unwrap();
    let content = vec![5; 1 << 20];
    bucket.write(&[(name(3, 1), content.clone())]).unwrap();
    assert_eq!(bucket.read(&name(3, 1)), Ok(Some(content)));
    refused(service.port(), "other", "no root that is trusted has signed it");
    refused(service.port(), "other", "AWS_CA_BUNDLE=FILE");
    refused(service.port(), "none", "cannot be taken as a file of certificates");
    let service = Service::start_with(Some(&good.proof(&["elsewhere.example"], false)));
    refused(service.port(), "good", "it is for another name");
    let service = Service::start_with(Some(&good.proof(&["localhost"], true)));
    refused(service.port(), "good", "it has expired");
    assert!(service.asked().is_empty(), "nothing was sent");
    let service = Service::start();
    refused(service.port(), "good", "does not speak TLS");
}
