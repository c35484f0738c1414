//! Compound commands and functions.

use super::{Read, Reader};

impl Reader<'_> {
    /// Parses a command of a pipeline.
    pub(super) fn command(&mut self) -> Read {
        self.blanks();
        if self.compound()? {
            return self.redirections();
        }
        if self.at_closing_word() {
            return self.fail("something is closed that was not opened");
        }
        self.simple()
    }

    /// Parses a compound command, if one begins here.
    pub(super) fn compound(&mut self) -> Read<bool> {
        if self.looking_at("((") && self.arithmetic_command()? {
            return Ok(true);
        }
        if self.eat("(") {
            self.some_list()?;
            self.expect(")")?;
        } else if self.eat_word("{") {
            self.some_list()?;
            self.expect_word("}")?;
        } else if self.eat_word("if") {
            self.if_clause()?;
        } else if self.eat_word("while") || self.eat_word("until") {
            self.some_list()?;
            self.do_group()?;
        } else if self.eat_word("for") || self.eat_word("select") {
            self.for_clause()?;
        } else if self.eat_word("case") {
            self.case_clause()?;
        } else if self.eat_word("[[") {
            self.conditional()?;
        } else if self.eat_word("function") {
            self.blanks();
            self.word()?;
            self.blanks();
            if self.eat("(") {
                self.expect(")")?;
            }
            self.function_body()?;
        } else if self.at_word("coproc") {
            return self.not_understood("`coproc` is not understood");
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Parses the body after `name()`.
    pub(super) fn function_body(&mut self) -> Read {
        self.newlines()?;
        let read = self.deeper(Self::compound)?;
        if read { self.redirections() } else { self.fail("the function has no body") }
    }

    fn arithmetic_command(&mut self) -> Read<bool> {
        let start = self.at;
        if !self.arithmetic(2)? {
            return Ok(false);
        }
        self.on_one_line(start)?;
        Ok(true)
    }

    fn if_clause(&mut self) -> Read {
        self.some_list()?;
        self.expect_word("then")?;
        self.some_list()?;
        while self.eat_word("elif") {
            self.some_list()?;
            self.expect_word("then")?;
            self.some_list()?;
        }
        if self.eat_word("else") {
            self.some_list()?;
        }
        self.expect_word("fi")
    }

    fn do_group(&mut self) -> Read {
        self.expect_word("do")?;
        self.some_list()?;
        self.expect_word("done")
    }

    fn for_clause(&mut self) -> Read {
        self.blanks();
        if self.looking_at("((") {
            if !self.arithmetic_command()? {
                return self.not_understood("the head of `for` cannot be read");
            }
        } else {
            self.word()?;
            self.newlines()?;
            if self.eat_word("in") {
                self.words_of_line()?;
            }
        }
        self.blanks();
        if self.peek() == Some(b';') {
            self.at += 1;
        }
        self.newlines()?;
        if self.eat_word("{") {
            self.some_list()?;
            return self.expect_word("}");
        }
        self.do_group()
    }

    fn words_of_line(&mut self) -> Read {
        loop {
            self.blanks();
            if matches!(self.peek(), None | Some(b';' | b'\n')) {
                return Ok(());
            }
            self.word()?;
        }
    }

    fn case_clause(&mut self) -> Read {
        self.blanks();
        self.word()?;
        self.newlines()?;
        self.expect_word("in")?;
        loop {
            self.newlines()?;
            if self.eat_word("esac") {
                return Ok(());
            }
            self.eat("(");
            self.patterns()?;
            self.list()?;
            self.blanks();
            if !(self.eat(";;&") || self.eat(";;") || self.eat(";&")) {
                return self.expect_word("esac");
            }
        }
    }

    /// Parses `a | b)`.
    fn patterns(&mut self) -> Read {
        loop {
            self.blanks();
            self.word()?;
            self.blanks();
            if !self.eat("|") {
                return self.expect(")");
            }
        }
    }
}
