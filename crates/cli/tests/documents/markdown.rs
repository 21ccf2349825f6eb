//! Reads Markdown: blocks of commands, headings and links.

use crate::PROJECT;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A document.
pub struct Document {
    /// The path below the directory of the project.
    pub name: String,
    pub blocks: Vec<FencedBlock>,
    /// The lines outside of blocks and comments, with their numbers.
    pub prose: Vec<(usize, String)>,
}

/// A fenced block.
///
/// `sh` blocks contain commands that have to succeed. `console` blocks contain commands behind
/// a prompt (`$ ` or `# `), and their output. Two comments can stand before a block:
///
/// - `<!-- not run: REASON -->`: the block cannot run in a root.
/// - `<!-- given: COMMANDS -->`: the commands make what the text takes as given, such as the
///   reader's own Makefile. They run before the block.
pub struct FencedBlock {
    pub language: String,
    /// The number of the line after the fence.
    pub line: usize,
    pub lines: Vec<String>,
    pub given: Vec<(usize, Vec<String>)>,
    pub not_run: Option<String>,
}

impl FencedBlock {
    /// Whether a reader types what is in the block. A block without a language could hide
    /// commands.
    pub fn has_commands(&self) -> bool {
        !matches!(&*self.language, "dockerfile" | "groovy" | "toml" | "yaml")
    }
}

/// Returns the documents whose commands a user types.
pub fn user_documents() -> Vec<Document> {
    let docs = fs::read_dir(Path::new(PROJECT).join("docs")).expect("the directory of documents");
    let docs = docs.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut names: Vec<_> = docs
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .chain(["README.md".into(), "SECURITY.md".into()])
        .collect();
    names.sort();
    names.iter().map(|name| Document::read(name)).collect()
}

impl Document {
    /// Reads the document `name` of the project.
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(Path::new(PROJECT).join(name)).expect(name);
        Self::parse(name, &text)
    }

    /// Reads `text` as the document `name`.
    pub fn parse(name: &str, text: &str) -> Self {
        let (mut blocks, mut prose) = (Vec::new(), Vec::new());
        // The comments before the block that comes next.
        let mut comments: Vec<(usize, Vec<String>)> = Vec::new();
        let mut lines = (1..).zip(text.lines());
        while let Some((number, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let end = |line: &&(usize, &str)| line.1 != "```";
                let inside: Vec<_> = lines.by_ref().take_while(|line| end(&line)).collect();
                let inside = inside.into_iter().map(|(_, line)| line.to_owned()).collect();
                blocks.push(FencedBlock::new(language, number + 1, inside, &comments));
                comments.clear();
            } else if line.starts_with("<!--") {
                let mut comment = vec![line.to_owned()];
                while !comment.last().is_some_and(|line| line.contains("-->")) {
                    comment.push(lines.next().expect("the end of a comment").1.to_owned());
                }
                comments.push((number, comment));
            } else {
                if !line.trim().is_empty() {
                    comments.clear();
                }
                prose.push((number, line.to_owned()));
            }
        }
        Self { name: name.to_owned(), blocks, prose }
    }

    /// Returns the anchors of the headings, as GitHub makes them: a heading that comes again gets a
    /// number.
    pub fn anchors(&self) -> Vec<String> {
        let mut times = HashMap::new();
        let headings = self.prose.iter().filter_map(|(_, line)| heading(line));
        let numbered = headings.map(|heading| {
            let anchor = anchor(&heading);
            let times = times.entry(anchor.clone()).or_insert(0);
            *times += 1;
            if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
        });
        numbered.collect()
    }
}

impl FencedBlock {
    fn new(
        language: &str,
        line: usize,
        lines: Vec<String>,
        comments: &[(usize, Vec<String>)],
    ) -> Self {
        let mut block =
            Self { language: language.to_owned(), line, lines, given: Vec::new(), not_run: None };
        for (number, comment) in comments {
            let text = comment.join("\n");
            let text = text.trim_start_matches("<!--").trim_end_matches("-->").trim();
            if let Some(reason) = text.strip_prefix("not run:") {
                block.not_run = Some(reason.split_whitespace().collect::<Vec<_>>().join(" "));
            } else if let Some(commands) = text.strip_prefix("given:") {
                block.given.push((*number, commands.lines().map(str::to_owned).collect()));
            }
        }
        block
    }
}

/// Returns the text of a heading, with the text of a link in place of the link.
fn heading(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let mut parts = text.trim().split("](");
    let first = parts.next()?.to_owned();
    Some(parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest)))
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}
