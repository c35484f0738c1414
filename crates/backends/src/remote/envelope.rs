//! Wraps a program in shell code, and extracts its output from what came back.

use super::Answer;

/// The two marker lines of one call.
#[derive(Debug)]
pub struct Envelope {
    nonce: String,
}

impl Envelope {
    /// Creates an envelope with random markers, which no output contains by chance.
    #[allow(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self { nonce: format!("{:032x}", fastrand::u128(..)) }
    }

    /// Returns the whole text for `/bin/sh`.
    pub fn wrap(&self, preamble: &str, program: &str) -> String {
        let Self { nonce } = self;
        let newline = if program.ends_with('\n') { "" } else { "\n" };
        format!(
            "weftrun_main() {{\nprintf '%s<\\n' {nonce}; printf '%s<\\n' {nonce} >&2\n{preamble}(\n{program}{newline}) < /dev/null\n\
             weftrun_code=$?\nprintf '%s>%d\\n' {nonce} $weftrun_code; printf '%s>\\n' {nonce} >&2\n}}\nweftrun_main\n"
        )
    }

    /// Returns the whole text for a program whose output is read as it comes. Its descriptor 3 is the input
    /// of the shell, which ends when the caller is gone.
    pub fn wrap_open(&self, preamble: &str, program: &str) -> String {
        let text = self.wrap(preamble, program);
        let (begin, end) = ("weftrun_main() {\n", "\n}\nweftrun_main\n");
        let text = text.strip_prefix(begin).and_then(|text| text.strip_suffix(end)).unwrap_or_default();
        format!("{begin}exec 3<&0\n{text}\nexit 0{end}")
    }

    /// Returns a reader of one output of a program.
    pub fn reader(&self) -> EnvelopeReader {
        EnvelopeReader {
            begin: format!("{}<\n", self.nonce).into_bytes(),
            end: format!("{}>", self.nonce).into_bytes(),
            held: Vec::new(),
            begun: false,
            ended: false,
        }
    }

    /// Extracts the answer. The error is whether the program had started.
    pub fn unwrap(&self, stdout: &[u8], stderr: &[u8]) -> std::result::Result<Answer, bool> {
        let (mut out, mut err) = (self.reader(), self.reader());
        let (stdout, said) = (out.take(stdout), err.take(stderr));
        // The first marker is written to both outputs, and one of them may arrive when the other is lost.
        let code = out.code().ok_or(out.begun || err.begun)?;
        let said = if err.begun { &said } else { stderr };
        Ok(Answer { stdout, stderr: String::from_utf8_lossy(said).into_owned(), code })
    }
}

/// Extracts one output of a program piece by piece.
#[derive(Debug)]
pub struct EnvelopeReader {
    begin: Vec<u8>,
    end: Vec<u8>,
    held: Vec<u8>,
    begun: bool,
    ended: bool,
}

impl EnvelopeReader {
    /// Accepts a piece, and returns what is certainly the program's: bytes that may begin the last marker are
    /// held back.
    pub fn take(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        if !self.begun {
            let Some(at) = memchr::memmem::find(&self.held, &self.begin) else { return Vec::new() };
            self.held.drain(..at + self.begin.len());
            self.begun = true;
        }
        if self.ended {
            return Vec::new();
        }
        if let Some(at) = memchr::memmem::find(&self.held, &self.end) {
            self.ended = true;
            let ready = self.held.drain(..at).collect();
            self.held.drain(..self.end.len());
            return ready;
        }
        let may_begin =
            |kept: &usize| self.end.starts_with(self.held.get(self.held.len() - kept..).unwrap_or(&[0]));
        let most = self.held.len().min(self.end.len());
        let kept = (0..=most).rev().find(may_begin).unwrap_or(0);
        self.held.drain(..self.held.len() - kept).collect()
    }

    /// Returns whether the program had started.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns the exit code, once the whole output has arrived.
    pub fn code(&self) -> Option<i32> {
        let rest = self.ended.then(|| String::from_utf8_lossy(&self.held).into_owned())?;
        rest.lines().next()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;
    use weftrun_testkit::child;

    fn sh(text: &str) -> (Vec<u8>, Vec<u8>) {
        let mut child = child::command("/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("ends");
        (output.stdout, output.stderr)
    }

    #[test]
    fn output_in_pieces_is_the_same_and_waits_for_nothing_but_a_marker() {
        let envelope = Envelope::new();
        let (out, _) = sh(&envelope.wrap_open("", "printf 'one\\ntwo'; exit 5"));
        let out = [b"banner\n".as_slice(), &out].concat();
        for size in 1..=out.len() {
            let mut reader = envelope.reader();
            let got: Vec<u8> = out.chunks(size).flat_map(|piece| reader.take(piece)).collect();
            assert_eq!((got.as_slice(), reader.code()), (b"one\ntwo".as_slice(), Some(5)), "{size}");
        }
        let mut reader = envelope.reader();
        assert_eq!(reader.take(format!("{}<\nprompt? ", envelope.nonce).as_bytes()), b"prompt? ");
        assert_eq!(reader.take(&envelope.nonce.as_bytes()[..5]), b"", "the marker may have begun");
        assert_eq!(reader.take(b"!"), [&envelope.nonce.as_bytes()[..5], b"!"].concat());
        assert_eq!((reader.has_begun(), reader.code()), (true, None), "cut in the middle");
    }

    #[test]
    fn a_program_sees_that_its_caller_is_gone() {
        let envelope = Envelope::new();
        let dir = tempfile::tempdir().expect("a folder");
        let (up, gone) = (dir.path().join("up"), dir.path().join("gone"));
        let program = format!("touch '{}'; cat <&3 > /dev/null; touch '{}'\n", up.display(), gone.display());
        let mut child =
            child::command("/bin/sh").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(envelope.wrap_open("", &program).as_bytes()).expect("written");
        while !up.exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!gone.exists());
        drop(stdin);
        child.wait().expect("ends");
        assert!(gone.exists());
    }

    #[test]
    fn banners_are_dropped_and_exit_codes_kept() {
        let envelope = Envelope::new();
        let text = envelope.wrap("echo noise > /dev/null\n", "echo out; echo err >&2; exit 255");
        let (mut out, err) = sh(&text);
        out.splice(0..0, b"*** Welcome to cluster X ***\n".iter().copied());
        let answer = envelope.unwrap(&out, &err).expect("an answer");
        assert_eq!((answer.text().as_str(), answer.stderr.as_str(), answer.code), ("out\n", "err\n", 255));
    }

    #[test]
    fn a_program_reads_nothing_of_the_text_behind_it() {
        let envelope = Envelope::new();
        let (out, err) = sh(&envelope.wrap("", "cat; cat <<'X'\n$HOME 'data'\nX\n"));
        assert_eq!(envelope.unwrap(&out, &err).expect("an answer").text(), "$HOME 'data'\n");
    }

    #[test]
    fn half_a_program_does_not_run() {
        let dir = tempfile::tempdir().expect("a folder");
        let mark = dir.path().join("ran");
        let envelope = Envelope::new();
        let text = envelope.wrap("", &format!("touch {}; cat <<'X'\nline\nX\n", mark.display()));
        for cut in (0..text.len() - "weftrun_main\n".len()).step_by(7) {
            let _ = sh(&text[..cut]);
            assert!(!mark.exists(), "ran when cut at {cut}");
        }
        assert_eq!(envelope.unwrap(b"", b""), Err(false), "no answer at all");
        assert_eq!(
            envelope.unwrap(format!("{}<\npart", envelope.nonce).as_bytes(), b""),
            Err(true),
            "cut in the middle"
        );
    }
}
