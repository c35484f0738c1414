//! Shell strings, by the real grammar.
//!
//! The parser's work doubles with every bracket that stays open and it recurses, so a text is measured first and left
//! alone when it is too large or too deep ("docs/decisions/shell-parser.md").

use brush_parser::ast::{
    self, AndOr, Command, CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, SimpleCommand,
    Word,
};
use brush_parser::word::{WordPiece, WordPieceWithSource};
use brush_parser::{ParserOptions, Token, TokenizerOptions};

use super::command::{Verdict, judge};
use super::{Found, Mpirun, wrapper};

/// Longest text that is read.
const MAX_BYTES: usize = 64 * 1024;
/// Deepest nesting of brackets, `case` and other compound commands, and of a text in a text.
const MAX_DEPTH: usize = 12;
const MAX_COMPOUND: usize = 32;

/// A replacement of bytes.
#[derive(Debug)]
struct Splice {
    start: usize,
    end: usize,
    text: String,
}

/// A simple command of a script: the bytes it spans and its words, quotes taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCommand {
    /// First byte of its first word.
    pub start: usize,
    /// The byte behind its last word.
    pub end: usize,
    /// Its words, assignments before it left out.
    pub words: Vec<String>,
    /// The bytes of each word, quotes included.
    pub spans: Vec<(usize, usize)>,
    /// Index of the word that is run behind wrappers such as `timeout 60`.
    pub program: usize,
}

/// The simple commands of a script, in order; the words of here-documents and comments are not among them.
pub fn commands(text: &str) -> Result<Vec<ScriptCommand>, String> {
    let program = parse(text)?;
    let chars = CharIndex::new(text);
    let mut found = Vec::new();
    each_simple(&program, &mut |simple| {
        let words = words_of(simple);
        let spans: Option<Vec<_>> = words.iter().map(|word| chars.range(word)).collect();
        let words: Vec<String> = words.iter().map(|word| unquoted(&word.value).to_owned()).collect();
        if let (Some(spans), Some(program)) = (spans, wrapper::command_word(&words, 0))
            && let (Some(first), Some(last)) = (spans.first(), spans.last())
        {
            found.push(ScriptCommand { start: first.0, end: last.1, words, program, spans });
        }
    });
    found.sort_by_key(|command| command.start);
    Ok(found)
}

/// Rewrites every `mpirun` in command position; the text as it was if nothing is to change.
pub(super) fn rewrite(text: &str, rule: &Mpirun, found: &mut Found) -> Result<String, String> {
    let mut splices = Vec::new();
    collect(text, 0, 0, rule, found, &mut splices)?;
    splices.sort_by_key(|splice| splice.start);
    let mut out = String::with_capacity(text.len() + 64 * splices.len());
    let (mut at, count) = (0, splices.len());
    for splice in splices {
        let before = text.get(at..splice.start).ok_or("two changes overlap")?;
        out.push_str(before);
        out.push_str(&splice.text);
        at = splice.end;
    }
    out.push_str(&text[at..]);
    // Only here: a part that cannot be read leaves the whole as it was, whatever was found before it.
    found.changed += count;
    Ok(out)
}

/// Finds the changes of a text that stands at an offset of the whole.
fn collect(
    text: &str,
    offset: usize,
    depth: usize,
    rule: &Mpirun,
    found: &mut Found,
    splices: &mut Vec<Splice>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("it nests too deeply".into());
    }
    let program = parse(text)?;
    let chars = CharIndex::new(text);
    let mut inner: Vec<(usize, usize)> = Vec::new();
    each_simple(&program, &mut |simple| {
        one_command(simple, &chars, offset, rule, found, splices, &mut inner);
    });
    for (start, end) in inner {
        if let Some(piece) = text.get(start..end) {
            collect(piece, offset + start, depth + 1, rule, found, splices)?;
        }
    }
    Ok(())
}

fn one_command(
    simple: &SimpleCommand,
    chars: &CharIndex<'_>,
    offset: usize,
    rule: &Mpirun,
    found: &mut Found,
    splices: &mut Vec<Splice>,
    inner: &mut Vec<(usize, usize)>,
) {
    for word in all_words(simple) {
        substitutions(word, chars, inner);
    }
    let words = words_of(simple);
    let plain: Vec<&str> = words.iter().map(|word| unquoted(&word.value)).collect();
    let Some(at) = wrapper::command_word(&plain, 0) else { return };
    let word = words[at];
    if let Some(script_at) = wrapper::shell_string(&plain, at) {
        match quoted_text(words[script_at], chars) {
            Some(range) => inner.push(range),
            None => found.note(super::MpirunNote::Unreadable("a shell string with escapes".into())),
        }
        return;
    }
    // A quoted or escaped word in command position is the user's way of saying "exactly this one".
    if word.value != plain[at] || word.value.contains(['\\', '"', '\'', '$', '`', '*', '?']) {
        return;
    }
    let Some((start, end)) = chars.range(word) else { return };
    match judge(plain[at], &plain[at + 1..], rule) {
        Verdict::NotMpirun => {
            let script = wrapper::script_file(&plain, at).map(str::to_owned);
            found.script = found.script.take().or(script);
        }
        Verdict::Left(note) => {
            found.mpirun = true;
            found.note(note);
        }
        Verdict::Becomes { word: new, add, notes } => {
            found.mpirun = true;
            notes.into_iter().for_each(|note| found.note(note));
            if new != word.value || !add.is_empty() {
                let text = std::iter::once(new).chain(add).collect::<Vec<_>>().join(" ");
                splices.push(Splice { start: offset + start, end: offset + end, text });
            }
        }
    }
}

fn parse(text: &str) -> Result<ast::Program, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {} KiB", MAX_BYTES / 1024));
    }
    if open_brackets(text) > 4 * MAX_DEPTH {
        return Err("it nests too deeply".into());
    }
    // No argument holds one, and the parser takes it for the end of the text.
    if text.contains('\0') {
        return Err("there is a NUL byte in it".into());
    }
    if has_huge_number(text) {
        return Err("a number in it is too large".into());
    }
    if has_bracketed_document(text) {
        return Err("a here-document in it starts with a closing bracket".into());
    }
    if has_odd_delimiter(text) {
        return Err("a here-document in it has a delimiter that is no plain word".into());
    }
    let tokens = brush_parser::uncached_tokenize_str(text, &TokenizerOptions::default())
        .map_err(|error| format!("it cannot be read: {error}"))?;
    measure(&tokens)?;
    brush_parser::parse_tokens(&tokens, &ParserOptions::default())
        .map_err(|error| format!("it cannot be read: {error}"))
}

/// Whether a number is too large for the parser, which panics on it (brush-parser 0.4: `99999999999<file`, `~` and
/// `{1..N}` with more digits than 64 bits hold).
fn has_huge_number(text: &str) -> bool {
    let joined = text.replace("\\\n", "");
    let mut digits = 0;
    joined.bytes().any(|byte| {
        let before = digits;
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits > 18 || (before > 9 && matches!(byte, b'<' | b'>'))
    })
}

/// Whether a here-document's first byte could close a substitution: the parser takes it for its end, and panics where
/// the text ends behind the document (brush-parser 0.4).
fn has_bracketed_document(text: &str) -> bool {
    let joined = text.replace("\\\n", "");
    let lines = joined.split('\n');
    lines
        .clone()
        .zip(lines.skip(1))
        .any(|(line, next)| line.contains("<<") && next.starts_with([')', '}', ']']))
}

/// Whether the word behind a `<<` is more than a plain or quoted word, or there are more than three `<`. In a
/// substitution the parser goes on behind such a document as if its text had not ended, and panics or takes all memory
/// (brush-parser 0.4: `$(<<E()` with quotes in the middle, `$(<<<<<`).
fn has_odd_delimiter(text: &str) -> bool {
    let joined = text.replace("\\\n", "");
    let mut rest = joined.as_str();
    while let Some(at) = rest.find('<') {
        let behind = rest[at..].trim_start_matches('<');
        let odd = match rest.len() - at - behind.len() {
            1 | 3 => false,
            2 => is_odd_delimiter(behind) || opens_more(behind),
            _ => true,
        };
        if odd {
            return true;
        }
        rest = behind;
    }
    false
}

/// Whether the rest of the line begins a substitution, or opens something that it does not close: the parser would read
/// the document inside of it.
fn opens_more(behind: &str) -> bool {
    let line = behind.split('\n').next().unwrap_or_default();
    let count = |of: [char; 2]| line.matches(of).count();
    ["$(", "`", "$["].iter().any(|opener| line.contains(opener))
        || count(['(', '{']) > count([')', '}'])
        || line.matches(['`', '\'', '"']).count() % 2 == 1
}

fn is_odd_delimiter(behind: &str) -> bool {
    let word = behind.trim_start_matches('-').trim_start_matches([' ', '\t']);
    let word = word.strip_prefix('\\').unwrap_or(word);
    let quote = word.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let word = quote.map_or(word, |_| &word[1..]);
    let plain = |c: char| c.is_alphanumeric() || "_-.+:@%/,!=".contains(c);
    let after = word.trim_start_matches(plain);
    let empty = after.len() == word.len();
    let after = match quote {
        Some(quote) => after.strip_prefix(quote),
        None => Some(after),
    };
    let ends =
        |after: &str| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n', ';', '|', '&', '>', ')']);
    empty || !after.is_some_and(ends)
}

/// The most brackets that are open at one point, whatever they mean.
fn open_brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'{' => open += 1,
            b')' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    let backquotes = text.bytes().filter(|b| *b == b'`').count();
    most + if backquotes > 64 { backquotes } else { 0 }
}

/// Refuses what the parser would take too long or too much stack for.
fn measure(tokens: &[Token]) -> Result<(), String> {
    let (mut brackets, mut compound) = (0_usize, 0_usize);
    for token in tokens {
        match token {
            Token::Operator(text, _) => match text.as_str() {
                "(" | "((" => brackets += 1,
                ")" | "))" => brackets = brackets.saturating_sub(1),
                _ => {}
            },
            Token::Word(text, _) => match text.as_str() {
                "case" => brackets += 1,
                "esac" => brackets = brackets.saturating_sub(1),
                "if" | "while" | "until" | "for" | "select" | "{" | "[[" | "!" | "coproc" | "function" => {
                    compound += 1;
                }
                "fi" | "done" | "}" | "]]" => compound = compound.saturating_sub(1),
                word if word.contains(['(', '{']) && open_brackets(word) > MAX_DEPTH => {
                    return Err("it nests too deeply".into());
                }
                _ => {}
            },
        }
        if brackets > MAX_DEPTH || compound > MAX_COMPOUND {
            return Err("it nests too deeply".into());
        }
    }
    Ok(())
}

/// Visits every simple command.
fn each_simple(program: &ast::Program, visit: &mut dyn FnMut(&SimpleCommand)) {
    program.complete_commands.iter().for_each(|list| list_commands(list, visit));
}

fn list_commands(list: &CompoundList, visit: &mut dyn FnMut(&SimpleCommand)) {
    for item in &list.0 {
        let rest = item.0.additional.iter().map(|next| match next {
            AndOr::And(pipeline) | AndOr::Or(pipeline) => pipeline,
        });
        for pipeline in std::iter::once(&item.0.first).chain(rest) {
            pipeline.seq.iter().for_each(|command| command_commands(command, visit));
        }
    }
}

fn command_commands(command: &Command, visit: &mut dyn FnMut(&SimpleCommand)) {
    match command {
        Command::Simple(simple) => {
            visit(simple);
            for item in items_of(simple) {
                if let Item::ProcessSubstitution(_, subshell) = item {
                    list_commands(&subshell.list, visit);
                }
            }
        }
        Command::Compound(compound, _) => compound_commands(compound, visit),
        Command::Function(function) => compound_commands(&function.body.0, visit),
        Command::ExtendedTest(..) => {}
    }
}

fn compound_commands(compound: &CompoundCommand, visit: &mut dyn FnMut(&SimpleCommand)) {
    match compound {
        CompoundCommand::Arithmetic(_) => {}
        CompoundCommand::ArithmeticForClause(clause) => list_commands(&clause.body.list, visit),
        CompoundCommand::BraceGroup(group) => list_commands(&group.list, visit),
        CompoundCommand::Subshell(subshell) => list_commands(&subshell.list, visit),
        CompoundCommand::ForClause(clause) => list_commands(&clause.body.list, visit),
        CompoundCommand::CaseClause(clause) => {
            clause
                .cases
                .iter()
                .filter_map(|case| case.cmd.as_ref())
                .for_each(|list| list_commands(list, visit));
        }
        CompoundCommand::IfClause(clause) => {
            list_commands(&clause.condition, visit);
            list_commands(&clause.then, visit);
            for part in clause.elses.iter().flatten() {
                part.condition.iter().for_each(|list| list_commands(list, visit));
                list_commands(&part.body, visit);
            }
        }
        CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
            list_commands(&clause.0, visit);
            list_commands(&clause.1.list, visit);
        }
        CompoundCommand::Coprocess(coprocess) => command_commands(&coprocess.body, visit),
    }
}

fn items_of(simple: &SimpleCommand) -> impl Iterator<Item = &Item> {
    let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    prefix.chain(simple.suffix.iter().flat_map(|suffix| &suffix.0))
}

/// The command's name and arguments.
fn words_of(simple: &SimpleCommand) -> Vec<&Word> {
    let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
    let arguments = suffix.filter_map(|item| match item {
        Item::Word(word) | Item::AssignmentWord(_, word) => Some(word),
        _ => None,
    });
    simple.word_or_name.iter().chain(arguments).collect()
}

/// The same and the assignments before it.
fn all_words(simple: &SimpleCommand) -> impl Iterator<Item = &Word> {
    let items = items_of(simple).filter_map(|item| match item {
        Item::Word(word) | Item::AssignmentWord(_, word) => Some(word),
        _ => None,
    });
    simple.word_or_name.iter().chain(items)
}

/// Notes where the commands of `$(…)` and of backquotes outside of quotes stand.
fn substitutions(word: &Word, chars: &CharIndex<'_>, inner: &mut Vec<(usize, usize)>) {
    if !word.value.contains(['(', '`']) || word.value.contains('\\') {
        return;
    }
    let Some((start, end)) = chars.range(word) else { return };
    let Ok(pieces) = brush_parser::word::parse(&word.value, &ParserOptions::default()) else { return };
    for WordPieceWithSource { piece, .. } in &pieces {
        let (WordPiece::CommandSubstitution(text) | WordPiece::BackquotedCommandSubstitution(text)) = piece
        else {
            continue;
        };
        // The place is found in the text itself, since the parser counts a piece's place in its own way.
        if let Some(whole) = chars.text.get(start..end)
            && let Some(at) = whole.find(text.as_str())
            && whole.matches(text.as_str()).count() == 1
        {
            inner.push((start + at, start + at + text.len()));
        }
    }
}

/// The bytes inside a word that is one quoted text without escapes.
fn quoted_text(word: &Word, chars: &CharIndex<'_>) -> Option<(usize, usize)> {
    let (start, end) = chars.range(word)?;
    let inside = unquoted(&word.value);
    let whole = inside.len() + 2 == word.value.len() && !inside.contains(['\\', '`']);
    whole.then_some((start + 1, end - 1))
}

/// A word without the one pair of quotes around it.
fn unquoted(word: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inside) = word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
            && !inside.contains(quote)
        {
            return inside;
        }
    }
    word
}

/// The parser counts characters; a text is cut by bytes.
struct CharIndex<'a> {
    text: &'a str,
    /// Byte offsets of all characters, where the two differ.
    bytes: Option<Vec<usize>>,
}

impl<'a> CharIndex<'a> {
    fn new(text: &'a str) -> Self {
        let bytes = (!text.is_ascii())
            .then(|| text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len())).collect());
        Self { text, bytes }
    }

    fn byte(&self, index: usize) -> usize {
        match &self.bytes {
            None => index.min(self.text.len()),
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.text.len()),
        }
    }

    /// The bytes of a word, if they really hold it.
    fn range(&self, word: &Word) -> Option<(usize, usize)> {
        let span = word.loc.as_ref()?;
        let (start, end) = (self.byte(span.start.index), self.byte(span.end.index));
        // Behind a `\` at a line's end the parser counts the blanks of the next line in.
        let first = end.checked_sub(word.value.len()).filter(|&first| first >= start)?;
        let blank = self.text.get(start..first)?.chars().all(|c| c.is_whitespace() || c == '\\');
        (blank && self.text.get(first..end)? == word.value).then_some((first, end))
    }
}
