//! Compress a block if that is worth it, and get it back.
//!
//! Invariant: whatever [`compress`] answers with `true` gives the same bytes back through
//! [`decompress`] with the id of the compression and the length of the input.

use std::cell::RefCell;

use crate::codecs::{Workspace, unlz4, unlzo};
use crate::probe::is_hopeless;
use crate::{CodecError, Compression, GRAIN_BYTES, codec_id, zle};

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace::new());
}

/// Compresses `input` into `output` (which is cleared first), for storage in grains of
/// [`GRAIN_BYTES`]; see [`compress_with_grain`].
pub fn compress(how: Compression, input: &[u8], output: &mut Vec<u8>) -> bool {
    compress_with_grain(how, input, GRAIN_BYTES, output)
}

/// Compresses `input` into `output` (which is cleared first), for storage in grains of
/// `grain_bytes`.
///
/// Answers `false`, with `output` empty, if the block should be stored as it is: at least one
/// grain must be saved after rounding up to grains, or an eighth of a block below one grain.
pub fn compress_with_grain(
    how: Compression,
    input: &[u8],
    grain_bytes: usize,
    output: &mut Vec<u8>,
) -> bool {
    output.clear();
    let limit = worthwhile_bytes_max(input.len(), grain_bytes);
    if limit == 0 || how == Compression::Off {
        return false;
    }
    WORKSPACE.with_borrow_mut(|workspace| match encode(workspace, how, input, limit) {
        Some(len) if len <= limit => {
            output.extend_from_slice(workspace.written(len));
            true
        }
        _ => false,
    })
}

/// The longest stream, in bytes, that is worth storing instead of `len` bytes.
fn worthwhile_bytes_max(len: usize, grain_bytes: usize) -> usize {
    assert!(grain_bytes > 0, "a grain has bytes");
    if len < grain_bytes {
        len - len.div_ceil(8)
    } else {
        (len.div_ceil(grain_bytes) - 1) * grain_bytes
    }
}

/// The length of the stream in the workspace; `None` or more than `limit` if it is not worth it.
fn encode(
    workspace: &mut Workspace,
    how: Compression,
    input: &[u8],
    limit: usize,
) -> Option<usize> {
    let slow = !matches!(how, Compression::Lz4 | Compression::Zle);
    if slow && is_hopeless(input, |sample| workspace.lz4(sample)) {
        return None;
    }
    match how {
        Compression::Off => None,
        Compression::Lz4 => Some(workspace.lz4(input)),
        Compression::Zstd { level } => workspace.zstd(input, level, limit),
        Compression::Lzo => workspace.lzo(input, limit),
        Compression::Gzip { level } => workspace.deflate(input, level, limit),
        Compression::Zle => workspace.zle(input, limit),
    }
}

/// The `logical_len` bytes that the stream `input` of the codec `codec_id` stands for.
///
/// Hostile input never panics, and never makes this allocate more than `logical_len` bytes and
/// the codec's own tables; the caller bounds `logical_len`.
///
/// # Errors
/// An unknown codec, a stream that is not one of that codec, one that bytes follow, or one of
/// another length.
pub fn decompress(codec_id: u8, input: &[u8], logical_len: usize) -> Result<Vec<u8>, CodecError> {
    let mut output = vec![0; logical_len];
    decompress_into(codec_id, input, &mut output)?;
    Ok(output)
}

/// Like [`decompress`], into a buffer of exactly the logical length; after an error its content
/// means nothing.
///
/// # Errors
/// As for [`decompress`].
pub fn decompress_into(codec_id: u8, input: &[u8], output: &mut [u8]) -> Result<(), CodecError> {
    let codec = codec_name(codec_id).ok_or(CodecError::UnknownCodec { id: codec_id })?;
    let expected_bytes = output.len();
    let answer = decode(codec_id, input, output);
    let actual_bytes =
        answer.map_err(|reason| CodecError::Damaged { codec, len_bytes: input.len(), reason })?;
    if actual_bytes != expected_bytes {
        return Err(CodecError::WrongLength { codec, expected_bytes, actual_bytes });
    }
    Ok(())
}

fn decode(codec_id: u8, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
    match codec_id {
        codec_id::LZ4 => unlz4(input, output),
        codec_id::ZSTD => WORKSPACE.with_borrow_mut(|workspace| workspace.unzstd(input, output)),
        codec_id::LZO => unlzo(input, output),
        codec_id::GZIP => WORKSPACE.with_borrow_mut(|workspace| workspace.inflate(input, output)),
        codec_id::ZLE => zle::decode(input, output).map_err(str::to_string),
        _ => Ok(copy(input, output)),
    }
}

fn copy(input: &[u8], output: &mut [u8]) -> usize {
    if input.len() == output.len() {
        output.copy_from_slice(input);
    }
    input.len()
}

fn codec_name(id: u8) -> Option<&'static str> {
    match id {
        codec_id::OFF => Some("off"),
        codec_id::LZ4 => Some("lz4"),
        codec_id::ZSTD => Some("zstd"),
        codec_id::LZO => Some("lzo"),
        codec_id::GZIP => Some("gzip"),
        codec_id::ZLE => Some("zle"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::worthwhile_bytes_max;

    #[test]
    fn a_grain_must_be_saved() {
        for (len, limit) in [
            (0, 0),
            (1, 0),
            (8, 7),
            (4095, 3583),
            (4096, 0),
            (4097, 4096),
            (8192, 4096),
            (131_072, 126_976),
            (131_000, 126_976),
        ] {
            assert_eq!(worthwhile_bytes_max(len, 4096), limit, "{len}");
        }
    }
}
