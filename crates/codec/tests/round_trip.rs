//! Every codec gives back what it was given, knows what is not worth it, and survives any bytes.

use marram_codec::{Compression, compress, compress_with_grain, decompress};
use proptest::prelude::*;

const ALL: [Compression; 10] = [
    Compression::Off,
    Compression::Lz4,
    Compression::Zstd { level: -7 },
    Compression::Zstd { level: 3 },
    Compression::Zstd { level: 19 },
    Compression::Lzo,
    Compression::Gzip { level: 1 },
    Compression::Gzip { level: 6 },
    Compression::Gzip { level: 9 },
    Compression::Zle,
];

/// Bytes without any pattern, the same for the same seed.
fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()[7]
    };
    (0..len).map(step).collect()
}

fn text(len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|n| format!("{n}: the marram grass holds the dune\n").into_bytes());
    lines.take(len).collect()
}

/// Whether it was worth it; if so, checks that the bytes come back.
fn round_trip(how: Compression, input: &[u8]) -> bool {
    let mut stream = vec![7; 3];
    if !compress(how, input, &mut stream) {
        assert!(stream.is_empty(), "{how}: output without worth");
        return false;
    }
    assert!(stream.len() < input.len(), "{how}: no bytes saved");
    let output = decompress(how.id(), &stream, input.len());
    assert!(output.as_deref() == Ok(input), "{how}: other bytes came back");
    true
}

#[test]
fn each_codec_on_zeros_text_and_random_bytes() {
    for how in ALL {
        for len in [8192, 32 << 10, 131_072, 100_001, 1 << 20] {
            let off = how == Compression::Off;
            let zle = how == Compression::Zle;
            assert_eq!(round_trip(how, &vec![0; len]), !off, "{how} zeros {len}");
            assert_eq!(round_trip(how, &text(len)), !off && !zle, "{how} text {len}");
            assert!(!round_trip(how, &random(len, 5)), "{how} random {len}");
        }
    }
}

#[test]
fn small_inputs_are_worth_an_eighth() {
    for how in ALL {
        let any = !matches!(how, Compression::Off);
        assert_eq!(round_trip(how, &[0; 512]), any, "{how}");
        assert!(!round_trip(how, &[0; 4096]), "{how}: one grain stays one");
        assert!(!round_trip(how, &[]), "{how}: nothing");
        assert!(!round_trip(how, b"x"), "{how}: one byte");
        let mut stream = Vec::new();
        let fine = compress_with_grain(how, &[0; 4096], 512, &mut stream);
        assert_eq!(fine, any, "{how}: a finer grain");
    }
}

/// Digits have no repetition for LZ4 but little entropy: the probe must not give them up.
#[test]
fn digits_are_not_taken_for_random() {
    let digits: Vec<u8> = random(131_072, 9).iter().map(|byte| b'0' + byte % 10).collect();
    assert!(round_trip(Compression::Zstd { level: 3 }, &digits));
    assert!(round_trip(Compression::Gzip { level: 6 }, &digits));
}

/// An encoder that gave up in the middle of one block has to begin the next one afresh.
#[test]
fn a_block_given_up_does_not_spoil_the_next() {
    for how in ALL {
        for half in [2000, 10_000, 30_000, 65_000] {
            let mixed = [text(half), random(2 * half, 9)].concat();
            let mut stream = Vec::new();
            compress_with_grain(how, &mixed, half, &mut stream);
            round_trip(how, &[3; 5120]);
            round_trip(how, &text(5120));
        }
    }
}

/// A header of random bytes must not hide the text behind it from the probe.
#[test]
fn one_random_part_does_not_hide_the_rest() {
    let mut input = random(64 << 10, 3);
    input.extend(text(64 << 10));
    assert!(round_trip(Compression::Zstd { level: 3 }, &input));
}

#[test]
fn the_exact_length_is_asked_for() {
    for how in ALL.into_iter().filter(|&how| how != Compression::Off) {
        let input = text(20_000);
        let mut stream = Vec::new();
        let mut zeros = vec![0; 8000];
        zeros.extend(&input[..12_000]);
        let input = if how == Compression::Zle { zeros } else { input };
        assert!(compress(how, &input, &mut stream));
        for wrong in [0, 1, 19_999, 20_001, 30_000] {
            assert!(decompress(how.id(), &stream, wrong).is_err(), "{how} {wrong}");
        }
        assert!(decompress(how.id(), &stream[..stream.len() - 1], 20_000).is_err(), "{how} cut");
        stream.push(0);
        assert!(decompress(how.id(), &stream, 20_000).is_err(), "{how} tail");
    }
    assert_eq!(decompress(0, b"as is", 5).unwrap(), b"as is");
    assert!(decompress(0, b"as is", 4).is_err());
    assert!(decompress(6, b"", 0).is_err());
}

/// Bytes with repetition, as files have them: pieces of random bytes, zeros and copies.
fn file_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = (0u8..3, 0usize..3000, any::<u64>());
    prop::collection::vec(piece, 0..40).prop_map(|pieces| {
        let mut bytes: Vec<u8> = Vec::new();
        for (kind, len, seed) in pieces {
            match kind {
                0 => bytes.extend(random(len, seed)),
                1 => bytes.resize(bytes.len() + len, 0),
                _ => {
                    let start = bytes.len().min(len / 2);
                    let end = (start + len).min(bytes.len());
                    bytes.extend_from_within(start..end);
                }
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn file_like_bytes_come_back(input in file_like(), index in 0..ALL.len()) {
        round_trip(ALL[index], &input);
    }

    #[test]
    fn any_bytes_are_answered(input in prop::collection::vec(any::<u8>(), 0..2000),
                              len in 0usize..20_000) {
        for id in 0..=6 {
            if let Ok(output) = decompress(id, &input, len) {
                prop_assert_eq!(output.len(), len);
            }
        }
    }

    #[test]
    fn damaged_streams_are_answered(index in 1..ALL.len(),
                                    damage in prop::collection::vec(any::<(u16, u8)>(), 1..4)) {
        let how = ALL[index];
        let mut input = text(30_000);
        input.resize(40_000, 0);
        let mut stream = Vec::new();
        prop_assert!(compress(how, &input, &mut stream));
        for (at, byte) in damage {
            let at = usize::from(at) % stream.len();
            stream[at] = byte;
        }
        if let Ok(output) = decompress(how.id(), &stream, input.len()) {
            prop_assert_eq!(output.len(), input.len());
        }
    }
}
