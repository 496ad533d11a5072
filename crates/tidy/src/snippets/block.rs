//! The fenced blocks of a page.

/// A fenced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of the page at which it begins.
    pub(super) line: usize,
    /// Its language, as its first line says it.
    pub(super) language: String,
    /// What follows the language, such as `no_run`.
    pub(super) words: Vec<String>,
    /// The comment directly above it, without its brackets.
    pub(super) mark: Option<String>,
    /// What is in it, without the indentation that it has in a list.
    pub(super) text: String,
}

/// The fenced blocks of a page, in order.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut above = "";
    while let Some((at, line)) = lines.next() {
        let Some(first) = line.trim_start().strip_prefix("```") else {
            above = line.trim();
            continue;
        };
        let mut words = first.split([',', ' ']).map(str::to_owned);
        let indentation = line.len() - line.trim_start().len();
        let inner = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let text: String = inner
            .map(|line| format!("{}\n", line.get(indentation..).unwrap_or_default()))
            .collect();
        let mark = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        blocks.push(Block {
            line: at + 1,
            language: words.next().unwrap_or_default(),
            words: words.collect(),
            mark: mark.map(str::to_owned),
            text,
        });
        above = "";
    }
    blocks
}

impl Block {
    /// The command lines of a block of shell: without prompts, answers and comments; a line that
    /// ends with a backslash goes on.
    pub(super) fn commands(&self) -> impl Iterator<Item = String> {
        let text = self.text.replace("\\\n", " ");
        let is_console = self.language == "console";
        let lines: Vec<_> = text
            .lines()
            .filter_map(|line| if is_console { line.strip_prefix("$ ") } else { Some(line) })
            .map(|line| line.trim().to_owned())
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        lines.into_iter()
    }
}
