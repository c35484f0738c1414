//! Parses `[[ … ]]`.

use super::{Read, Reader, ends_word};

impl Reader<'_> {
    /// Parses the text after `[[`, to its end.
    pub(super) fn conditional(&mut self) -> Read {
        let mut open = 0_usize;
        loop {
            self.newlines()?;
            match self.peek() {
                None => return self.fail("`]]` is missing"),
                Some(b']') if open == 0 && self.eat_word("]]") => return Ok(()),
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b')') if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                Some(b'<' | b'>') if self.peek_at(1) != Some(b'(') => self.at += 1,
                Some(b'&') if self.eat("&&") => {}
                Some(b'|') if self.eat("||") => {}
                Some(_) if self.eat_word("=~") => self.regular_expression()?,
                Some(_) => self.word()?,
            }
        }
    }

    /// Parses a regular expression, which may contain brackets and bars.
    fn regular_expression(&mut self) -> Read {
        self.blanks();
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => {
                    open += 1;
                    self.at += 1;
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                b'|' | b'<' | b'>' => self.at += 1,
                b'\n' => break,
                _ if open == 0 && ends_word(Some(byte), self.peek_at(1)) => break,
                _ => self.piece(false)?,
            }
        }
        if open == 0 { Ok(()) } else { self.fail("a regular expression has no end") }
    }
}
