//! Text in the language of manual pages. No text that is put in is read as a request.

/// A manual page as it grows.
#[derive(Debug, Default)]
pub(super) struct Roff(String);

impl Roff {
    /// The page so far.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// What another writer of this language has made.
    pub(super) fn append(&mut self, made: &[u8]) {
        self.0.push_str(&String::from_utf8_lossy(made));
    }

    /// The first line of a page.
    pub(super) fn title(&mut self, name: &str, section: u8) {
        self.0.push_str(&format!(".TH {} {section} \"\" \"marram\" \"Marram\"\n", escaped(name)));
    }

    /// The head of a section.
    pub(super) fn section(&mut self, title: &str) {
        self.0.push_str(&format!(".SH {}\n", escaped(title)));
    }

    /// The head of a part of a section.
    pub(super) fn part(&mut self, title: &str) {
        self.0.push_str(&format!(".SS {}\n", escaped(title)));
    }

    /// A paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.0.push_str(".PP\n");
        self.text(text);
    }

    /// A word in bold, and what it means, indented.
    pub(super) fn entry(&mut self, word: &str, meaning: &str) {
        self.0.push_str(".TP\n");
        self.0.push_str(&format!("\\fB{}\\fR\n", escaped(word)));
        self.text(meaning);
    }

    /// A command line as it is typed, and what it does.
    pub(super) fn example(&mut self, line: &str, what: &str) {
        self.0.push_str(".PP\n.nf\n.RS\n");
        self.0.push_str(&format!("$ \\fB{}\\fR\n.RE\n.fi\n", escaped(line)));
        self.0.push_str(".RS 8\n");
        self.text(what);
        self.0.push_str(".RE\n");
    }

    fn text(&mut self, text: &str) {
        for line in text.lines() {
            self.0.push_str(&guarded(&escaped(line.trim())));
            self.0.push('\n');
        }
    }
}

/// A text in which each character stands for itself.
fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => all.push_str("\\e"),
            '-' => all.push_str("\\-"),
            '~' => all.push_str("\\(ti"),
            '^' => all.push_str("\\(ha"),
            '`' => all.push_str("\\(ga"),
            '\'' => all.push_str("\\(aq"),
            other => all.push(other),
        }
    }
    all
}

/// A line that does not begin with what begins a request.
fn guarded(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::Roff;

    #[test]
    fn what_is_put_in_is_no_request() {
        let mut roff = Roff::default();
        roff.paragraph(".marram is hidden\n'so' a\\b --json ~/x");
        let text = roff.into_text();
        let wanted = ".PP\n\\&.marram is hidden\n\\(aqso\\(aq a\\eb \\-\\-json \\(ti/x\n";
        assert_eq!(text, wanted);
    }
}
