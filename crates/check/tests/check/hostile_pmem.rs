//! Images of a pmem home that no engine has made, judged as the fuzz targets do: checked, opened,
//! used, opened again. Here the changes are random, of a seed.

#[path = "../../../../fuzz/targets/pmem/mod.rs"]
mod pmem;

use crate::fixture::Random;
use pmem::{PAGE, base, judge, mend_checkpoints, mend_header, used_pages};
use xxhash_rust::xxh3::xxh3_64;

/// Puts a word somewhere in a page that is in use: noise, a bit, an address, another word.
fn change(image: &mut [u8], mode: u8, random: &mut Random) {
    let used = used_pages(mode);
    let word = |random: &mut Random| {
        let page = used[random.below(used.len() as u64) as usize];
        page * PAGE + random.below(512) as usize * 8
    };
    let (at, other) = (word(random), word(random));
    let value = match random.below(5) {
        0 => random.next(),
        1 => 1 << random.below(64),
        2 => random.below(260) << 12 | random.below(8),
        3 => u64::from_le_bytes([0xff; 8]) << random.below(64),
        _ => u64::from_le_bytes(image[other..other + 8].try_into().unwrap()),
    };
    image[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn images_with_words_that_make_no_sense_are_refused_or_used() {
    let mut random = Random::new(75);
    for round in 0..1_500 {
        let mode = round as u8 % 4;
        let mut image = base(mode).clone();
        for _ in 0..=random.below(3) {
            change(&mut image, mode, &mut random);
        }
        mend_header(&mut image);
        mend_checkpoints(&mut image);
        judge(image, mode);
    }
}

/// A number that means something to records.
fn number(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.next(),
        1 => random.below(260) << 12,
        2 => 12_288 + random.below(16) * 256,
        3 => u64::MAX << random.below(16),
        4 => random.below(1 << 20) / 8 * 8,
        _ => random.below(200),
    }
}

#[test]
fn records_that_make_no_sense_are_refused_or_carried_out() {
    let mut random = Random::new(76);
    for round in 0..1_500 {
        let mode = round as u8 % 4;
        let mut image = base(mode).clone();
        let mut put = |at: usize, word: u64| image[at..at + 8].copy_from_slice(&word.to_le_bytes());
        if random.below(2) == 0 {
            put(576, random.below(4) | random.below(9) << 8 | (number(&mut random) / 8) << 24);
            put(584, number(&mut random));
        }
        if random.below(2) == 0 {
            let words: Vec<u64> = (0..random.below(4))
                .flat_map(|_| {
                    [number(&mut random) & !(0xffff << 48) | 1 << 48, number(&mut random)]
                })
                .collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            put(4096, 1 | (words.len() as u64) << 16 | xxh3_64(&bytes) << 32);
            (4104..).step_by(8).zip(&words).for_each(|(at, word)| put(at, *word));
        }
        if random.below(3) == 0 {
            let place = if random.below(2) == 0 { 1024 } else { 1536 };
            put(place + 8, number(&mut random));
            put(place + 16, number(&mut random));
            mend_checkpoints(&mut image);
        }
        judge(image, mode);
    }
}
