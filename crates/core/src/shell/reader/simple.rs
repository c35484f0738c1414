//! Simple commands: assignments, words and redirections.

use super::{Read, Reader, Simple};

/// Longest first.
const REDIRECTIONS: [&str; 12] = ["&>>", "<<<", "<<-", "&>", "<<", "<>", "<&", ">>", ">|", ">&", "<", ">"];

impl Reader<'_> {
    pub(super) fn simple(&mut self) -> Read {
        let (mut words, mut anything) = (Vec::new(), false);
        loop {
            self.blanks();
            if self.redirection()? {
                anything = true;
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'(') if words.len() == 1 && !anything => return self.function(),
                _ => {}
            }
            let start = self.at;
            let assigns = words.is_empty() && self.assigned_at().is_some();
            self.word()?;
            if assigns {
                anything = true;
            } else {
                words.push(start..self.at);
            }
        }
        if !words.is_empty() {
            self.contents.commands.push(Simple { words, place: self.place });
        } else if !anything {
            return self.fail("a command is missing");
        }
        Ok(())
    }

    fn function(&mut self) -> Read {
        self.at += 1;
        self.expect(")")?;
        self.function_body()
    }

    pub(super) fn redirections(&mut self) -> Read {
        loop {
            self.blanks();
            if !self.redirection()? {
                return Ok(());
            }
        }
    }

    /// Parses a redirection with its target, if one begins here.
    fn redirection(&mut self) -> Read<bool> {
        let number = self.descriptor();
        let rest = &self.bytes[self.at + number..self.end];
        let Some(operator) = REDIRECTIONS.iter().find(|operator| rest.starts_with(operator.as_bytes()))
        else {
            return Ok(false);
        };
        let substitutes = operator.len() == 1 && rest.get(1) == Some(&b'(');
        if substitutes || (number > 0 && operator.starts_with('&')) {
            return Ok(false);
        }
        if number > 9 && self.bytes[self.at].is_ascii_digit() {
            return self.fail("a file descriptor's number is too large");
        }
        self.at += number + operator.len();
        self.blanks();
        match *operator {
            "<<" => self.delimiter(false)?,
            "<<-" => self.delimiter(true)?,
            _ => self.word()?,
        }
        Ok(true)
    }

    /// Returns the length of `2>` or `{fd}>` before the operator.
    fn descriptor(&self) -> usize {
        let rest = &self.bytes[self.at..self.end];
        let length = if rest.first() == Some(&b'{') {
            let name = name_length(&rest[1..]);
            if name > 0 && rest.get(name + 1) == Some(&b'}') { name + 2 } else { 0 }
        } else {
            rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        if matches!(rest.get(length), Some(b'<' | b'>')) { length } else { 0 }
    }

    /// Returns where the value begins, if `NAME=`, `NAME+=` or `NAME[…]=` is next.
    pub(super) fn assigned_at(&self) -> Option<usize> {
        let rest = &self.bytes[self.at..self.end];
        let mut at = name_length(rest);
        if at == 0 {
            return None;
        }
        if rest.get(at) == Some(&b'[') {
            let index = rest[at..].iter().position(|byte| matches!(byte, b']' | b' ' | b'\n'))?;
            (rest[at + index] == b']').then_some(())?;
            at += index + 1;
        }
        if rest.get(at) == Some(&b'+') {
            at += 1;
        }
        (rest.get(at) == Some(&b'=')).then_some(self.at + at + 1)
    }
}

/// Returns the length of the variable's name at the start.
fn name_length(bytes: &[u8]) -> usize {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if bytes.first().is_some_and(u8::is_ascii_digit) { 0 } else { length }
}
