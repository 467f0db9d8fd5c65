//! Ext2 and ext3 images: a source tree is unpacked and removed, a mail server works, and the five
//! phases of the Andrew benchmark.

use super::super::line::{Ending, Line};
use super::super::stage::Stage;
use super::postmark;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::inputs::linux_tree;
use marram_lab::process::{command, require, run};
use std::fmt::Write;
use std::path::Path;

/// Sources of the Andrew benchmark, each in a folder of its own, and functions of each.
const SOURCES: usize = 60;
const QUICK_SOURCES: usize = 6;
const FUNCTIONS: usize = 40;
/// How often the tree is copied.
const COPIES: usize = 8;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    require(&[("postmark", "postmark"), ("gcc", "build-essential")])?;
    let linux = linux_tree(true)?;
    std::io::copy(&mut std::fs::File::open(&linux.archive)?, &mut std::io::sink())?;
    let place = stage.folder("tree")?;
    stage.settle()?;
    let title = "tar unpacks a part of the Linux tree";
    stage.time(Line::seconds("unpack", title, Ending::Syncfs), || {
        run(command(&["tar", "-xPf"]).arg(&linux.archive).arg("-C").arg(&place))
    })?;
    stage.chill()?;
    stage.time(Line::seconds("remove", "rm -rf of it, cold", Ending::Syncfs), || {
        run(command(&["rm", "-rf"]).arg(&place))
    })?;
    postmark::of_the_thesis(stage)?;
    andrew(stage)
}

/// Folders, copies, attributes, contents, a build.
fn andrew(stage: &mut Stage<'_>) -> Result<()> {
    let sources = if stage.is_quick() { QUICK_SOURCES } else { SOURCES };
    let origin = stage.host().join("andrew");
    make_sources(&origin, sources)?;
    let place = stage.folder("andrew")?;
    stage.settle()?;
    let title = format!("Andrew: {COPIES} copies of {sources} sources, find, grep, compile");
    stage.time(Line::seconds("andrew", title, Ending::Syncfs), || {
        for copy in 0..COPIES {
            run(command(&["cp", "-r"]).arg(&origin).arg(place.join(copy.to_string())))?;
        }
        run(command(&["find", ".", "-size", "+1000000k"]).current_dir(&place))?;
        run(command(&["grep", "-rc", "result_0", "."]).current_dir(&place).stdout(quiet()?))?;
        let build = "set -e; for source in */*.c; do gcc -O1 -c $source -o ${source%.c}.o; done; \
                     gcc -shared -o all.so */*.o";
        run(command(&["bash", "-c", build]).current_dir(place.join("0")))
    })?;
    if !place.join("0/all.so").is_file() {
        return fail("the build made nothing");
    }
    run(command(&["rm", "-rf"]).arg(&place))
}

fn quiet() -> Result<std::fs::File> {
    std::fs::File::options().write(true).open("/dev/null").context(|| "no /dev/null")
}

fn make_sources(origin: &Path, count: usize) -> Result<()> {
    for which in 0..count {
        let folder = origin.join(format!("part{which}"));
        std::fs::create_dir_all(&folder)?;
        let mut text = String::new();
        for function in 0..FUNCTIONS {
            writeln!(
                text,
                "int result_{function}_of_{which}(int n)\n{{\n\tint sum = {function};\n\
                 \tfor (int i = 0; i < n; i++)\n\t\tsum = sum * 31 + i % {};\n\treturn sum;\n}}",
                function + 2
            )
            .expect("a string takes all that is written");
        }
        std::fs::write(folder.join("source.c"), text)?;
    }
    Ok(())
}
