//! A stream of bytes inside a conversation: pieces, each with its length before it (4 bytes,
//! little-endian), and a length of 0 at the end. What follows is a line again.
//!
//! A pipe on the other side may stand still for as long as it likes; a daemon that ends must not
//! wait for it. So the daemon's end looks now and then whether it is to give up.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Longest piece, in bytes.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Writes pieces.
pub(crate) struct ChunkWriter<W: Write>(W);

impl<W: Write> ChunkWriter<W> {
    pub(crate) fn new(to: W) -> ChunkWriter<W> {
        ChunkWriter(to)
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Whatever `to` fails with.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.0.write_all(&0_u32.to_le_bytes())
    }
}

impl<W: Write> Write for ChunkWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let piece = &bytes[..bytes.len().min(CHUNK_BYTES_MAX)];
        if piece.is_empty() {
            return Ok(0);
        }
        let len = u32::try_from(piece.len()).expect("a piece is short");
        self.0.write_all(&len.to_le_bytes())?;
        self.0.write_all(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

/// Reads pieces up to the end.
pub(crate) struct ChunkReader<R: Read> {
    from: R,
    left: usize,
    ended: bool,
}

impl<R: Read> ChunkReader<R> {
    pub(crate) fn new(from: R) -> ChunkReader<R> {
        ChunkReader { from, left: 0, ended: false }
    }
}

impl<R: Read> Read for ChunkReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.ended {
            let mut len = [0; 4];
            self.from.read_exact(&mut len)?;
            self.left = u32::from_le_bytes(len) as usize;
            self.ended = self.left == 0;
            if self.left > CHUNK_BYTES_MAX {
                return Err(Error::new(ErrorKind::InvalidData, "a piece that is too long"));
            }
        }
        if self.ended {
            return Ok(0);
        }
        let wanted = bytes.len().min(self.left);
        match self.from.read(&mut bytes[..wanted])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => {
                self.left -= read;
                Ok(read)
            }
        }
    }
}

/// A socket with a time limit, tried again after each for as long as nobody says that it is over.
pub(crate) struct Patient<'p, S> {
    /// The socket.
    pub(crate) socket: S,
    /// Whether it is over.
    pub(crate) is_over: &'p dyn Fn() -> bool,
}

impl<S> Patient<'_, S> {
    fn try_again(&mut self, mut once: impl FnMut(&mut S) -> Result<usize>) -> Result<usize> {
        loop {
            match once(&mut self.socket) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if (self.is_over)() {
                        return Err(Error::other("the pool is being closed"));
                    }
                }
                other => return other,
            }
        }
    }
}

impl<S: Read> Read for Patient<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.try_again(|socket| socket.read(bytes))
    }
}

impl<S: Write> Write for Patient<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.try_again(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkReader, ChunkWriter, Patient};
    use std::io::{ErrorKind, Read, Result, Write};

    #[test]
    fn what_goes_in_comes_out_and_what_follows_stays() {
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
        let mut bytes = Vec::new();
        let mut writer = ChunkWriter::new(&mut bytes);
        writer.write_all(&content).unwrap();
        writer.write_all(b"x").unwrap();
        writer.finish().unwrap();
        bytes.extend_from_slice(b"line");
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        ChunkReader::new(&mut rest).read_to_end(&mut read).unwrap();
        assert!(read[..content.len()] == content && read.ends_with(b"x"));
        assert_eq!(rest, b"line");
        for len in [0, 3, 5, bytes.len() - 10] {
            let cut = ChunkReader::new(&bytes[..len]).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(cut.kind(), ErrorKind::UnexpectedEof, "cut after {len} bytes");
        }
        let long = ChunkReader::new(&[0xff; 9][..]).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::InvalidData);
    }

    struct Slow(u32);

    impl Read for Slow {
        fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
            self.0 -= 1;
            match self.0 {
                0 => {
                    bytes[0] = 7;
                    Ok(1)
                }
                _ => Err(ErrorKind::WouldBlock.into()),
            }
        }
    }

    #[test]
    fn a_socket_is_waited_for_until_it_is_over() {
        let mut byte = [0; 1];
        let mut patient = Patient { socket: Slow(5), is_over: &|| false };
        assert_eq!((patient.read(&mut byte).unwrap(), byte), (1, [7]));
        let mut hasty = Patient { socket: Slow(5), is_over: &|| true };
        assert!(hasty.read(&mut byte).unwrap_err().to_string().contains("being closed"));
    }
}
