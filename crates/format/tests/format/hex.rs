//! The hex dumps of the golden files and of the specification: a line `length N`, then rows of an
//! offset and up to 16 bytes. Rows that are all zero are left out.

use std::fmt::Write;

/// The dump of some bytes.
pub(crate) fn dump(bytes: &[u8]) -> String {
    let mut text = format!("length {}\n", bytes.len());
    for (row, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(text, "{:04x}:", row * 16).expect("a string takes text");
        for byte in chunk {
            write!(text, " {byte:02x}").expect("a string takes text");
        }
        text.push('\n');
    }
    text
}

/// The bytes of a dump.
pub(crate) fn parse(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let first = lines.next().expect("a dump has a first line");
    let len = first.strip_prefix("length ").expect("the first line is the length");
    let mut bytes = vec![0; len.parse().expect("the length is a number")];
    for line in lines {
        let (offset, row) = line.split_once(':').expect("a row has an offset");
        let offset = usize::from_str_radix(offset, 16).expect("the offset is hexadecimal");
        for (index, digits) in row.split_whitespace().enumerate() {
            bytes[offset + index] = u8::from_str_radix(digits, 16).expect("bytes are hexadecimal");
        }
    }
    bytes
}

#[test]
fn a_dump_is_read_back() {
    let mut bytes = vec![0; 50];
    bytes[3] = 7;
    bytes[49] = 255;
    assert_eq!(parse(&dump(&bytes)), bytes);
}
