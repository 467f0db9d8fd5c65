//! Whole commands as transactions.

use super::row::{Row, Rows};
use super::{Arguments, Scale, measure_again, with_marram};
use marram_lab::failure::Result;
use marram_lab::inputs::linux_tree;
use marram_lab::process::{command, run};
use marram_lab::subject::{Marram, Subject};
use std::time::Instant;

/// The case of a command that does nothing.
pub(super) const NOTHING: &str = "a command that does nothing";

/// The case of an archive that is unpacked.
pub(super) const UNPACK: &str = "the Linux tree unpacked, and durable";

/// The subjects of that case.
pub(super) const AS_ONE: &str = "marram, tx run";
pub(super) const PLAIN: &str = "marram, plain";

/// `marram tx run -- true`, and `true`.
pub(super) fn nothing(marram: &Marram, scale: &Scale, rows: &mut Rows) -> Result<()> {
    let mut as_one = marram.command(&["tx", "run", "--", "true"]);
    let mut plain = command(&["true"]);
    for (subject, asked) in [(AS_ONE, &mut as_one), (PLAIN, &mut plain)] {
        asked.current_dir(marram.root());
        let row = measure_again(marram, Row::of(NOTHING, subject), scale.duration, || {
            let began = Instant::now();
            run(asked)?;
            Ok(began.elapsed())
        })?;
        rows.add(row);
    }
    Ok(())
}

/// `tar` of the Linux tree on a fresh pool, as a transaction and plainly with a sync at its end.
pub(super) fn unpack(arguments: &Arguments, scale: &Scale, rows: &mut Rows) -> Result<()> {
    let linux = linux_tree(scale.is_quick)?;
    let archive = linux.archive.display().to_string();
    let tar = ["tar", "-xf", &archive];
    for subject in [AS_ONE, PLAIN] {
        with_marram(arguments, scale, |marram| {
            let before = marram.traffic()?;
            let began = Instant::now();
            if subject == AS_ONE {
                let as_one = &[&["tx", "run", "--"], &tar[..]].concat();
                run(marram.command(as_one).current_dir(marram.root()))?;
            } else {
                run(command(&tar).current_dir(marram.root()))?;
                marram.sync()?;
            }
            let times = vec![began.elapsed()];
            rows.add(Row::of(UNPACK, subject).measured(times, before, marram.traffic()?)?);
            Ok(())
        })?;
    }
    Ok(())
}
