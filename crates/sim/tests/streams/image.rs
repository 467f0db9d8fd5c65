//! Streams in files, read where they lie: what they show is what was sent.

use super::*;
use marram_pool::{ReadAt, StreamFile, StreamImage};
use std::sync::Mutex;

/// A file that others write to.
#[derive(Clone)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl ReadAt for Shown {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let content = self.0.lock().unwrap();
        let rest = content.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        // As a file may: less than was asked for.
        let len = bytes.len().min(rest.len()).min(1000);
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

fn file(content: &[u8]) -> Shown {
    Shown(Arc::new(Mutex::new(content.to_vec())))
}

fn open_all(streams: &[&[u8]]) -> Result<StreamImage, Error> {
    let name = |at: usize| format!("stream {at}");
    let files = streams.iter().enumerate();
    let files = files.map(|(at, bytes)| StreamFile { name: name(at), file: Box::new(file(bytes)) });
    StreamImage::open(files.collect(), &mut |_| {})
}

type Contents = BTreeMap<Key, (Vec<u8>, Vec<u8>)>;

fn contents(view: &dyn View) -> Contents {
    let mut found = Vec::new();
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        found.push((key, item.clone()));
        true
    })
    .unwrap();
    let content = |item: &Item| match &item.block {
        Some(block) => view.read_block(block).unwrap().to_vec(),
        None => Vec::new(),
    };
    found.iter().map(|(key, item)| (*key, (item.value.to_vec(), content(item)))).collect()
}

#[test]
fn a_stream_and_those_that_go_on_from_it_show_what_was_sent() {
    for seed in 0..4 {
        let mut random = Random::new(100 + seed);
        let (_, from) = pool(1, &[("compression", "zstd"), ("recordsize", "8K")]);
        changes(&mut random, &from, 200);
        from.snapshot(&"root".parse().unwrap(), "s0").unwrap();
        let mut streams = vec![send(&from, "root@s0", None)];
        for round in 1..6 {
            let count = [0, 3, 40, 200][random.below(4) as usize];
            changes(&mut random, &from, count);
            from.snapshot(&"root".parse().unwrap(), &format!("s{round}")).unwrap();
            let base = format!("root@s{}", round - 1);
            streams.push(send(&from, &format!("root@s{round}"), Some(&base)));
        }
        for count in 1..=streams.len() {
            let on_top: Vec<&[u8]> = streams[..count].iter().map(Vec::as_slice).collect();
            let image = open_all(&on_top).unwrap();
            let sent = read(&from, &format!("root@s{}", count - 1)).items;
            assert_eq!(contents(&image), sent, "seed {seed}, {count} streams");
            assert_eq!(image.items(), sent.len());
            for (key, (value, _)) in &sent {
                assert_eq!(image.get(*key).unwrap().unwrap().value, *value);
                let last = image.last(Key::MIN, *key).unwrap().unwrap();
                assert_eq!(last.0, *key);
            }
            assert!(image.get(Key::new(5000, 1, 1)).unwrap().is_none());
            assert!(image.last(Key::MIN, Key::MIN).unwrap().is_none());
            assert_eq!(image.properties().0["recordsize"], "8192");
            assert!(!image.writable() && image.apply(Batch::new()).is_err());
        }
    }
}

#[test]
fn streams_that_are_not_whole_or_do_not_fit_are_refused() {
    let (from, full, increment) = prepared();
    changes(&mut Random::new(1), &from, 30);
    from.snapshot(&"root".parse().unwrap(), "c").unwrap();
    let later = send(&from, "root@c", Some("root@b"));
    assert!(open_all(&[&full, &increment, &later]).is_ok());
    let refuses = |streams: &[&[u8]], words: &str| match open_all(streams) {
        Ok(_) => panic!("{words:?} is no reason any more"),
        Err(error) => assert!(error.to_string().contains(words), "{words:?}: {error}"),
    };
    refuses(&[], "no stream");
    refuses(&[&increment], "name the full stream first");
    refuses(&[&full, &full], "stream 1: it is a full stream");
    refuses(&[&full, &later], "stream 1: it does not go on from root@a");
    refuses(&[&full, &increment, &increment], "stream 2: it does not go on from root@b");
    refuses(&[&full[..full.len() - 1]], "stream 0: it is cut");
    refuses(&[&full, &increment[..9]], "stream 1: it is cut");
    for at in (0..full.len()).step_by(full.len() / 40) {
        let mut altered = full.clone();
        altered[at] ^= 0x10;
        assert!(open_all(&[&altered]).is_err(), "byte {at}");
    }
}

#[test]
fn a_file_that_is_damaged_while_it_is_shown_gives_no_wrong_content() {
    let (from, full, _) = prepared();
    let sent = read(&from, "root@a").items;
    let shown = file(&full);
    let files = vec![StreamFile { name: "it".to_owned(), file: Box::new(shown.clone()) }];
    let image = StreamImage::open(files, &mut |_| {}).unwrap();
    let whole = |image: &StreamImage| -> marram_store::Result<Contents> {
        let mut found = Contents::new();
        for key in sent.keys() {
            let item = image.get(*key)?.unwrap();
            let content = item.block.as_ref().map(|block| image.read_block(block)).transpose()?;
            let content = content.map_or(Vec::new(), |content| content.to_vec());
            found.insert(*key, (item.value.to_vec(), content));
        }
        Ok(found)
    };
    assert_eq!(whole(&image).unwrap(), sent);
    let places = boundaries(&full);
    let mut hit = 0;
    // Not the first record, nor the last one: nothing is asked of those later.
    let records = places[2]..places[places.len() - 2] - 16;
    for at in records.step_by(full.len() / 50) {
        let right = full[at];
        shown.0.lock().unwrap()[at] = right ^ 1;
        match whole(&image) {
            Err(marram_store::Error::Damaged(damage)) => {
                assert!(damage.place.ends_with("of it"), "{damage}");
                hit += 1;
            }
            other => panic!("byte {at}: {:?}", other.map(|found| found == sent)),
        }
        shown.0.lock().unwrap()[at] = right;
    }
    assert!(hit > 20, "{hit}");
    assert_eq!(whole(&image).unwrap(), sent);
    shown.0.lock().unwrap().truncate(full.len() / 2);
    assert!(whole(&image).is_err(), "a file that was cut short");
}
