//! Splits a stream of documents without holding it: memory is bounded by the largest document.

/// Cuts a stream of bytes into the texts of its documents. Together they are the stream, byte for byte.
///
/// ```
/// use weftrun_convert::Splitter;
/// let mut splitter = Splitter::default();
/// splitter.push(b"a: 1\n---\nb: 2\n---");
/// assert_eq!(splitter.next_document(), Some(b"a: 1\n".to_vec()));
/// splitter.finish();
/// assert_eq!(splitter.next_document(), Some(b"---\nb: 2\n".to_vec()));
/// assert_eq!(splitter.next_document(), Some(b"---".to_vec()));
/// assert_eq!(splitter.next_document(), None);
/// ```
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: Vec<u8>,
    /// Bytes at the front that were returned.
    taken: usize,
    /// The offset up to which no border was found.
    scanned: usize,
    finished: bool,
    json: JsonScan,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Only blanks were seen.
    #[default]
    Unknown,
    Yaml,
    Json,
}

/// The state of a scan through JSON.
#[derive(Debug, Default)]
struct JsonScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Splitter {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.scanned -= self.taken;
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Marks the end of the stream.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the next whole document, if it is complete.
    pub fn next_document(&mut self) -> Option<Vec<u8>> {
        if self.mode == Mode::Unknown {
            let first = self.buffer[self.taken..].iter().find(|byte| !byte.is_ascii_whitespace());
            self.mode = match first {
                Some(b'{') => Mode::Json,
                Some(_) => Mode::Yaml,
                None => Mode::Unknown,
            };
        }
        let end = match self.mode {
            Mode::Json => self.json_document(),
            Mode::Yaml => self.yaml_end(),
            Mode::Unknown => None,
        };
        let end =
            end.or_else(|| (self.finished && self.taken < self.buffer.len()).then_some(self.buffer.len()))?;
        let document = self.buffer[self.taken..end].to_vec();
        self.taken = end;
        self.scanned = self.scanned.max(end);
        Some(document)
    }

    /// Returns the start of the next line that begins with `---`, after the first line of the document.
    fn yaml_end(&mut self) -> Option<usize> {
        let mut from = self.scanned.max(self.taken);
        loop {
            let Some(found) = memchr::memmem::find(&self.buffer[from..], b"\n---") else {
                self.scanned = self.buffer.len().saturating_sub(3).max(from);
                return None;
            };
            let start = from + found + 1;
            match self.buffer.get(start + 3) {
                None if !self.finished => {
                    self.scanned = start - 1;
                    return None;
                }
                None | Some(b' ' | b'\t' | b'\r' | b'\n') if !self.is_prologue(start) => {
                    self.scanned = start;
                    return Some(start);
                }
                _ => from = start,
            }
        }
    }

    /// Returns whether the text before is only directives and comments, which belong to the `---` that
    /// follows.
    fn is_prologue(&self, end: usize) -> bool {
        let mut directive = false;
        for line in self.buffer[self.taken..end].split(|byte| *byte == b'\n') {
            match line.first() {
                Some(b'%') => directive = true,
                None | Some(b'#' | b'\r') => {}
                Some(_) => return false,
            }
        }
        directive
    }

    /// Returns the end of a JSON value. Text that begins with a bracket and is no JSON (`{a: 1}`, a
    /// template's `{{`) is YAML; the text after a value is judged again.
    fn json_document(&mut self) -> Option<usize> {
        let end = self.json_end();
        let is_json = |end: usize| {
            serde_json::from_slice::<serde::de::IgnoredAny>(&self.buffer[self.taken..end]).is_ok()
        };
        match end {
            Some(end) if is_json(end) => {
                self.mode = Mode::Unknown;
                Some(end)
            }
            None if !self.finished => None,
            _ => {
                self.mode = Mode::Yaml;
                self.json = JsonScan::default();
                self.scanned = self.taken;
                self.yaml_end()
            }
        }
    }

    /// Returns the end of the value whose bracket closes.
    fn json_end(&mut self) -> Option<usize> {
        let from = self.scanned.max(self.taken);
        for (index, byte) in self.buffer[from..].iter().enumerate() {
            let scan = &mut self.json;
            match (scan.in_string, byte) {
                (true, _) if scan.escaped => scan.escaped = false,
                (true, b'\\') => scan.escaped = true,
                (_, b'"') => scan.in_string = !scan.in_string,
                (false, b'{' | b'[') => scan.depth += 1,
                (false, b'}' | b']') => {
                    scan.depth = scan.depth.saturating_sub(1);
                    if scan.depth == 0 {
                        self.scanned = from + index + 1;
                        return Some(from + index + 1);
                    }
                }
                _ => {}
            }
        }
        self.scanned = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, step: usize) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut found = Vec::new();
        for chunk in text.as_bytes().chunks(step) {
            splitter.push(chunk);
            while let Some(document) = splitter.next_document() {
                found.push(String::from_utf8(document).unwrap());
            }
        }
        splitter.finish();
        while let Some(document) = splitter.next_document() {
            found.push(String::from_utf8(document).unwrap());
        }
        found
    }

    #[test]
    fn documents_are_the_same_however_the_bytes_come() {
        for (text, count) in [
            ("a: 1\n---\nb: |\n  ---\n  x\n--- # c\nc: 3", 3),
            ("---\na: 1\n---\n", 2),
            ("%YAML 1.2\n# c\n---\na: 1\n---\nb: 1\n", 2),
            ("a: 1\r\n---\r\nb: 2\r\n", 2),
            ("a: ---x\n---x: 1\n", 1),
            ("{\"a\": \"}\\\"{\"}\n{\"b\": [1]}\n", 3),
            ("{a: 'x}y'}\n---\nb: 1\n", 2),
            ("{{- if x }}\na: 1\n---\nb: {c: 1}\nd: 2\n", 2),
            ("{\"a\": 1}\n---\nb: {c: 1}\nd: 2\n", 3),
            ("{\"a\": [1\n---\nb: 1\n", 2),
            ("\n\n", 1),
            ("", 0),
        ] {
            let whole = split(text, 1 << 20);
            assert_eq!(whole.len(), count, "{text:?} {whole:?}");
            assert_eq!(whole.concat(), text);
            for step in [1, 2, 3, 7] {
                assert_eq!(split(text, step), whole, "{text:?} by {step}");
            }
        }
    }
}
