//! The libraries behind the codecs, and the memory that they keep between calls.
//!
//! Each thread keeps one workspace: a scratch buffer and the tables of the codecs that it has
//! used. Making them anew costs more than a small block (a zstd context is more than a megabyte).
//! The choice of libraries is argued in `docs/decisions/0003-codec-libraries.md`.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use zstd_safe::{CCtx, DCtx, get_error_name};

/// What a thread keeps for its codecs.
pub(crate) struct Workspace {
    scratch: Vec<u8>,
    lz4: CompressTable,
    zstd_encoder: Option<CCtx<'static>>,
    zstd_decoder: Option<DCtx<'static>>,
    deflate: Option<(u8, Compress)>,
    inflate: Option<Decompress>,
    lzo: Option<Box<lzokay::compress::Dict>>,
}

impl Workspace {
    /// A workspace that holds nothing yet.
    pub(crate) fn new() -> Workspace {
        Workspace {
            scratch: Vec::new(),
            lz4: CompressTable::large(),
            zstd_encoder: None,
            zstd_decoder: None,
            deflate: None,
            inflate: None,
            lzo: None,
        }
    }

    /// The first bytes of what the last encoder wrote.
    pub(crate) fn written(&self, len: usize) -> &[u8] {
        &self.scratch[..len]
    }

    fn reserve_scratch(&mut self, len: usize) {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
    }

    /// LZ4; the length of the stream. The encoder steps faster over what does not compress.
    pub(crate) fn lz4(&mut self, input: &[u8]) -> usize {
        self.reserve_scratch(get_maximum_output_size(input.len()));
        compress_into_with_table(input, &mut self.scratch, &mut self.lz4)
            .expect("the buffer has the size that the encoder asks for")
    }

    /// Zstandard; `None` if the stream is longer than `limit`.
    pub(crate) fn zstd(&mut self, input: &[u8], level: i8, limit: usize) -> Option<usize> {
        self.reserve_scratch(limit);
        let encoder = self.zstd_encoder.get_or_insert_with(CCtx::create);
        let output = &mut self.scratch[..limit];
        encoder.compress(output, input, i32::from(level)).ok()
    }

    /// DEFLATE; `None` if the stream is longer than `limit`.
    ///
    /// An encoder that has not come to the end of its stream is thrown away: after a reset, its
    /// fast level would go on in the block that was open, and write streams that nobody can read.
    pub(crate) fn deflate(&mut self, input: &[u8], level: u8, limit: usize) -> Option<usize> {
        self.reserve_scratch(limit);
        let level = level.clamp(1, 9);
        if self.deflate.as_ref().is_none_or(|(kept, _)| *kept != level) {
            let made = Compress::new(flate2::Compression::new(u32::from(level)), false);
            self.deflate = Some((level, made));
        }
        let (_, encoder) = self.deflate.as_mut().expect("it was made above");
        encoder.reset();
        let output = &mut self.scratch[..limit];
        match encoder.compress(input, output, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(encoder.total_out()).ok(),
            _ => {
                self.deflate = None;
                None
            }
        }
    }

    /// LZO1X; `None` if the stream does not decode to `input` again.
    ///
    /// The encoder is young and has few users, and a wrong stream would be lost data with a good
    /// checksum, so its work is checked on the spot.
    pub(crate) fn lzo(&mut self, input: &[u8], limit: usize) -> Option<usize> {
        let bound = lzokay::compress::compress_worst_size(input.len());
        self.reserve_scratch(bound + input.len());
        let tables = self.lzo.get_or_insert_with(lzokay::compress::Dict::new);
        let (stream, copy) = self.scratch.split_at_mut(bound);
        let len = lzokay::compress::compress_no_alloc(input, stream, tables).ok()?;
        if len > limit {
            return None;
        }
        let copy = &mut copy[..input.len()];
        let decoded = lzokay::decompress::decompress(&stream[..len], copy).ok()?;
        (copy[..decoded] == *input).then_some(len)
    }

    /// Zero-length encoding; `None` if the stream is longer than `limit`.
    pub(crate) fn zle(&mut self, input: &[u8], limit: usize) -> Option<usize> {
        self.reserve_scratch(limit);
        crate::zle::encode(input, &mut self.scratch[..limit])
    }

    /// Decodes a Zstandard frame into `output`; the length that came out.
    pub(crate) fn unzstd(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        let decoder = self.zstd_decoder.get_or_insert_with(DCtx::create);
        let answer = decoder.decompress(output, input);
        answer.map_err(|code| get_error_name(code).to_string())
    }

    /// Decodes a DEFLATE stream into `output`; the length that came out.
    pub(crate) fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        let decoder = self.inflate.get_or_insert_with(|| Decompress::new(false));
        decoder.reset(false);
        let status = decoder
            .decompress(input, output, FlushDecompress::Finish)
            .map_err(|error| error.to_string())?;
        if !matches!(status, Status::StreamEnd) {
            return Err("the stream does not end where it should".to_string());
        }
        if usize::try_from(decoder.total_in()) != Ok(input.len()) {
            return Err("bytes follow the end of the stream".to_string());
        }
        usize::try_from(decoder.total_out()).map_err(|error| error.to_string())
    }
}

/// Decodes an LZ4 block into `output`; the length that came out.
pub(crate) fn unlz4(input: &[u8], output: &mut [u8]) -> Result<usize, String> {
    lz4_flex::block::decompress_into(input, output).map_err(|error| error.to_string())
}

/// Decodes an LZO1X stream into `output`; the length that came out.
pub(crate) fn unlzo(input: &[u8], output: &mut [u8]) -> Result<usize, String> {
    lzokay::decompress::decompress(input, output).map_err(|error| format!("{error:?}"))
}
