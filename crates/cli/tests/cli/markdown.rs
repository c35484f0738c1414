//! As much of Markdown as the tests of the pages need: fenced blocks, headings, links.

use std::path::{Path, PathBuf};

/// A page.
pub struct Page {
    /// Its path from the repository's root.
    pub path: PathBuf,
    /// Its fenced blocks.
    pub blocks: Vec<Block>,
    /// What its headings can be linked by.
    pub anchors: Vec<String>,
    /// Targets of its links, with their lines.
    pub links: Vec<(usize, String)>,
}

/// A fenced block.
pub struct Block {
    /// Line of its fence.
    pub line: usize,
    /// The words behind the fence: the language first.
    pub info: String,
    /// Its text.
    pub text: String,
}

impl Block {
    /// Its language.
    pub fn language(&self) -> &str {
        self.info.split([' ', ',']).next().unwrap_or_default()
    }

    /// Returns whether a word follows the language.
    pub fn has(&self, word: &str) -> bool {
        self.info.split([' ', ',']).skip(1).any(|other| other == word)
    }

    /// The file its first line names: `# job.toml`, and nothing else on the line.
    pub fn file(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        (name.contains('.') && !name.contains(' ')).then_some(name)
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README, CONTRIBUTING, and everything under `docs/`, by name.
pub fn pages() -> Vec<Page> {
    let root = root();
    let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "md" => paths.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        Page::parse(path.strip_prefix(&root).unwrap(), &text)
    };
    paths.iter().map(read).collect()
}

impl Page {
    fn parse(path: &Path, text: &str) -> Self {
        let mut page =
            Self { path: path.to_owned(), blocks: Vec::new(), anchors: Vec::new(), links: Vec::new() };
        let mut open: Option<(String, Block)> = None;
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            if let Some((fence, block)) = &mut open {
                if trimmed.starts_with(fence.as_str()) && trimmed.trim_matches('`').is_empty() {
                    page.blocks.extend(open.take().map(|(_, block)| block));
                } else {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                continue;
            }
            if trimmed.starts_with("```") {
                let info = trimmed.trim_start_matches('`');
                let fence = trimmed[..trimmed.len() - info.len()].to_owned();
                let block = Block { line: index + 1, info: info.trim().to_owned(), text: String::new() };
                open = Some((fence, block));
            } else if let Some(heading) = line.strip_prefix('#') {
                let anchor = slug(heading.trim_start_matches('#'));
                let again = page.anchors.iter().filter(|other| **other == anchor).count();
                page.anchors.push(if again == 0 { anchor } else { format!("{anchor}-{again}") });
            } else {
                page.anchors.extend(between(line, "id=\"", "\"").map(str::to_owned));
                page.links.extend(links(line).map(|target| (index + 1, target)));
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", path.display());
        page
    }
}

/// The anchor code hosts and mdBook make of a heading.
fn slug(heading: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    heading
        .trim()
        .chars()
        .filter(|c| keep(*c))
        .flat_map(char::to_lowercase)
        .collect::<String>()
        .replace(' ', "-")
}

/// The targets of `[text](target)` in a line, outside of code.
fn links(line: &str) -> impl Iterator<Item = String> {
    let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let targets: Vec<String> = between(&without_code, "](", ")").map(str::to_owned).collect();
    targets.into_iter()
}

fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).filter_map(move |rest| rest.split(end).next())
}

#[test]
fn a_page_is_taken_apart() {
    let text = "# The `job` file\n[a](b.md#c) `[x](y)` [d](../e)\n```sh run\nweftrun [no](link)\n```\n## Twice\n## Twice\n";
    let page = Page::parse(Path::new("x.md"), text);
    assert_eq!(page.anchors, ["the-job-file", "twice", "twice-1"]);
    assert_eq!(page.links, [(2, "b.md#c".to_owned()), (2, "../e".to_owned())]);
    assert_eq!((page.blocks[0].language(), page.blocks[0].has("run")), ("sh", true));
}
