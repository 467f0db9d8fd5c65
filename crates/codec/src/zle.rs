//! Zero-length encoding: runs of zeros and runs of literal bytes.
//!
//! The stream is described at [`crate::codec_id::ZLE`].

/// Shortest run of zeros that is worth a run of its own, in bytes.
const ZEROS_MIN: usize = 8;
/// Most bytes of a LEB128 number: 32 bits and the kind.
const NUMBER_BYTES_MAX: usize = 5;

/// Writes the runs of `input` to `output`; the length of the stream, or `None` if it does not fit.
pub(crate) fn encode(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let mut written = 0;
    let mut at = 0;
    while at < input.len() {
        let (literals, zeros) = next_runs(&input[at..]);
        if literals > 0 {
            written = put_number(output, written, literals, false)?;
            let target = output.get_mut(written..written + literals)?;
            target.copy_from_slice(&input[at..at + literals]);
            written += literals;
        }
        if zeros > 0 {
            written = put_number(output, written, zeros, true)?;
        }
        at += literals + zeros;
    }
    Some(written)
}

/// How many bytes come before the next long run of zeros, and how long that is.
fn next_runs(input: &[u8]) -> (usize, usize) {
    let mut at = 0;
    while let Some(step) = input[at..].iter().position(|&byte| byte == 0) {
        let start = at + step;
        let rest = &input[start..];
        let zeros = rest.iter().position(|&byte| byte != 0);
        let zeros = zeros.unwrap_or(rest.len());
        if zeros >= ZEROS_MIN {
            return (start, zeros);
        }
        at = start + zeros;
    }
    (input.len(), 0)
}

fn put_number(output: &mut [u8], at: usize, len: usize, zeros: bool) -> Option<usize> {
    let mut number = (u64::try_from(len).ok()? << 1) | u64::from(zeros);
    let mut at = at;
    loop {
        let more = number >= 0x80;
        let low = u8::try_from(number & 0x7f).expect("seven bits fit a byte");
        *output.get_mut(at)? = low | if more { 0x80 } else { 0 };
        at += 1;
        number >>= 7;
        if !more {
            return Some(at);
        }
    }
}

/// Reads the runs of `input` into `output`; the length that came out.
pub(crate) fn decode(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    let mut input = input;
    let mut written: usize = 0;
    while !input.is_empty() {
        let (number, rest) = take_number(input)?;
        let len = usize::try_from(number >> 1).map_err(|_| "a run is too long")?;
        let end = written.checked_add(len).ok_or("a run is too long")?;
        let target = output.get_mut(written..end).ok_or("too many bytes come out")?;
        if len == 0 {
            return Err("a run is empty");
        }
        if number & 1 == 1 {
            target.fill(0);
            input = rest;
        } else {
            let (literals, after) = rest.split_at_checked(len).ok_or("a run is cut off")?;
            target.copy_from_slice(literals);
            input = after;
        }
        written = end;
    }
    Ok(written)
}

fn take_number(input: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let mut number = 0;
    for (index, byte) in input.iter().enumerate().take(NUMBER_BYTES_MAX) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((number, &input[index + 1..]));
        }
    }
    Err("a number is cut off or too long")
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    /// The bytes are part of the format.
    #[test]
    fn the_stream_is_the_specified_one() {
        let mut input = vec![b'a', 0, b'b'];
        input.extend([0; 300]);
        let mut stream = [0; 64];
        let len = encode(&input, &mut stream).unwrap();
        assert_eq!(stream[..len], [3 << 1, b'a', 0, b'b', 0xd9, 0x04]);
        let mut output = [1; 303];
        assert_eq!(decode(&stream[..len], &mut output), Ok(303));
        assert_eq!(output[..], input[..]);
    }

    #[test]
    fn bad_streams_are_refused() {
        let streams: [&[u8]; 6] = [&[0], &[1], &[0x80], &[6, 1], &[0x83, 0x01], &[0xff; 9]];
        for stream in streams {
            assert!(decode(stream, &mut [0; 64]).is_err(), "{stream:?}");
        }
    }
}
