//! The example bytes of `docs/stream.md`, and hostile bytes.

use super::*;
use crate::pointer::Checksum;

/// The examples: `example NAME` lines followed by lines of hexadecimal bytes.
const DOCUMENT: &str = include_str!("../../../../docs/stream.md");

fn example(name: &str) -> Vec<u8> {
    let start = format!("example {name}\n");
    let from = DOCUMENT.find(&start).expect("the example is there") + start.len();
    let text = &DOCUMENT[from..];
    let text = &text[..text.find("```").expect("the example ends")];
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a hexadecimal byte"))
        .collect()
}

fn begin() -> StreamBegin {
    let identity = |byte: u8| SnapshotIdentity { id: [byte; 16], created_seconds: 1_700_000_000 };
    StreamBegin {
        snapshot: identity(2),
        base: Some(identity(1)),
        dataset_id: [3; 16],
        pool_id: [4; 16],
        root_object: 1,
        referenced_bytes: 8192,
        dataset_name: "root".to_owned(),
        snapshot_name: "b".to_owned(),
        properties: vec![("atime".to_owned(), "off".to_owned())],
        after: None,
    }
}

fn content(stored: &[u8]) -> StreamBlock<'_> {
    let checksum = Checksum { kind: 1, bytes: [0xc5; 32] };
    let bytes = std::array::from_fn(|at| if at < 16 { 0xc5 } else { 0 });
    StreamBlock::Content(StreamContent {
        codec: 0,
        logical_len: 4,
        checksum: Checksum { bytes, ..checksum },
        stored,
    })
}

fn puts() -> Vec<StreamPut<'static>> {
    let put = |offset, value, block| StreamPut { key: Key::new(9, 5, offset), value, block };
    vec![
        put(0, b"v", content(b"data")),
        put(1, b"v", StreamBlock::Earlier(Key::new(9, 5, 0))),
        put(2, b"", StreamBlock::None),
        put(3, b"w", StreamBlock::Kept),
        put(4, b"x", StreamBlock::OfBase(Key::new(8, 5, 0))),
    ]
}

/// A whole stream of all kinds of records.
fn stream() -> Vec<u8> {
    let prefix = begin().prefix();
    let mut chain = RecordChain::new(&prefix);
    let mut out = prefix.to_vec();
    chain.seal(RecordKind::Begin, &begin().encode(), &mut out);
    for put in puts() {
        chain.seal(RecordKind::Put, &put.encode(), &mut out);
    }
    chain.seal(RecordKind::Remove, &Key::new(9, 5, 5).encode(), &mut out);
    let whole = chain.whole();
    let end = StreamEnd { puts: 5, removals: 1, blocks: 1, stored_bytes: 4, whole };
    chain.seal(RecordKind::End, &end.encode(), &mut out);
    out
}

/// Decodes the records of a stream; whatever is wrong with it is an error.
fn decode(bytes: &[u8]) -> Result<usize, FormatError> {
    let short = |left| FormatError::Trailing { what: "stream", offset: bytes.len(), extra: left };
    let (prefix, mut rest) = bytes.split_first_chunk::<16>().ok_or_else(|| short(0))?;
    check_stream_prefix(prefix)?;
    let mut chain = RecordChain::new(prefix);
    loop {
        let (head, after) = rest.split_first_chunk().ok_or_else(|| short(rest.len()))?;
        let decoded = RecordHead::decode(head)?;
        let payload = after.get(..decoded.payload_len).ok_or_else(|| short(after.len()))?;
        let after = &after[decoded.payload_len..];
        let (checksum, after) = after.split_first_chunk().ok_or_else(|| short(after.len()))?;
        let whole = chain.whole();
        chain.open(head, payload, *checksum)?;
        rest = after;
        if let StreamRecord::End(end) = StreamRecord::decode(decoded.kind, payload)? {
            assert_eq!(end.whole, whole);
            return if rest.is_empty() { Ok(8) } else { Err(short(rest.len())) };
        }
    }
}

#[test]
fn the_examples_are_what_the_document_says() {
    assert_eq!(example("prefix"), stream_prefix());
    assert_eq!(example("stream"), stream());
    assert_eq!(decode(&stream()), Ok(8));
    let payload = begin().encode();
    let decoded = StreamRecord::decode(RecordKind::Begin, &payload).unwrap();
    assert_eq!(decoded, StreamRecord::Begin(begin()));
    for put in puts() {
        let payload = put.encode();
        assert_eq!(StreamRecord::decode(RecordKind::Put, &payload), Ok(StreamRecord::Put(put)));
    }
}

#[test]
fn a_stream_that_was_cut_or_altered_anywhere_is_refused() {
    let whole = stream();
    for len in 0..whole.len() {
        assert!(decode(&whole[..len]).is_err(), "cut after {len} bytes");
    }
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1 << (at % 8);
        // A greater minor version can be read, if the chain did not begin with it.
        assert!(decode(&altered).is_err(), "byte {at} altered");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(decode(&longer).is_err());
}

#[test]
fn records_in_another_order_or_twice_are_refused() {
    let whole = stream();
    let mut places = vec![16];
    while let Some(head) = whole.get(places[places.len() - 1]..).and_then(|at| at.first_chunk()) {
        let len = RecordHead::decode(head).unwrap().payload_len;
        places.push(places[places.len() - 1] + 32 + len);
    }
    let records: Vec<&[u8]> = places.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
    let join = |records: &[&[u8]]| [&whole[..16], &records.concat()].concat();
    assert_eq!(join(&records), whole);
    for at in 0..records.len() {
        let (mut without, mut twice) = (records.clone(), records.clone());
        without.remove(at);
        twice.insert(at, records[at]);
        assert!(decode(&join(&without)).is_err() && decode(&join(&twice)).is_err(), "{at}");
        if at > 0 {
            let mut turned = records.clone();
            turned.swap(at - 1, at);
            assert!(decode(&join(&turned)).is_err(), "{at}");
        }
    }
}

#[test]
fn records_with_nonsense_are_refused() {
    let refuses = |kind, payload: &[u8]| StreamRecord::decode(kind, payload).is_err();
    let put = StreamPut { key: Key::new(9, 5, 0), value: b"v", block: content(b"data") }.encode();
    for (at, byte) in [(17, 9), (18, 0xff), (21, 6), (22, 9), (23, 1), (25, 0), (29, 5), (29, 0)] {
        let mut altered = put.clone();
        altered[at] = byte;
        assert!(refuses(RecordKind::Put, &altered), "byte {at}");
    }
    let mut late = puts().swap_remove(1).encode();
    late[37] = 7;
    assert!(refuses(RecordKind::Put, &late), "an earlier item with a greater key");
    assert!(refuses(RecordKind::Remove, &[0; 16]) && refuses(RecordKind::End, &[0; 47]));
    for (at, byte) in [(0, 2), (0, 4), (4, 1), (115, 200)] {
        let mut altered = begin().encode();
        altered[at] = byte;
        assert!(refuses(RecordKind::Begin, &altered), "byte {at}");
    }
    let newer = |at: usize| {
        let mut prefix = stream_prefix();
        prefix[at] = 2;
        check_stream_prefix(&prefix)
    };
    assert!(matches!(newer(8), Err(FormatError::Newer { .. })));
    assert!(matches!(newer(12), Err(FormatError::Features { .. })));
    assert_eq!(newer(10), Ok(()), "a greater minor version");
}

/// The rest of [`stream`] behind its fourth item.
fn resumed_stream() -> Vec<u8> {
    let begin = StreamBegin { after: Some(Key::new(9, 5, 3)), ..begin() };
    let prefix = begin.prefix();
    let mut chain = RecordChain::new(&prefix);
    let mut out = prefix.to_vec();
    chain.seal(RecordKind::Begin, &begin.encode(), &mut out);
    chain.seal(RecordKind::Put, &puts()[4].encode(), &mut out);
    chain.seal(RecordKind::Remove, &Key::new(9, 5, 5).encode(), &mut out);
    let whole = chain.whole();
    let end = StreamEnd { puts: 1, removals: 1, whole, ..StreamEnd::default() };
    chain.seal(RecordKind::End, &end.encode(), &mut out);
    out
}

fn token() -> ResumeToken {
    let after = Key::new(9, 5, 3);
    let received = Received { after, puts: 4, removals: 0, blocks: 1, stored_bytes: 4 };
    ResumeToken { snapshot: begin().snapshot, base: begin().base, received }
}

#[test]
fn the_examples_of_a_stream_that_goes_on_are_what_the_document_says() {
    assert_eq!(example("resumed stream"), resumed_stream());
    assert_eq!(decode(&resumed_stream()), Ok(8));
    let begin = StreamBegin { after: Some(Key::new(9, 5, 3)), ..begin() };
    let payload = begin.encode();
    let decoded = StreamRecord::decode(RecordKind::Begin, &payload);
    assert_eq!(decoded, Ok(StreamRecord::Begin(begin)));
    let text: String = example("token").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(token().text(), text);
    assert_eq!(ResumeToken::parse(&format!("{text}\n")), Ok(token()));
    let full = ResumeToken { base: None, ..token() };
    assert_eq!(ResumeToken::parse(&full.text()), Ok(full));
}

#[test]
fn a_token_that_was_cut_altered_or_is_none_is_refused() {
    let text = token().text();
    for len in 0..text.len() {
        assert!(ResumeToken::parse(&text[..len]).is_err(), "cut after {len}");
    }
    for at in 0..text.len() {
        let mut altered = text.clone().into_bytes();
        altered[at] = if altered[at] == b'7' { b'8' } else { b'7' };
        let altered = String::from_utf8(altered).unwrap();
        assert!(ResumeToken::parse(&altered).is_err(), "digit {at}");
    }
    for none in ["", "x", "01", &format!("{text}00"), &text.to_uppercase(), "\u{e9}\u{e9}"] {
        assert!(ResumeToken::parse(none).is_err(), "{none:?}");
    }
    assert!(matches!(ResumeToken::parse("hello"), Err(FormatError::Foreign { .. })));
}
