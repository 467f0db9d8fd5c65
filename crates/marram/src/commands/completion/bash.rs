//! The script for bash. It puts together again what bash cuts at `@` and `=`.

use clap_complete::env::EnvCompleter;
use std::ffi::OsString;
use std::io::{Result, Write};
use std::path::Path;

/// Which word is completed, from 0.
const INDEX: &str = "MARRAM_COMPLETE_INDEX";

const SCRIPT: &str = r#"_marram() {
    local rest=${COMP_LINE:0:COMP_POINT} i word blank line
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blank=${rest%%[![:blank:]]*}
        rest=${rest:${#blank}}
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$rest
        if ((i == 0)) || [[ -n $blank ]]; then words+=("$word"); else words[-1]+=$word; fi
        rest=${rest:${#word}}
    done
    COMPREPLY=()
    # Names of other users' homes, and whole paths below one, are known to bash itself.
    [[ $2 != '~'* ]] || return 0
    for i in "${!words[@]}"; do
        [[ ${words[i]} != '~/'* ]] || words[i]=$HOME/${words[i]:2}
    done
    # Bash leaves what stands before the last break as it is.
    local kept=$((${#words[-1]} - ${#2}))
    while IFS= read -r line; do
        COMPREPLY+=("${line:kept}")
    done < <(VARIABLE=bash INDEX=$((${#words[@]} - 1)) PROGRAM -- "${words[@]}" 2>/dev/null)
    [[ ${COMPREPLY-} != *[/@=] ]] || compopt -o nospace 2>/dev/null
}
complete -o bashdefault -o default -F _marram marram
"#;

/// Bash, as a shell that asks for completion.
pub(super) struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == self.name()
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        _bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> Result<()> {
        let script = SCRIPT
            .replace("VARIABLE", variable)
            .replace("INDEX", INDEX)
            .replace("PROGRAM", &crate::names::shell_word(Path::new(completer)));
        out.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let index = std::env::var(INDEX).ok().and_then(|text| text.parse().ok());
        let index = index.unwrap_or(words.len().saturating_sub(1));
        for candidate in clap_complete::engine::complete(command, words, index, folder)? {
            writeln!(out, "{}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}
