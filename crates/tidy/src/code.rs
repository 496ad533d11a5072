//! A Rust file as the rules see it: its words with the paths before them, and which are tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// An identifier, keyword or string literal of the code. Comments have none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// With its path: `use std::{fs, io::*}` has the words `std::fs` and `std::io::*`.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// `()` follows.
    pub(crate) is_bare_call: bool,
    /// It is in an item that is compiled for tests only.
    pub(crate) is_test: bool,
}

/// A Rust file.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// In the order of the file.
    pub(crate) words: Vec<Word>,
    /// Modules declared for tests only, which have files of their own.
    pub(crate) test_modules: Vec<String>,
    /// Lines of items that are compiled for tests only.
    pub(crate) test_lines: usize,
}

impl Code {
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let mut code = Self::default();
        let tokens = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        code.walk(tokens, "", false);
        code
    }

    fn walk(&mut self, stream: TokenStream, prefix: &str, mut is_test: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let is = |at: usize, sign: char| match tokens.get(at) {
            Some(TokenTree::Punct(punct)) => punct.as_char() == sign,
            _ => false,
        };
        let (mut path, mut line, mut at) = (prefix.to_owned(), 0, 0);
        // The items for tests end here, those around them do not.
        let mut test_end = None;
        while let Some(token) = tokens.get(at) {
            if test_end == Some(at) {
                (test_end, is_test) = (None, false);
            }
            if !is_test && is(at, '#') && is_for_tests(tokens.get(at + 1)) {
                let end = item_end(&tokens, at + 2);
                let place = |at: usize| tokens.get(at).map(TokenTree::span);
                let last = place(end - 1).map_or(0, |span| span.end().line);
                self.test_lines += last + 1 - token.span().start().line;
                self.test_modules.extend(module_file(&tokens[at + 2..end]));
                (test_end, is_test) = (Some(end), true);
            }
            match token {
                TokenTree::Ident(word) => {
                    if path != prefix && !path.ends_with("::") {
                        self.take(&mut path, prefix, line, is_test, false);
                    }
                    path.push_str(&word.to_string());
                    line = word.span().start().line;
                }
                _ if is(at, ':') && is(at + 1, ':') => {
                    path.push_str("::");
                    at += 1;
                }
                _ if is(at, '*') && path.ends_with("::") => path.push('*'),
                TokenTree::Group(group) => {
                    let is_tree = group.delimiter() == Delimiter::Brace && path.ends_with("::");
                    let within = if is_tree { path.clone() } else { String::new() };
                    let is_call =
                        group.delimiter() == Delimiter::Parenthesis && group.stream().is_empty();
                    self.take(&mut path, prefix, line, is_test, is_call);
                    self.walk(group.stream(), &within, is_test);
                }
                TokenTree::Punct(_) => self.take(&mut path, prefix, line, is_test, false),
                TokenTree::Literal(literal) => {
                    self.take(&mut path, prefix, line, is_test, false);
                    let text = literal.to_string();
                    if text.starts_with('"') {
                        let line = literal.span().start().line;
                        let path = text;
                        self.words.push(Word { path, line, is_bare_call: false, is_test });
                    }
                }
            }
            at += 1;
        }
        self.take(&mut path, prefix, line, is_test, false);
    }

    /// Adds the word that was read, if there is one.
    fn take(
        &mut self,
        path: &mut String,
        prefix: &str,
        line: usize,
        is_test: bool,
        is_bare_call: bool,
    ) {
        let word = std::mem::replace(path, prefix.to_owned());
        let word = word.trim_end_matches("::");
        if !word.is_empty() && word != prefix.trim_end_matches("::") {
            self.words.push(Word { path: word.to_owned(), line, is_bare_call, is_test });
        }
    }
}

/// Whether the brackets of an attribute hold `cfg(test)` or `cfg(all(test, …))`.
fn is_for_tests(brackets: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = brackets else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text.starts_with("cfg(test)") || text.starts_with("cfg(all(test,")
}

/// The place behind an item: behind its body, or else behind its semicolon.
fn item_end(tokens: &[TokenTree], start: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    let rest = tokens.get(start..).unwrap_or_default();
    rest.iter().position(is_end).map_or(tokens.len(), |length| start + length + 1)
}

/// The name in `mod name;`.
fn module_file(item: &[TokenTree]) -> Option<String> {
    let [.., word, name, TokenTree::Punct(_)] = item else { return None };
    (word.to_string() == "mod").then(|| name.to_string())
}

#[test]
fn words_have_their_paths() {
    let text = "use a::{b, c::{d, self}, e::*};\n::f::g(x.h (), Vec::<u8>::new(), \"i\") // j\n";
    let code = Code::read("a.rs", text);
    let paths: Vec<_> = code.words.iter().map(|it| it.path.as_str()).collect();
    let expected = [
        "use",
        "a",
        "a::b",
        "a::c",
        "a::c::d",
        "a::c::self",
        "a::e::*",
        "::f::g",
        "x",
        "h",
        "Vec",
        "u8",
        "::new",
        "\"i\"",
    ];
    assert_eq!(paths, expected);
    let calls =
        code.words.iter().filter(|it| it.is_bare_call).map(|it| (it.path.as_str(), it.line));
    assert_eq!(calls.collect::<Vec<_>>(), [("h", 2), ("::new", 2)]);
}

#[test]
fn items_for_tests_are_known() {
    let text = "a;\n#[cfg(test)]\n#[x]\nmod tests {\n b\n}\n#[cfg(all(test, unix))]\npub(crate) mod more;\n\
                #[cfg(not(test))]\nfn f() -> [u8; 2] { c; d }\n#[cfg(test)]\nfn g() -> [u8; 2] { e }\n";
    let code = Code::read("a.rs", text);
    let words: Vec<_> = code.words.iter().filter(|it| it.is_test).map(|it| &it.path).collect();
    for word in ["b", "more", "e"] {
        assert!(words.contains(&&word.to_owned()), "{word}");
    }
    for word in ["a", "c", "d"] {
        assert!(!words.contains(&&word.to_owned()), "{word}");
    }
    assert_eq!((code.test_modules, code.test_lines), (vec!["more".to_owned()], 9));
}
