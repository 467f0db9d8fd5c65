//! The same program on Marram and on ext4, and its words compared: what each call came to.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, run, text};
use marram_lab::subject::{Kind, Making, Subject, make};

const FLAGS: &str = include_str!("same/flags.py");
const PRIVILEGES: &str = include_str!("same/privileges.py");
const LIMITS: &str = include_str!("same/limits.py");

/// `chattr` and `lsattr`: what flags forbid, what setting them needs, what passes on and what
/// stays.
pub(super) fn flags(setting: &Setting) -> Result<()> {
    let [mut tested, mut known] = pair(setting)?;
    compare_over_remount(&mut tested, &mut known, FLAGS)?;
    if setting.kind != Kind::Ext4 {
        projects(&*tested)?;
    }
    finish(tested, known)
}

/// What is left of setuid, setgid and capabilities after each change by each kind of user.
pub(super) fn privileges(setting: &Setting) -> Result<()> {
    let [tested, known] = pair(setting)?;
    compare(&*tested, &*known, PRIVILEGES, "first")?;
    finish(tested, known)
}

/// Names, links, directories and times at their limits.
pub(super) fn limits(setting: &Setting) -> Result<()> {
    let [mut tested, mut known] = pair(setting)?;
    compare_over_remount(&mut tested, &mut known, LIMITS)?;
    if setting.kind != Kind::Ext4 {
        times_of_all_ages(&mut *tested)?;
    }
    finish(tested, known)
}

/// What is under test, and ext4 beside it.
fn pair(setting: &Setting) -> Result<[Box<dyn Subject>; 2]> {
    let tested = setting.subject(GIB)?;
    let known = make(Kind::Ext4, &setting.folder.join("ext4"), &Making::sized(GIB))?;
    Ok([tested, known])
}

fn finish(mut tested: Box<dyn Subject>, mut known: Box<dyn Subject>) -> Result<()> {
    for subject in [&mut tested, &mut known] {
        subject.unmount()?;
        subject.check()?;
    }
    Ok(())
}

/// Runs both parts of a program, with a remount in between.
fn compare_over_remount(
    tested: &mut Box<dyn Subject>,
    known: &mut Box<dyn Subject>,
    program: &str,
) -> Result<()> {
    compare(&**tested, &**known, program, "first")?;
    tested.remount()?;
    known.remount()?;
    compare(&**tested, &**known, program, "second")
}

/// Runs a program on both; every line of its words must be the same.
fn compare(tested: &dyn Subject, known: &dyn Subject, program: &str, part: &str) -> Result<()> {
    let mut said = Vec::new();
    for subject in [tested, known] {
        let folder = subject.root().join("folder");
        std::fs::create_dir_all(&folder)?;
        let mut python = command(&["python3", "-c", program, part]);
        said.push(text(python.current_dir(&folder)).context(|| folder.display())?);
    }
    let pairs: Vec<_> = said[0].lines().zip(said[1].lines()).collect();
    let differ: Vec<_> = pairs.iter().filter(|(tested, known)| tested != known).collect();
    for (tested, known) in &differ {
        println!("  differs: {tested}\n     ext4: {known}");
    }
    if !differ.is_empty() || said[0].lines().count() != said[1].lines().count() {
        return fail(format!("{} of {} lines differ from ext4", differ.len(), pairs.len()));
    }
    step(&format!("{} results, all as on ext4", pairs.len()));
    Ok(())
}

/// Projects by `chattr -p` and `lsattr -p`; ext4 has them only where its maker thought of it.
fn projects(subject: &dyn Subject) -> Result<()> {
    let folder = subject.root().join("project");
    std::fs::create_dir_all(&folder)?;
    run(command(&["chattr", "-p", "77", "+P"]).arg(&folder))?;
    std::fs::create_dir(folder.join("sub"))?;
    std::fs::write(folder.join("sub/file"), "x")?;
    let listed = text(command(&["lsattr", "-p"]).arg(folder.join("sub")))?;
    let shown = listed.split_whitespace().next() == Some("77");
    let outside = subject.root().join("outside");
    std::fs::write(&outside, "x")?;
    let crossed = std::fs::hard_link(&outside, folder.join("link"));
    let refused = crossed.is_err_and(|error| error.kind() == std::io::ErrorKind::CrossesDevices);
    match shown && refused {
        true => {
            step("projects pass on, and nothing of another one gets in");
            Ok(())
        }
        false => fail(format!("project 77 does not pass on or lets others in: {listed:?}")),
    }
}

/// Times that ext4 cannot have: centuries before 1901 and after 2446.
fn times_of_all_ages(subject: &mut dyn Subject) -> Result<()> {
    let moments = ["1582-10-15 00:00:00.000000001", "9999-12-31 23:59:59.999999999"];
    let file = |moment: &str| format!("time{}", &moment[..4]);
    for moment in moments {
        let path = subject.root().join(file(moment));
        run(command(&["touch", "-d", &format!("{moment} UTC")]).arg(path))?;
    }
    subject.remount()?;
    for moment in moments {
        let mut stat = command(&["stat", "-c", "%x %y"]);
        let told = text(stat.env("TZ", "UTC").arg(subject.root().join(file(moment))))?;
        if told.trim() != format!("{moment} +0000 {moment} +0000") {
            return fail(format!("{moment} came back as {told}"));
        }
    }
    step("times of 1582 and 9999, over a remount");
    Ok(())
}
