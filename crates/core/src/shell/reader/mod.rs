//! Reads the shell's command language (POSIX.1-2024 XCU 2.10, and what bash 5.3 adds to it) down to its simple commands
//! and the places of their words: lists, pipelines, compound commands, functions, quotes, substitutions, here-documents,
//! comments. In one pass, with work in proportion to the text; what bash, dash and zsh read differently, or what is
//! half-written, is an error, so that a script is never changed on a guess ("docs/decisions/shell-parser.md").

mod compound;
mod conditional;
mod document;
mod simple;
mod word;

use std::ops::Range;

use document::Document;

/// Longest text that is read: no argument of a program can be longer (Linux, `MAX_ARG_STRLEN`).
const MAX_BYTES: usize = 128 * 1024;
/// Most commands and expansions inside of one another.
const MAX_DEPTH: usize = 40;

/// What a part of the text is read to, or why it cannot be read.
type Read<T = ()> = Result<T, String>;

/// A simple command that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Simple {
    /// The bytes of its name and arguments, quotes included; assignments and redirections are not among them.
    pub(super) words: Vec<Range<usize>>,
    /// What it stands in.
    pub(super) place: Place,
}

/// What a command stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The script itself, compound commands, functions and process substitutions included.
    Script,
    /// `$(…)` or backquotes.
    Substitution,
    /// The same inside of double quotes.
    Quoted,
}

/// What a text holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Its simple commands, in order.
    pub(super) commands: Vec<Simple>,
    /// The bytes of its here-documents, delimiters left out.
    pub(super) documents: Vec<Range<usize>>,
}

/// Reads a part of a text; places are those of the whole text.
pub(super) fn read(text: &str, part: Range<usize>) -> Read<Contents> {
    if part.len() > MAX_BYTES {
        return Err(format!("it is longer than {} KiB", MAX_BYTES / 1024));
    }
    let bytes = text.as_bytes();
    // No argument of a program holds one.
    if bytes[part.clone()].contains(&0) {
        return Err("there is a NUL byte in it".into());
    }
    let mut reader = Reader {
        bytes,
        at: part.start,
        end: part.end,
        depth: 0,
        place: Place::Script,
        waiting: Vec::new(),
        waits_outside: false,
        contents: Contents::default(),
    };
    reader.list()?;
    reader.ends_here()?;
    reader.contents.commands.sort_by_key(|command| command.words[0].start);
    Ok(reader.contents)
}

struct Reader<'t> {
    bytes: &'t [u8],
    /// The next byte.
    at: usize,
    /// Where this text, or the backquotes that are being read, ends.
    end: usize,
    depth: usize,
    place: Place,
    /// Here-documents whose text begins behind this line.
    waiting: Vec<Document>,
    /// Whether a command around this substitution waits for one.
    waits_outside: bool,
    contents: Contents,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    /// The byte so many behind the next.
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

    /// Goes behind a text, if it stands here.
    fn eat(&mut self, text: &str) -> bool {
        let here = self.looking_at(text);
        if here {
            self.at += text.len();
        }
        here
    }

    fn fail<T>(&self, why: &str) -> Read<T> {
        let before = &self.bytes[..self.at.min(self.bytes.len())];
        Err(format!("line {}: {why}", 1 + memchr::memchr_iter(b'\n', before).count()))
    }

    /// Reads something that lies inside of what is being read.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return Err("it nests too deeply".into());
        }
        self.depth += 1;
        let done = read(self);
        self.depth -= 1;
        done
    }

    /// Goes over blanks, a `\` at a line's end and a comment.
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

    /// Goes over blanks and the ends of lines, and over the here-documents behind them.
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

    /// Whether a reserved word, unquoted and whole, stands here.
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

    /// Reads the commands up to what ends a list, which is left to the caller; the number of them.
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

    /// A list where the grammar wants at least one command.
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

    /// The reserved word `time`; with an option of its own it is the program.
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

/// Whether a byte, with the one behind it, is none of a word's.
fn ends_word(byte: Option<u8>, next: Option<u8>) -> bool {
    match byte {
        None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') => true,
        Some(b'\r' | b'\\') => next == Some(b'\n'),
        _ => false,
    }
}
