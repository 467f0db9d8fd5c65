//! The one list of exceptions, `xtask/tidy.exceptions`, which only shrinks.
//!
//! A line is `rule place measure`, with `#` before a remark. The measure is exact: when the place
//! gets better the line must follow, and when nothing is left to except the line must go.
//! `cargo xtask tidy --lower` writes both into the list; a line never rises by itself.

use super::Finding;
use crate::failure::{Context, Result, fail};
use std::path::Path;

const LIST: &str = "xtask/tidy.exceptions";

#[derive(Debug, PartialEq, Eq)]
struct Exception {
    rule: String,
    place: String,
    measure: usize,
    line: usize,
}

/// Takes the excepted findings away, and adds one for each exception that is not needed as it is.
pub(crate) fn apply(root: &Path, findings: Vec<Finding>) -> Result<Vec<Finding>> {
    let text =
        std::fs::read_to_string(root.join(LIST)).context(|| format!("cannot read {LIST}"))?;
    Ok(excepted(&parse(&text)?, findings))
}

/// Lowers and removes the lines of the list that are higher than `findings` need.
pub(crate) fn lower(root: &Path, findings: &[Finding]) -> Result<()> {
    let path = root.join(LIST);
    let text = std::fs::read_to_string(&path).context(|| format!("cannot read {LIST}"))?;
    let lowered = lowered(&text, &parse(&text)?, findings);
    std::fs::write(&path, lowered).context(|| format!("cannot write {LIST}"))
}

fn lowered(text: &str, exceptions: &[Exception], findings: &[Finding]) -> String {
    let mut seen = std::collections::HashSet::new();
    let mut lines = String::new();
    for (index, line) in text.lines().enumerate() {
        let exception = exceptions.iter().find(|exception| exception.line == index + 1);
        let kept = match exception {
            None => Some(line.to_owned()),
            Some(exception) if !seen.insert((&exception.rule, &exception.place)) => None,
            Some(exception) => exception.measure_in(findings).map(|now| {
                let (before, now) = (exception.measure.to_string(), exception.measure.min(now));
                let words = format!("{} {} ", exception.rule, exception.place);
                line.replacen(&format!("{words}{before}"), &format!("{words}{now}"), 1)
            }),
        };
        if let Some(kept) = kept {
            lines += &kept;
            lines.push('\n');
        }
    }
    lines
}

impl Exception {
    /// What is measured now where the exception stands.
    fn measure_in(&self, findings: &[Finding]) -> Option<usize> {
        findings.iter().find(|finding| self.is_of(finding)).and_then(|finding| finding.measure)
    }

    fn is_of(&self, finding: &Finding) -> bool {
        finding.rule == self.rule && finding.place == self.place && finding.measure.is_some()
    }
}

fn parse(text: &str) -> Result<Vec<Exception>> {
    let mut exceptions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [rule, place, measure] => exceptions.push(Exception {
                rule: rule.into(),
                place: place.into(),
                measure: measure.parse().context(|| format!("{LIST}:{}", index + 1))?,
                line: index + 1,
            }),
            _ => return fail(format!("{LIST}:{}: want `rule place measure`", index + 1)),
        }
    }
    Ok(exceptions)
}

fn excepted(exceptions: &[Exception], mut findings: Vec<Finding>) -> Vec<Finding> {
    for exception in exceptions {
        let found = findings.iter().position(|finding| exception.is_of(finding));
        let measure = found.and_then(|index| findings[index].measure);
        let message = match measure {
            None => "the exception is not needed: `cargo xtask tidy --lower` removes it".to_owned(),
            Some(now) if now < exception.measure => {
                format!("it is {now} here: `cargo xtask tidy --lower` lowers the exception")
            }
            Some(now) if now > exception.measure => continue,
            Some(_) => {
                findings.remove(found.expect("a measure comes from a finding"));
                continue;
            }
        };
        let place = format!("{LIST} ({} {})", exception.rule, exception.place);
        let line = exception.line;
        findings.push(Finding { rule: "exceptions", place, line, measure: None, message });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_file(measure: usize) -> Vec<Finding> {
        let place = "crates/pool/src/tree.rs".to_owned();
        let message = String::new();
        vec![Finding { rule: "file-length", place, line: 0, measure: Some(measure), message }]
    }

    fn rules(list: &str, findings: Vec<Finding>) -> Vec<&'static str> {
        let list = parse(list).expect("the list parses");
        excepted(&list, findings).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn an_exact_exception_hides_its_finding() {
        assert!(rules("file-length crates/pool/src/tree.rs 900 # why", long_file(900)).is_empty());
    }

    #[test]
    fn what_grows_past_its_exception_is_found() {
        let found = rules("file-length crates/pool/src/tree.rs 900", long_file(901));
        assert_eq!(found, ["file-length"]);
    }

    #[test]
    fn an_exception_shrinks_and_goes_with_its_need() {
        let list = "file-length crates/pool/src/tree.rs 900";
        assert_eq!(rules(list, Vec::new()), ["exceptions"]);
        assert_eq!(rules(list, long_file(850)), ["file-length", "exceptions"]);
    }

    #[test]
    fn the_list_is_lowered_and_never_raised() {
        let list =
            |measure: usize| format!("# why\nfile-length crates/pool/src/tree.rs {measure}\n");
        let after = |text: &str, findings: &[Finding]| {
            lowered(text, &parse(text).expect("the list parses"), findings)
        };
        assert_eq!(after(&list(900), &long_file(850)), list(850));
        assert_eq!(after(&list(900), &long_file(950)), list(900));
        assert_eq!(after(&list(900), &[]), "# why\n");
        assert_eq!(after(&(list(900) + &list(870)), &long_file(850)), list(850) + "# why\n");
    }

    #[test]
    fn a_line_of_another_shape_is_refused() {
        assert!(parse("file-length crates/pool/src/tree.rs").is_err());
    }
}
