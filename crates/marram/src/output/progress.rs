//! What goes on, as a line on a terminal: it appears after a second, and goes when it is over.
//!
//! Nothing of it is seen where standard error is no terminal, nor with `--json`.

use super::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What is over by then is not worth a line.
const DELAY: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const TICK: Duration = Duration::from_millis(200);
/// The line where nothing is counted.
const PLAIN: &str = "{spinner} {wide_msg} {elapsed}";
/// The line where bytes are counted, of which nobody knows how many there are.
const BYTES: &str = "{spinner} {msg}: {binary_bytes}, {binary_bytes_per_sec}";
/// The line where it is known.
const SHARE: &str = "{spinner} {msg}: [{wide_bar}] {binary_bytes} of {binary_total_bytes}, \
                     {binary_bytes_per_sec}, {eta} left";

/// Something that goes on for as long as this is held.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropped when it is over.
    going_on: Option<mpsc::Sender<()>>,
    appearing: Option<JoinHandle<()>>,
}

impl Progress {
    /// Something begins, in words.
    pub(crate) fn begin(output: &Output, what: impl Into<String>) -> Progress {
        let bar = ProgressBar::hidden().with_message(what.into());
        bar.set_style(style(PLAIN));
        if output.json || !rustix::termios::isatty(rustix::stdio::stderr()) {
            return Progress { bar, going_on: None, appearing: None };
        }
        let (going_on, is_over) = mpsc::channel();
        let shown = bar.clone();
        let appear = move || {
            if is_over.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
            }
        };
        // Without a thread it goes on unseen.
        let appearing = std::thread::Builder::new().name("progress".to_owned()).spawn(appear).ok();
        Progress { bar, going_on: Some(going_on), appearing }
    }

    /// What goes on is this now, in words.
    pub(crate) fn tell(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// So many more bytes have been done.
    pub(crate) fn advance(&self, bytes: u64) {
        if self.bar.position() == 0 && self.bar.length().is_none() {
            self.bar.set_style(style(BYTES));
        }
        self.bar.inc(bytes);
    }

    /// There are so many bytes in all, or about so many.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bar.set_length(bytes);
        self.bar.set_style(style(SHARE));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.going_on.take());
        if let Some(appearing) = self.appearing.take() {
            let _it_only_drew = appearing.join();
        }
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are in order")
}

#[cfg(test)]
mod tests {
    use super::{BYTES, PLAIN, Progress, SHARE, style};
    use crate::output::Output;

    #[test]
    fn the_templates_are_in_order_and_nothing_is_seen_without_a_terminal() {
        for template in [PLAIN, BYTES, SHARE] {
            style(template);
        }
        let progress = Progress::begin(&Output::new("check", true, false), "looking");
        progress.advance(10);
        progress.expect(20);
        assert!(progress.bar.is_hidden() && progress.appearing.is_none());
        assert_eq!((progress.bar.position(), progress.bar.length()), (10, Some(20)));
    }
}
