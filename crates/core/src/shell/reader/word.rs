//! Words: quotes, expansions and substitutions.

use super::{Construct, Read, Reader, ends_word};

impl Reader<'_> {
    /// Parses one word, or an assignment of a list.
    pub(super) fn word(&mut self) -> Read {
        let start = self.at;
        let value = self.assigned_at();
        self.pieces()?;
        if value == Some(self.at) && self.eat("(") {
            self.elements()?;
        }
        if self.at == start {
            return self.fail("a word is missing");
        }
        self.on_one_line(start)
    }

    /// Parses `a b c)` of `NAME=(a b c)`.
    fn elements(&mut self) -> Read {
        loop {
            self.newlines()?;
            if self.eat(")") {
                return Ok(());
            }
            let start = self.at;
            self.pieces()?;
            if self.at == start {
                return self.fail("a list of values has no end");
            }
        }
    }

    fn pieces(&mut self) -> Read {
        let start = self.at;
        while let Some(byte) = self.peek() {
            let substitutes = matches!(byte, b'<' | b'>') && self.peek_at(1) == Some(b'(');
            if substitutes {
                self.at += 2;
                self.nested(self.place)?;
                continue;
            }
            if byte == b'(' && self.at > start && b"?*+@!".contains(&self.bytes[self.at - 1]) {
                self.pattern()?;
                continue;
            }
            if ends_word(Some(byte), self.peek_at(1)) {
                let joined = self.joined_lines();
                if joined == 0 {
                    return Ok(());
                }
                self.skip(joined);
                continue;
            }
            self.piece(false)?;
        }
        Ok(())
    }

    /// Returns the length of the `\` and line ends that are next, if the word continues after them.
    fn joined_lines(&self) -> usize {
        let mut ahead = 0;
        while self.peek_at(ahead) == Some(b'\\') && self.peek_at(ahead + 1) == Some(b'\n') {
            ahead += 2;
        }
        if ends_word(self.peek_at(ahead), self.peek_at(ahead + 1)) { 0 } else { ahead }
    }

    /// Parses the next character, or what it quotes or begins.
    pub(super) fn piece(&mut self, quoted: bool) -> Read {
        match self.peek() {
            Some(b'\\') => self.skip(2),
            Some(b'\'') if !quoted => self.single()?,
            Some(b'"') if !quoted => self.double()?,
            Some(b'`') => self.backquotes(quoted)?,
            Some(b'$') => self.dollar(quoted)?,
            _ => self.skip(1),
        }
        Ok(())
    }

    /// Moves past the next such byte.
    fn behind_next(&mut self, byte: u8, what: &str) -> Read {
        match self.bytes[self.at..self.end].iter().position(|each| *each == byte) {
            Some(length) => {
                self.at += length + 1;
                Ok(())
            }
            None => self.fail(&format!("{what} has no end")),
        }
    }

    fn single(&mut self) -> Read {
        self.at += 1;
        self.behind_next(b'\'', "a quoted text")
    }

    fn double(&mut self) -> Read {
        self.at += 1;
        loop {
            match self.peek() {
                None => return self.fail("a quoted text has no end"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => self.piece(true)?,
            }
        }
    }

    fn dollar(&mut self, quoted: bool) -> Read {
        match self.peek_at(1) {
            Some(b'(') => {
                if self.peek_at(2) == Some(b'(') && self.arithmetic(3)? {
                    return Ok(());
                }
                self.at += 2;
                let quoted = quoted || self.place == Construct::Quoted;
                self.nested(if quoted { Construct::Quoted } else { Construct::Substitution })
            }
            Some(b'{') => {
                self.at += 2;
                self.deeper(|reader| reader.expansion(quoted))
            }
            Some(b'[') => self.brackets(),
            Some(b'\'') if !quoted => self.escaped(),
            _ => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Parses `$'…'`, where a `\'` is a quote to bash and the end to a plain shell.
    fn escaped(&mut self) -> Read {
        self.at += 1;
        let start = self.at;
        self.single()?;
        if self.bytes[start..self.at].ends_with(b"\\'") {
            return self.not_understood("shells do not agree on where a quoted text ends");
        }
        Ok(())
    }

    /// Parses `$[…]`, the obsolete arithmetic expansion.
    fn brackets(&mut self) -> Read {
        let start = self.at;
        self.behind_next(b']', "an expression")?;
        let inside = &self.bytes[start + 2..self.at];
        let substitutes = inside.windows(2).any(|pair| matches!(pair, b"$(" | b"$["));
        if substitutes || inside.iter().any(|byte| b"[\"'\\`\n".contains(byte)) {
            return self.not_understood("an expression in `$[…]` is not understood");
        }
        Ok(())
    }

    /// Parses the commands of a substitution, to its `)`.
    fn nested(&mut self, place: Construct) -> Read {
        self.inside(place, |reader| {
            reader.list()?;
            if reader.waiting.is_empty() {
                reader.expect(")")
            } else {
                reader.not_understood("a here-document begins in a substitution and has no text there")
            }
        })
    }

    fn backquotes(&mut self, quoted: bool) -> Read {
        let start = self.at + 1;
        let mut at = start;
        while at < self.end && self.bytes[at] != b'`' {
            at += if self.bytes[at] == b'\\' { 2 } else { 1 };
        }
        if at >= self.end {
            return self.fail("backquotes have no end");
        }
        // With escapes, a place in the text does not correspond to a place in the command.
        let looked_into =
            !quoted && self.place != Construct::Quoted && !self.bytes[start..at].contains(&b'\\');
        if looked_into {
            let end = std::mem::replace(&mut self.end, at);
            self.at = start;
            self.inside(Construct::Substitution, |reader| {
                reader.list()?;
                reader.ends_here()
            })?;
            self.end = end;
        }
        self.at = at + 1;
        Ok(())
    }

    /// Parses the inside of a substitution, whose here-documents are its own.
    fn inside(&mut self, place: Construct, read: impl FnOnce(&mut Self) -> Read) -> Read {
        let waits = self.waits_outside;
        let waiting = std::mem::take(&mut self.waiting);
        let around = std::mem::replace(&mut self.place, place);
        self.waits_outside |= !waiting.is_empty();
        self.deeper(read)?;
        (self.waits_outside, self.waiting, self.place) = (waits, waiting, around);
        Ok(())
    }

    /// Parses the text after `${`, to its `}`.
    fn expansion(&mut self, quoted: bool) -> Read {
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|' | b'(')) {
            return self.not_understood("a substitution in `${ …; }` is not understood");
        }
        loop {
            match self.peek() {
                None => return self.fail("an expansion has no end"),
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                // In a quoted expansion it depends on the operator and the shell whether this is a quote.
                Some(b'\'') if quoted => {
                    let start = self.at;
                    self.single()?;
                    if self.bytes[start..self.at].iter().any(|byte| b"}\"`$\\\n".contains(byte)) {
                        return self.not_understood("shells do not agree on where an expansion ends");
                    }
                }
                Some(b'"') if quoted => self.double()?,
                Some(_) => self.piece(quoted)?,
            }
        }
    }

    /// Parses an arithmetic expression, to its `))`; `opened` is the length of its `((`. Returns false, and
    /// reads nothing, if these are two nested subshells instead. Commands inside the expression are
    /// ignored.
    pub(super) fn arithmetic(&mut self, opened: usize) -> Read<bool> {
        let before = self.at;
        self.at += opened;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => return self.fail("an expression has no end"),
                Some(b')') if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                Some(b')') if self.peek_at(1) == Some(b')') => {
                    self.at += 2;
                    return Ok(true);
                }
                Some(b')') => {
                    self.at = before;
                    return Ok(false);
                }
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b'\\') => self.skip(2),
                Some(byte @ (b'\'' | b'"' | b'`')) => {
                    self.at += 1;
                    self.behind_next(byte, "a quoted text")?;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// Parses `(a|b)` of an extended pattern.
    fn pattern(&mut self) -> Read {
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None | Some(b'\n') => return self.fail("a pattern has no end"),
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b')') => {
                    open -= 1;
                    self.at += 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                Some(_) => self.piece(false)?,
            }
        }
    }
}
