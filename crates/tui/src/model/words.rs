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
}
