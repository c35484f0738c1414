//! Words for a POSIX shell: data stay data.

use weftrun_core::{Error, ErrorKind, Result};

/// Quotes one word for `sh` and `bash`: plain words stay as they are, everything else goes into single quotes.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a NUL byte, which no shell can carry.
pub fn word(text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::new(ErrorKind::InvalidSpec, "a NUL byte cannot be passed to a program")
            .with("value", text.replace('\0', "\\0")));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Quotes a command line.
///
/// # Errors
/// As [`word`].
pub fn words<S: AsRef<str>>(argv: impl IntoIterator<Item = S>) -> Result<String> {
    Ok(argv.into_iter().map(|arg| word(arg.as_ref())).collect::<Result<Vec<_>>>()?.join(" "))
}

/// Quotes the right side of an assignment, where a value that looks like `a=b` or `~` needs quotes too.
///
/// # Errors
/// As [`word`].
pub fn value(text: &str) -> Result<String> {
    let quoted = word(text)?;
    // `~` behind a `:` or at the start of an assignment would be expanded.
    Ok(if quoted.starts_with('\'') || !text.contains(['~', '=']) { quoted } else { format!("'{text}'") })
}

/// Wraps a text in a here-document that no line of the text can end. The text ends with a newline afterwards, as
/// here-documents do.
pub fn here_document(text: &str) -> (String, String) {
    let mut end = String::from("WEFTRUN_END");
    while text.lines().any(|line| line == end) {
        end.push('_');
    }
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    (format!("<<'{end}'"), format!("{text}{newline}{end}"))
}

/// A value of an `#SBATCH` line. sbatch reads these lines itself, not the shell: double quotes keep blanks and `#`, a
/// backslash keeps the next byte (source: `_get_next_opt`, slurm 22.05 `src/sbatch/opt.c`).
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for control characters, which end the line or disturb Slurm's own output.
pub fn directive(name: &str, text: &str) -> Result<String> {
    if text.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::InvalidSpec, format!("`{name}` may not hold control characters"))
            .with("value", text.escape_debug()));
    }
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,&|*[]()~!<>^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    /// What a shell that reads `script` on its standard input prints.
    fn bash(script: &str) -> Vec<u8> {
        let mut child = Command::new("bash")
            .arg("-s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash runs");
        child.stdin.take().expect("stdin").write_all(script.as_bytes()).expect("script is written");
        child.wait_with_output().expect("bash ends").stdout
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
            prop_assert_eq!(bash(&script), expected);
        }

        #[test]
        fn hostile_values_come_back_from_the_environment(text in hostile()) {
            let script = format!("export X={}\nprintf %s \"$X\"\n", value(&text).expect("no NUL"));
            prop_assert_eq!(bash(&script), text.into_bytes());
        }

        #[test]
        fn here_documents_end_where_they_should(text in hostile()) {
            let (start, rest) = here_document(&text);
            let script = format!("cat {start}\n{rest}\necho behind\n");
            let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            prop_assert_eq!(bash(&script), format!("{text}{newline}behind\n").into_bytes());
        }
    }

    #[test]
    fn what_no_shell_can_carry_is_refused() {
        assert_eq!(word("a\0b").expect_err("NUL").kind(), ErrorKind::InvalidSpec);
        assert_eq!(directive("account", "a\nb").expect_err("newline").kind(), ErrorKind::InvalidSpec);
        assert_eq!(directive("comment", "a \"b\" #c").expect("fits"), r#""a \"b\" #c""#);
    }
}
