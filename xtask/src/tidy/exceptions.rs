//! The one list of exceptions, `xtask/tidy.exceptions`, which only shrinks.
//!
//! A line is `rule place measure`, with `#` before a remark. The measure is exact: when the place
//! gets better the line must follow, and when nothing is left to except the line must go.

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
        let found = findings
            .iter()
            .position(|finding| finding.rule == exception.rule && finding.place == exception.place);
        let measure = found.and_then(|index| findings[index].measure);
        let message = match measure {
            None => "the exception is no longer needed: remove the line".to_owned(),
            Some(now) if now < exception.measure => format!("now {now}: lower the exception"),
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
    fn a_line_of_another_shape_is_refused() {
        assert!(parse("file-length crates/pool/src/tree.rs").is_err());
    }
}
