//! Words in text and paths in code: what the rules search for.

/// Whether the text holds `word` with no letter, digit or underscore beside it.
#[must_use]
pub fn has_word(text: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + word.len()..).unwrap_or_default();
        !before.ends_with(in_word) && !after.starts_with(in_word)
    })
}

/// A path or a lone word in code. Groups are unfolded: `a::{b, c::d}` gives `a::b` and `a::c::d`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodePath {
    /// The line of its last segment, from 1.
    pub line: usize,
    /// Its segments; `*` stands for all of a module.
    pub segments: Vec<String>,
    /// The path begins with `::`, so that it starts at a crate.
    pub rooted: bool,
    /// The path is called without arguments.
    pub called_bare: bool,
    /// The word or character before the path; none before the inner paths of a group.
    pub before: String,
}

impl CodePath {
    /// Whether the path begins with these segments.
    #[must_use]
    pub fn begins_with(&self, segments: &[&str]) -> bool {
        self.segments.len() >= segments.len()
            && self.segments.iter().zip(segments).all(|(own, wanted)| own == wanted)
    }

    /// Whether one of the segments is this word.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.segments.iter().any(|segment| segment == word)
    }
}

/// Every path and word of the code, in order. Comments and literals must have been blanked out.
#[must_use]
pub fn code_paths(code: &str) -> Vec<CodePath> {
    let mut reader = Reader { chars: code.chars().collect(), at: 0, line: 1, paths: Vec::new() };
    let mut before = String::new();
    while let Some(current) = reader.peek() {
        if is_word_start(current) {
            before = reader.read_path(&[], false, before);
        } else if reader.eat("::") {
            // After a type in angle brackets the path goes on; anywhere else it begins at a crate.
            let rooted = before != ">";
            reader.skip_space();
            if reader.peek().is_some_and(is_word_start) {
                before = reader.read_path(&[], rooted, before);
            }
        } else {
            if !current.is_whitespace() {
                before = current.to_string();
            }
            reader.advance();
        }
    }
    reader.paths
}

fn is_word_start(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: usize,
    paths: Vec<CodePath>,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn advance(&mut self) {
        self.line += usize::from(self.peek() == Some('\n'));
        self.at += 1;
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let rest = self.chars.iter().skip(self.at);
        let found = rest.take(wanted.len()).copied().eq(wanted.chars());
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.advance();
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(current) = self.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(current);
            self.advance();
        }
        word
    }

    /// Reads a path that begins with a word, behind `prefix`; returns its last word.
    fn read_path(&mut self, prefix: &[String], rooted: bool, before: String) -> String {
        let mut segments = prefix.to_vec();
        loop {
            let line = self.line;
            segments.push(self.word());
            // Only directly behind the word, as rustfmt writes it: in `use ::a` the path begins at a crate.
            if self.eat("::") {
                self.skip_space();
                match self.peek() {
                    Some(next) if is_word_start(next) => continue,
                    Some('{') => {
                        self.read_group(&segments, rooted);
                        return "}".to_owned();
                    }
                    Some('*') => {
                        self.advance();
                        segments.push("*".to_owned());
                    }
                    _ => {}
                }
            }
            let last = segments.last().cloned().unwrap_or_default();
            let called_bare = self.is_bare_call();
            self.paths.push(CodePath { line, segments, rooted, called_bare, before });
            return last;
        }
    }

    /// Reads `{a, b::c, d as e}` behind `prefix`.
    fn read_group(&mut self, prefix: &[String], rooted: bool) {
        self.advance();
        while let Some(current) = self.peek() {
            if current == '}' {
                self.advance();
                return;
            }
            if !is_word_start(current) {
                self.advance();
                continue;
            }
            self.read_path(prefix, rooted, String::new());
            self.skip_space();
            if self.eat("as ") {
                self.skip_space();
                self.word();
            }
        }
    }

    fn is_bare_call(&self) -> bool {
        let mut rest = self.chars.iter().skip(self.at).filter(|c| !c.is_whitespace());
        rest.next() == Some(&'(') && rest.next() == Some(&')')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, expected: &[&str]) {
        let paths: Vec<String> = code_paths(code)
            .into_iter()
            .map(|path| {
                let root = if path.rooted { "::" } else { "" };
                let call = if path.called_bare { "()" } else { "" };
                format!("{root}{}{call}", path.segments.join("::"))
            })
            .collect();
        assert_eq!(paths, expected, "{code}");
    }

    #[test]
    fn words_have_boundaries() {
        assert!(has_word("a rand b", "rand") && has_word("rand", "rand"));
        assert!(!has_word("operand rand_core random", "rand"));
        assert!(has_word("operand rand", "rand"));
    }

    #[test]
    fn paths_are_read_whole() {
        check("a::b::c(x)", &["a::b::c", "x"]);
        check("Instant::now ( )", &["Instant::now()"]);
        check("self.clock.now() + a", &["self", "clock", "now()", "a"]);
        check("Vec::<u8>::new()", &["Vec", "u8", "new()"]);
        check("::a::b; <T as U>::c", &["::a::b", "T", "as", "U", "c"]);
        check("use ::a::b;", &["use", "::a::b"]);
    }

    #[test]
    fn groups_are_unfolded() {
        check("use a::{b, c::{d, self}};", &["use", "a::b", "a::c::d", "a::c::self"]);
        check("use a::{\n  b as x,\n  c,\n};", &["use", "a::b", "a::c"]);
        check("use {a::b, c::*};", &["use", "a::b", "c::*"]);
    }

    #[test]
    fn paths_know_their_line_and_what_is_before() {
        let paths = code_paths("mod a;\nuse b::{\n  c,\n  d\n};\nx.e()");
        let found: Vec<_> = paths.iter().map(|p| (p.line, p.before.as_str())).collect();
        let expected = [(1, ""), (1, "mod"), (2, ";"), (3, ""), (4, ""), (6, ";"), (6, ".")];
        assert_eq!(found, expected);
    }
}
