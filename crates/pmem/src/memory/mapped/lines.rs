//! How lines of the processor's cache are written back.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// Bytes of a line.
const LINE: u64 = crate::layout::LINE;

/// The instruction that this processor has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// `clwb`: the line stays in the cache.
    WriteBack,
    /// `clflushopt`.
    Optimised,
    /// `clflush`: each waits for the one before.
    Plain,
}

impl Flush {
    /// The best of this processor; none if this program does not know how.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn of_processor() -> Option<Flush> {
        /// The leaf of `cpuid` with what a processor has, and two bits of it.
        const FEATURES: u32 = 7;
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        let is_known = std::arch::x86_64::__cpuid(0).eax >= FEATURES;
        let found = if is_known { std::arch::x86_64::__cpuid(FEATURES).ebx } else { 0 };
        Some(match (found & CLWB != 0, found & CLFLUSHOPT != 0) {
            (true, _) => Flush::WriteBack,
            (false, true) => Flush::Optimised,
            (false, false) => Flush::Plain,
        })
    }

    /// The best of this processor; none if this program does not know how.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn of_processor() -> Option<Flush> {
        None
    }

    /// Begins to write back `bytes` from the beginning of a line on.
    ///
    /// # Safety
    /// They are mapped.
    pub(super) unsafe fn lines(self, start: *const u8, bytes: u64) {
        for distance in (0..bytes).step_by(LINE as usize) {
            // SAFETY: the line is mapped, and writing it back changes nothing.
            unsafe { self.line(start.add(distance as usize)) }
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn line(self, at: *const u8) {
        // SAFETY: the caller says that the line is mapped, and the processor has the instruction.
        unsafe {
            match self {
                Flush::WriteBack => asm!("clwb [{}]", in(reg) at, options(nostack)),
                Flush::Optimised => asm!("clflushopt [{}]", in(reg) at, options(nostack)),
                Flush::Plain => asm!("clflush [{}]", in(reg) at, options(nostack)),
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn line(self, _at: *const u8) {}

    /// Waits until what was begun is done.
    pub(super) fn wait(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a fence touches no memory.
        unsafe {
            asm!("sfence", options(nostack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Flush;

    #[test]
    fn lines_that_are_written_back_keep_what_they_have() {
        let Some(best) = Flush::of_processor() else { return };
        let bytes: Vec<u8> = (0..=255).collect();
        for flush in [best, Flush::Plain] {
            // SAFETY: the bytes are there.
            unsafe { flush.lines(bytes.as_ptr(), bytes.len() as u64) }
            flush.wait();
        }
        assert!(bytes.iter().copied().eq(0..=255));
    }
}
