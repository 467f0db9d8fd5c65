//! What a linker writes, recorded from its system calls, and made again in an image: how many bytes
//! are stored beside those that it asked for.

use std::collections::HashMap;
use std::process::Command;

/// Sources of the program, and functions of each.
const SOURCES: u64 = 60;
const FUNCTIONS: u64 = 400;
/// The calls that are recorded, and the name of what is linked.
const CALLS: &str = "trace=openat,lseek,read,write,pwrite64,ftruncate,close";
const PROGRAM: &str = "program";

/// A write of the linker: where, and how many bytes.
pub(crate) type Wrote = (u64, usize);

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Compiles a program and has it linked; what the linker wrote to it, in order.
pub(crate) fn recorded() -> Vec<Wrote> {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut objects = Vec::new();
    for which in 0..SOURCES {
        let functions = (0..FUNCTIONS).map(|number| {
            format!("int f{which}_{number}(int a) {{ return a * {number} + {which}; }}\n")
        });
        let text =
            format!("{}int main{which}(void) {{ return 0; }}\n", functions.collect::<String>());
        let main = if which == 0 { text.replace("main0", "main") } else { text };
        let (source, object) = (format!("s{which}.c"), format!("s{which}.o"));
        std::fs::write(at.join(&source), main).unwrap();
        run(Command::new("cc").args(["-c", "-g", &source, "-o", &object]).current_dir(at));
        objects.push(object);
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-s", "0", "-o", "calls", "-e", CALLS, "cc", "-fuse-ld=bfd"]);
    run(strace.args(&objects).args(["-o", PROGRAM]).current_dir(at));
    let wrote = written(&std::fs::read_to_string(at.join("calls")).unwrap());
    let bytes = std::fs::metadata(at.join(PROGRAM)).unwrap().len();
    let end = wrote.iter().map(|(at, len)| at + *len as u64).max();
    assert_eq!(end, Some(bytes), "the record has all of the program");
    wrote
}

/// The writes to the program among recorded calls.
fn written(calls: &str) -> Vec<Wrote> {
    let (mut places, mut wrote): (HashMap<(&str, &str), u64>, Vec<Wrote>) = Default::default();
    let name = format!("\"{PROGRAM}\"");
    for line in calls.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let Some((call, answer)) = call.trim().rsplit_once(" = ") else { continue };
        let Some((verb, words)) = call.split_once('(') else { continue };
        let answer = answer.split(' ').next().unwrap_or_default();
        if verb == "openat" {
            if words.contains(&name) && words.contains("O_CREAT") {
                places.insert((process, answer), 0);
            }
            continue;
        }
        let descriptor = words.split([',', ')']).next().unwrap_or_default();
        let Some(place) = places.get_mut(&(process, descriptor)) else { continue };
        let Ok(count) = answer.parse::<u64>() else { continue };
        match verb {
            "lseek" => *place = count,
            "read" => *place += count,
            "write" => {
                wrote.push((*place, count as usize));
                *place += count;
            }
            "pwrite64" => {
                let at = words.trim_end().trim_end_matches(')').rsplit(", ").next().unwrap();
                wrote.push((at.parse().unwrap(), count as usize));
            }
            "close" => {
                places.remove(&(process, descriptor));
            }
            _ => panic!("a linker that cuts its program is not understood: {line}"),
        }
    }
    wrote
}
