//! Quoting for a POSIX shell, so that data is never executed.

use weftrun_core::{Error, ErrorKind, Result};

/// Quotes one word for `sh` and `bash`: plain words are unchanged, all others are put into single quotes.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a NUL byte, which no shell supports.
pub fn word(text: &str) -> Result<String> {
    refuse_nul(text)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Returns shell code that sets `limit` to a prefix that ends a command after some seconds, if the host has
/// `timeout`.
pub fn limit(seconds: u64) -> String {
    format!("limit=\nif command -v timeout > /dev/null 2>&1; then limit='timeout -k 2 {seconds}'; fi\n")
}

/// Quotes a command line.
///
/// # Errors
/// As [`word`].
pub fn words<S: AsRef<str>>(argv: impl IntoIterator<Item = S>) -> Result<String> {
    Ok(argv.into_iter().map(|arg| word(arg.as_ref())).collect::<Result<Vec<_>>>()?.join(" "))
}

/// Quotes the right side of an assignment, where values such as `a=b` or `~` need quotes too.
///
/// # Errors
/// As [`word`].
pub fn value(text: &str) -> Result<String> {
    let quoted = word(text)?;
    // `~` after a `:` or at the start of an assignment would be expanded.
    Ok(if quoted.starts_with('\'') || !text.contains(['~', '=']) { quoted } else { format!("'{text}'") })
}

/// Returns shell code that runs `command` with `text` as its standard input, byte for byte, under `dash` and
/// `bash`.
///
/// Text that ends with a newline becomes a readable here-document. Other text goes through `printf`: a
/// here-document would add a newline, and sbatch refuses a script with a carriage return before a newline.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a NUL byte: shells drop it, and a line of the text could then become the
/// delimiter.
pub fn feed(command: &str, text: &str) -> Result<String> {
    refuse_nul(text)?;
    if text.contains('\r') {
        return Ok(format!("printf {} | {command}\n", printf_format(text)));
    }
    if !text.ends_with('\n') {
        return Ok(format!("printf %s {} | {command}\n", word(text)?));
    }
    let end = delimiter(text);
    Ok(format!("{command} <<'{end}'\n{text}{end}\n"))
}

/// Returns a delimiter that occurs nowhere in the text, not even as a part of a line: if a shell or a
/// transport drops bytes from a line, it still cannot become the delimiter. One pass over the text,
/// regardless of how many delimiters it contains.
fn delimiter(text: &str) -> String {
    const END: &str = "WEFTRUN_END";
    if !text.contains(END) {
        return END.to_owned();
    }
    let taken: std::collections::BTreeSet<u32> = text
        .match_indices(END)
        .filter_map(|(at, _)| text.get(at + END.len() + 1..at + END.len() + 9))
        .filter_map(|digits| u32::from_str_radix(digits, 16).ok())
        .collect();
    let free = (0..u32::MAX).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
    format!("{END}_{free:08x}")
}

/// Returns a text as the format of `printf`, one quoted piece per line. Everything but printable ASCII is
/// escaped.
fn printf_format(text: &str) -> String {
    let piece = |line: &str| {
        let mut quoted = String::from("'");
        for byte in line.bytes() {
            match byte {
                b'\n' => quoted.push_str("\\n"),
                b'%' => quoted.push_str("%%"),
                b'\\' => quoted.push_str("\\\\"),
                b'\'' => quoted.push_str("'\\''"),
                b' '..=b'~' => quoted.push(char::from(byte)),
                _ => quoted.push_str(&format!("\\{byte:03o}")),
            }
        }
        quoted.push('\'');
        quoted
    };
    text.split_inclusive('\n').map(piece).collect::<Vec<_>>().join("\\\n")
}

/// Refuses characters that a script cannot contain, in a line that is inserted unchanged.
///
/// # Errors
/// As [`word`].
pub fn line(text: &str) -> Result<()> {
    refuse_nul(text)
}

fn refuse_nul(text: &str) -> Result<()> {
    let Some(at) = text.find('\0') else { return Ok(()) };
    let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
    Err(Error::new(ErrorKind::InvalidSpec, "a NUL byte cannot be passed through a shell")
        .with("line", line)
        .hint("remove the NUL byte from the field that holds it"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;

    use proptest::prelude::*;

    use super::*;
    use weftrun_testkit::child;

    const SHELLS: [&str; 2] = ["dash", "bash"];

    /// Runs a script that a shell reads from its standard input, and returns its output.
    fn run(shell: &str, script: &str) -> Vec<u8> {
        let mut child = child::command(shell)
            .arg("-s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell runs");
        child.stdin.take().expect("stdin").write_all(script.as_bytes()).expect("script is written");
        child.wait_with_output().expect("the shell ends").stdout
    }

    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("'".to_owned()),
            Just("\"".to_owned()),
            Just("$HOME".to_owned()),
            Just("$(id)".to_owned()),
            Just("`id`".to_owned()),
            Just("\n".to_owned()),
            Just(";".to_owned()),
            Just("\\".to_owned()),
            Just("!".to_owned()),
            Just("~".to_owned()),
            Just("*".to_owned()),
            Just("WEFTRUN_END\n".to_owned()),
            Just("WEFTRUN_END_00000000\n".to_owned()),
            Just("\nWEFTRUN_END".to_owned()),
            Just("%s\\n\\101".to_owned()),
            Just("\u{1}\u{7f}\u{81}ā\u{2028}".to_owned()),
            Just("\r\n".to_owned()),
            Just("x".repeat(200_000)),
            Just("a=b".to_owned()),
            Just("é🦀".to_owned()),
            Just("\r".to_owned()),
            Just(" ".to_owned()),
            "[ -~]{0,8}",
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn hostile_words_come_back_as_data(args in proptest::collection::vec(hostile(), 1..6)) {
            let script = format!("printf '%s\\0' {}\n", words(&args).expect("no NUL"));
            let expected: Vec<u8> = args.iter().flat_map(|arg| arg.bytes().chain([0])).collect();
            for shell in SHELLS {
                prop_assert_eq!(run(shell, &script), expected.clone(), "{}", shell);
            }
        }

        #[test]
        fn hostile_values_come_back_from_the_environment(text in hostile()) {
            let script = format!("export X={}\nprintf %s \"$X\"\n", value(&text).expect("no NUL"));
            for shell in SHELLS {
                prop_assert_eq!(run(shell, &script), text.clone().into_bytes(), "{}", shell);
            }
        }

        #[test]
        fn fed_text_arrives_byte_for_byte_and_what_follows_runs(text in hostile()) {
            for shell in SHELLS {
                let script = format!("{}echo behind\n", feed("cat", &text).expect("no NUL"));
                prop_assert_eq!(run(shell, &script), format!("{text}behind\n").into_bytes(), "{}", shell);
            }
        }
    }

    #[test]
    fn a_nul_ends_no_here_document() {
        let text = "print(1)\nWEFTRUN_END\0_\ntouch canary\n";
        let refused = feed("cat", text).expect_err("NUL");
        assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
        assert!(refused.to_string().contains("NUL"), "{refused}");
    }

    #[test]
    fn no_delimiter_occurs_in_its_text() {
        let numbered: String = (0..40_000).map(|number| format!("WEFTRUN_END_{number:08x}\n")).collect();
        let long = format!("WEFTRUN_END{}\n", "_".repeat(1 << 20));
        for text in ["WEFTRUN_END\n", "WEFTRUN_END_00000000é\n", numbered.as_str(), long.as_str()] {
            assert!(!text.contains(&delimiter(text)), "{}", delimiter(text));
        }
        assert_eq!(delimiter("x\n"), "WEFTRUN_END");
    }

    #[test]
    fn what_no_shell_can_carry_is_refused() {
        assert_eq!(word("a\0b").expect_err("NUL").kind(), ErrorKind::InvalidSpec);
    }
}
