//! Parses the shell's command language (POSIX.1-2024 XCU 2.10, and the additions of bash 5.3) down to its
//! simple commands and the places of their words: lists, pipelines, compound commands, functions, quotes,
//! substitutions, here-documents, comments. It works in one pass, in time linear in the text. Text that
//! bash, dash and zsh parse differently, and incomplete text, is an error, so that a script is never
//! changed on a guess ("docs/decisions/shell-parser.md").

mod compound;
mod conditional;
mod document;
mod simple;
mod word;

use std::ops::Range;

use document::Document;

/// Longest text that is parsed: no argument of a program can be longer (Linux, `MAX_ARG_STRLEN`).
const MAX_BYTES: usize = 128 * 1024;
/// Deepest nesting of commands and expansions.
const MAX_DEPTH: usize = 40;

/// The result of parsing a part of the text, or why it cannot be parsed.
type Read<T = ()> = Result<T, Fault>;

/// Why a text cannot be parsed, and the byte that shows it. The line is counted only for a message: a caller
/// that goes on behind the fault would count all lines before it each time.
struct Fault {
    at: Option<usize>,
    why: String,
    /// Whether no shell can read the text, and not only this reader.
    of_shell: bool,
}

impl Fault {
    fn text(self, bytes: &[u8]) -> String {
        let Some(at) = self.at else { return self.why };
        let before = bytes.get(..at).unwrap_or(bytes);
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        if self.of_shell {
            format!("line {line}: {}", self.why)
        } else {
            format!("{} (line {line})", self.why)
        }
    }
}

/// A simple command that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Simple {
    /// The bytes of its name and arguments, quotes included, without assignments and redirections.
    pub(super) words: Vec<Range<usize>>,
    /// The construct that contains it.
    pub(super) place: Construct,
}

/// The construct that contains a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Construct {
    /// The script itself, compound commands, functions and process substitutions included.
    Script,
    /// `$(…)` or backquotes.
    Substitution,
    /// The same inside double quotes.
    Quoted,
}

/// The contents of a text.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Its simple commands, in order.
    pub(super) commands: Vec<Simple>,
    /// The bytes of its here-documents, without delimiters.
    pub(super) documents: Vec<Range<usize>>,
}

/// Parses a part of a text; places are those of the whole text.
pub(super) fn read(text: &str, part: Range<usize>) -> Result<Contents, String> {
    if part.len() > MAX_BYTES {
        return Err(format!("it is longer than {} KiB", MAX_BYTES / 1024));
    }
    // No argument of a program contains a NUL.
    if text.as_bytes()[part.clone()].contains(&0) {
        return Err("there is a NUL byte in it".into());
    }
    let mut reader = Reader::new(text, part);
    let read = reader.list().and_then(|_| reader.ends_here());
    read.map_err(|fault| fault.text(text.as_bytes()))?;
    Ok(reader.sorted_contents())
}

/// Returns the here-documents of a text, and the byte up to which it can be parsed.
pub(super) fn documents(text: &str) -> (Vec<Range<usize>>, usize) {
    if text.len() > MAX_BYTES || text.contains('\0') {
        return (Vec::new(), 0);
    }
    let mut reader = Reader::new(text, 0..text.len());
    let read = reader.list().and_then(|_| reader.ends_here());
    let end = read.err().map_or(text.len(), |fault| fault.at.unwrap_or(0));
    (reader.sorted_contents().documents, end)
}

/// Parses a part of a text up to the first fault; returns the contents before it.
pub(super) fn read_some(text: &str, part: Range<usize>) -> Contents {
    if part.len() > MAX_BYTES {
        return Contents::default();
    }
    let mut reader = Reader::new(text, part);
    // Behind a fault it is unknown what is a command.
    let _fault = reader.list();
    reader.sorted_contents()
}

/// Parses a text into the lines of its outermost commands, each with the lines that its commands, its
/// here-documents and backslashes continue it to. None if a part cannot be parsed.
pub(super) fn read_lines(text: &str) -> Option<Vec<(Range<usize>, Contents)>> {
    if text.contains('\0') {
        return None;
    }
    let (mut reader, mut lines) = (Reader::new(text, 0..text.len()), Vec::new());
    while reader.at < reader.end {
        let start = reader.at;
        reader.commands_of_line().ok()?;
        if reader.at - start > MAX_BYTES {
            return None;
        }
        lines.push((start..reader.at, reader.sorted_contents()));
    }
    Some(lines)
}

/// Returns the length of the quoted text, expansion or substitution at the start of a text, and of anything else one
/// character; none if it is incomplete. `quoted` text is inside double quotes, where `'` and `$'` are themselves.
pub fn piece_length(text: &str, quoted: bool) -> Option<usize> {
    let mut reader = Reader::new(text, 0..text.len());
    reader.piece(quoted).ok()?;
    (reader.at..=text.len()).find(|at| text.is_char_boundary(*at))
}

/// Returns the places of the words of a text, and of each sign that ends one (`;`, `&`, `|`, `<`, `>`, `(`, `)`), without
/// comments. An incomplete word reaches to the end.
pub fn words(text: &str) -> Vec<Range<usize>> {
    let (mut reader, mut words) = (Reader::new(text, 0..text.len()), Vec::new());
    loop {
        reader.blanks();
        let start = reader.at;
        match reader.peek() {
            None => return words,
            Some(b'\n' | b'\r') => reader.at += 1,
            byte => {
                if reader.word().is_err() {
                    let is_sign = ends_word(byte, reader.bytes.get(start + 1).copied());
                    reader.at = if is_sign { start + 1 } else { reader.end };
                }
                words.push(start..reader.at);
            }
        }
    }
}

struct Reader<'t> {
    bytes: &'t [u8],
    /// The next byte.
    at: usize,
    /// The end of this text, or of the backquotes being read.
    end: usize,
    depth: usize,
    place: Construct,
    /// Here-documents whose text begins after this line.
    waiting: Vec<Document>,
    /// Whether a command around this substitution has one pending.
    waits_outside: bool,
    contents: Contents,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, part: Range<usize>) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: part.start,
            end: part.end,
            depth: 0,
            place: Construct::Script,
            waiting: Vec::new(),
            waits_outside: false,
            contents: Contents::default(),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// Returns the byte at a distance from the next one.
    fn peek_at(&self, ahead: usize) -> Option<u8> {
        let at = self.at + ahead;
        if at < self.end { self.bytes.get(at).copied() } else { None }
    }

    fn looking_at(&self, text: &str) -> bool {
        self.bytes[self.at..self.end].starts_with(text.as_bytes())
    }

    fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.end);
    }

    /// Skips a text, if it is next.
    fn eat(&mut self, text: &str) -> bool {
        let here = self.looking_at(text);
        if here {
            self.at += text.len();
        }
        here
    }

    fn fail<T>(&self, why: &str) -> Read<T> {
        Err(Fault { at: Some(self.at), why: why.to_owned(), of_shell: true })
    }

    /// Returns the fault of a text that a shell can read.
    fn not_understood<T>(&self, why: &str) -> Read<T> {
        Err(Fault { at: Some(self.at), why: why.to_owned(), of_shell: false })
    }

    /// Parses a nested construct.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return Err(Fault { at: None, why: "it nests too deeply".to_owned(), of_shell: false });
        }
        self.depth += 1;
        let done = read(self);
        self.depth -= 1;
        done
    }

    /// Skips blanks, a `\` at a line's end and a comment.
    fn blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\r' if self.peek_at(1) == Some(b'\n') => self.at += 1,
                b'\\' if self.peek_at(1) == Some(b'\n') => self.at += 2,
                b'#' => {
                    let rest = &self.bytes[self.at..self.end];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// Skips blanks and line ends, and the here-documents after them.
    fn newlines(&mut self) -> Read {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    fn newline(&mut self) -> Read {
        self.at += 1;
        self.documents()
    }

    /// Returns whether a reserved word, unquoted and whole, is next.
    fn at_word(&self, word: &str) -> bool {
        self.looking_at(word) && ends_word(self.peek_at(word.len()), self.peek_at(word.len() + 1))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let here = self.at_word(word);
        if here {
            self.at += word.len();
        }
        here
    }

    fn expect_word(&mut self, word: &str) -> Read {
        self.blanks();
        if self.eat_word(word) { Ok(()) } else { self.fail(&format!("`{word}` is missing")) }
    }

    fn expect(&mut self, text: &str) -> Read {
        self.blanks();
        if self.eat(text) { Ok(()) } else { self.fail(&format!("`{text}` is missing")) }
    }

    /// Parses the commands up to the end of a list, which is left to the caller; returns their number.
    fn list(&mut self) -> Read<usize> {
        let mut count = 0;
        loop {
            self.newlines()?;
            if self.at_end_of_list() {
                return Ok(count);
            }
            self.and_or()?;
            count += 1;
            self.blanks();
            match (self.peek(), self.peek_at(1)) {
                (Some(b';'), Some(b';' | b'&')) => return Ok(count),
                (Some(b';' | b'&'), _) => self.at += 1,
                (Some(b'\n'), _) => self.newline()?,
                _ => return Ok(count),
            }
        }
    }

    /// Parses the commands of one line, with its end.
    fn commands_of_line(&mut self) -> Read {
        loop {
            self.blanks();
            match self.peek() {
                None => return self.ends_here(),
                Some(b'\n') => return self.newline(),
                Some(_) => self.and_or()?,
            }
            self.blanks();
            match (self.peek(), self.peek_at(1)) {
                (Some(b';'), Some(b';' | b'&')) => {
                    return self.fail("something is closed that was not opened");
                }
                (Some(b';' | b'&'), _) => self.at += 1,
                (None | Some(b'\n'), _) => {}
                _ => return self.fail("something is closed that was not opened"),
            }
        }
    }

    /// Takes the contents that were read, in order.
    fn sorted_contents(&mut self) -> Contents {
        let mut contents = std::mem::take(&mut self.contents);
        contents.commands.sort_by_key(|command| command.words[0].start);
        contents
    }

    /// Parses a list where the grammar needs at least one command.
    fn some_list(&mut self) -> Read {
        if self.list()? == 0 { self.fail("a command is missing") } else { Ok(()) }
    }

    fn at_end_of_list(&self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => matches!(self.peek_at(1), Some(b';' | b'&')),
            _ => self.at_closing_word(),
        }
    }

    fn at_closing_word(&self) -> bool {
        ["then", "else", "elif", "fi", "do", "done", "esac", "}"].iter().any(|word| self.at_word(word))
    }

    fn and_or(&mut self) -> Read {
        loop {
            self.pipeline()?;
            self.blanks();
            if !self.eat("&&") && !self.eat("||") {
                return Ok(());
            }
            self.newlines()?;
        }
    }

    fn pipeline(&mut self) -> Read {
        loop {
            self.blanks();
            if !self.eat_word("!") && !self.eat_time() {
                break;
            }
        }
        loop {
            self.deeper(Self::command)?;
            self.blanks();
            if self.looking_at("||") || !self.eat("|") {
                return Ok(());
            }
            self.eat("&");
            self.newlines()?;
        }
    }

    /// Skips the reserved word `time`; with an option it is the program.
    fn eat_time(&mut self) -> bool {
        let before = self.at;
        if !self.eat_word("time") {
            return false;
        }
        self.blanks();
        if self.eat_word("-p") || self.eat_word("--") || self.peek() != Some(b'-') {
            return true;
        }
        self.at = before;
        false
    }

    fn ends_here(&self) -> Read {
        if self.at < self.end {
            return self.fail("something is closed that was not opened");
        }
        if self.waiting.is_empty() { Ok(()) } else { self.fail("a here-document has no text") }
    }
}

/// Returns whether a byte, with the one after it, ends a word.
fn ends_word(byte: Option<u8>, next: Option<u8>) -> bool {
    match byte {
        None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') => true,
        Some(b'\r' | b'\\') => next == Some(b'\n'),
        _ => false,
    }
}
