//! Paths and calls in the arguments of macros, which the parser hands out as bare tokens.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// A path or a call of a method among the tokens of a macro.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A path, at this line.
    Path(Vec<String>, usize),
    /// A call of a method, at this line; whether `self` is the receiver.
    Call { name: String, of_self: bool, line: usize },
}

/// The paths and the calls of methods in `tokens`.
pub(super) fn seen(tokens: TokenStream) -> Vec<Seen> {
    let mut found = Vec::new();
    scan(tokens, &mut found);
    found
}

fn scan(tokens: TokenStream, found: &mut Vec<Seen>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => scan(group.stream(), found),
            TokenTree::Ident(name) if at > 0 && is_punct(&tokens[at - 1], '.') => {
                found.extend(call_at(&tokens, at, name));
            }
            TokenTree::Ident(first) => {
                let line = first.span().start().line;
                let path = path_at(&tokens, at);
                at += 3 * (path.len() - 1);
                found.push(Seen::Path(path, line));
            }
            _ => {}
        }
        at += 1;
    }
}

/// The call of the method `name` at `at`; none if it is a field.
fn call_at(tokens: &[TokenTree], at: usize, name: &Ident) -> Option<Seen> {
    let of_self = at > 1 && is_word(&tokens[at - 2], "self");
    let line = name.span().start().line;
    let call = Seen::Call { name: name.to_string(), of_self, line };
    tokens.get(at + 1).is_some_and(is_arguments).then_some(call)
}

/// The path that begins with the word at `at`.
fn path_at(tokens: &[TokenTree], at: usize) -> Vec<String> {
    let mut path = vec![tokens[at].to_string()];
    let mut rest = &tokens[at + 1..];
    while let [colon, other, TokenTree::Ident(name), after @ ..] = rest {
        if !is_punct(colon, ':') || !is_punct(other, ':') {
            break;
        }
        path.push(name.to_string());
        rest = after;
    }
    path
}

fn is_punct(token: &TokenTree, letter: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == letter)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(name) if name == word)
}

fn is_arguments(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_calls_are_seen_in_bare_tokens() {
        let tokens = "self.grow(a::b(1), [x.y()]), z.w".parse().expect("these are tokens");
        let path =
            |names: &[&str]| Seen::Path(names.iter().map(|&name| name.to_owned()).collect(), 1);
        let call = |name: &str, of_self| Seen::Call { name: name.to_owned(), of_self, line: 1 };
        let wanted = [
            path(&["self"]),
            call("grow", true),
            path(&["a", "b"]),
            path(&["x"]),
            call("y", false),
            path(&["z"]),
        ];
        assert_eq!(seen(tokens), wanted);
    }
}
