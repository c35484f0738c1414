//! Quotes and splits words of a POSIX shell.

/// Quotes a word for a shell.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Splits a command line into words; none if a quote is not closed.
pub fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut open, mut any) = (Vec::new(), String::new(), None, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (Some(quote), c) if c == quote => open = None,
            (Some('"') | None, '\\') => {
                word.push(chars.next()?);
                any = true;
            }
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (open, any) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (None, c) => {
                word.push(c);
                any = true;
            }
        }
    }
    if open.is_some() {
        return None;
    }
    if any {
        words.push(word);
    }
    Some(words)
}

/// Joins the lines of a pasted command. A backslash before the end of a line continues it as in a shell. A line end
/// inside quotes is kept, any other becomes a blank. Terminals paste line ends as carriage returns.
pub fn one_line(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut joined, mut quote) = (String::new(), None);
    let mut chars = text.trim_matches('\n').chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quote != Some('\'') => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => joined.extend(['\\', escaped]),
            },
            '\n' | '\t' if quote.is_none() => joined.push(' '),
            '\t' => joined.push(' '),
            '\'' | '"' => {
                quote = match quote {
                    None => Some(c),
                    Some(open) if open == c => None,
                    open => open,
                };
                joined.push(c);
            }
            c => joined.push(c),
        }
    }
    joined
}

/// Returns a text as it is drawn on one line: a line end is a sign.
pub fn on_one_line(text: &str) -> String {
    text.replace('\n', "⏎")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes_are_inverse() {
        for list in
            [vec!["python", "train.py", "--lr", "1e-4"], vec!["sh", "-c", "echo 'a b' \"$X\" \\"], vec![""]]
        {
            let line: Vec<String> = list.iter().map(|word| quote(word)).collect();
            assert_eq!(words(&line.join(" ")).unwrap(), list);
        }
        assert_eq!(words("a 'b"), None);
    }

    #[test]
    fn pasted_lines_are_the_words_of_a_shell() {
        for end in ["\n", "\r", "\r\n"] {
            let pasted = format!(
                "python tr\\{end}ain.py \\{end}\t--lr 1 \\{end}  --name 'a \"b{end}c' \"c\\{end} d\" \\\\{end}last{end}"
            );
            let wanted = ["python", "train.py", "--lr", "1", "--name", "a \"b\nc", "c d", "\\", "last"];
            assert_eq!(words(&one_line(&pasted)).unwrap(), wanted);
        }
    }
}
