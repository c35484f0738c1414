//! Sends the archive of a job's folder to a host, once for each content.
//!
//! The archive is sent in pieces, each with its own program: a slow connection then fits the time limit of a program, and a
//! lost one costs one piece. It appears in the store by a rename, after its size and checksum were right, so that an
//! interrupted copy is never used. A job gets a hard link to it, so that the store may remove it at any time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weftrun_core::spec::CodeContent;
use weftrun_core::{Error, ErrorKind, Result};

use super::{Answer, quote};

/// Bytes of a piece.
const PIECE: usize = 3 << 20;
/// Days after its last use that an archive stays in the store.
const KEPT_DAYS: u32 = 30;
/// The answer of a host that has the archive.
const THERE: &str = "there";

/// An archive on its way into the store of a host.
#[derive(Debug)]
pub struct Upload<'a> {
    content: &'a CodeContent,
    /// The lines before each program: they set `store` to the folder, and check it.
    enter: String,
    /// The folder of this upload's pieces.
    part: String,
}

impl<'a> Upload<'a> {
    /// Prepares an upload. `enter` are lines that `store`, a word of the shell, needs.
    ///
    /// # Errors
    /// Those of the random number generator.
    pub fn new(content: &'a CodeContent, enter: &str, store: &str) -> Result<Self> {
        let number = crate::random::bits()?;
        // Not a link, and not another user's: the folder above may be one that others write to.
        let enter = format!(
            "{enter}store={store}\nmkdir -p -m 700 -- \"$store\"\n\
             [ -d \"$store\" ] && [ ! -L \"$store\" ] && [ -O \"$store\" ] || {{ echo \"$store cannot be used\" >&2; exit 92; }}\n\
             archive=$store/{}.tar.gz\n\
             weftrun_there() {{ [ -f \"$archive\" ] && [ \"$(wc -c < \"$archive\")\" -eq {} ]; }}\n",
            content.hash,
            content.archive.bytes().len()
        );
        Ok(Self { content, enter, part: format!("\"$store\"/.part-{number:032x}") })
    }

    /// Returns the program that says whether the host has the archive.
    pub fn look(&self) -> String {
        format!("{}if weftrun_there; then touch -- \"$archive\"; echo {THERE}; fi\n", self.enter)
    }

    /// Returns the programs that send the archive, in order. Each may run again.
    ///
    /// # Errors
    /// Those of [`quote::feed`].
    pub fn programs(&self) -> impl Iterator<Item = Result<String>> + '_ {
        let pieces = self.content.archive.bytes().chunks(PIECE).enumerate();
        pieces.map(|(at, bytes)| self.piece(at, bytes)).chain(std::iter::once_with(|| Ok(self.finish())))
    }

    fn piece(&self, at: usize, bytes: &[u8]) -> Result<String> {
        let encoded = STANDARD.encode(bytes);
        let lines: Vec<_> = encoded.as_bytes().chunks(1024).map(String::from_utf8_lossy).collect();
        let file = format!("{}/{at:06}", self.part);
        let fed = quote::feed(&format!("base64 -d > {file}"), &format!("{}\n", lines.join("\n")))?;
        Ok(format!(
            "{}mkdir -p -- {} || exit 91\n{fed}[ \"$(wc -c < {file})\" -eq {} ]\n",
            self.enter,
            self.part,
            bytes.len()
        ))
    }

    fn finish(&self) -> String {
        let part = &self.part;
        // Files of jobs are links, which stay.
        format!(
            "{}weftrun_there && exit 0\ncat -- {part}/[0-9]* > {part}/whole && gzip -t < {part}/whole && mv -f -- {part}/whole \"$archive\" || exit 91\n\
             rm -rf -- {part}\n\
             find \"$store\" -mindepth 1 -maxdepth 1 -mtime +{KEPT_DAYS} -exec rm -rf -- {{}} + > /dev/null 2>&1\nweftrun_there\n",
            self.enter
        )
    }

    /// Returns the lines that give the archive to a job, as the file `to`, a word of the shell. `failed` ends the script where
    /// that fails.
    pub fn link(&self, to: &str, failed: &str) -> String {
        format!(
            "{}[ -f {to} ] || ln -- \"$archive\" {to} 2> /dev/null || {{ cp -- \"$archive\" {to}.new && mv -f -- {to}.new {to}; }} || {failed}\n",
            self.enter
        )
    }

    /// Returns whether an answer says that the host has the archive.
    ///
    /// # Errors
    /// As [`sent`].
    pub fn is_there(host: &str, answer: &Answer) -> Result<bool> {
        sent(host, answer)?;
        Ok(answer.text().trim() == THERE)
    }
}

/// Checks the answer to a program of an upload.
///
/// # Errors
/// [`ErrorKind::Refused`] with the message of the host.
pub fn sent(host: &str, answer: &Answer) -> Result<()> {
    if answer.code == 0 {
        return Ok(());
    }
    let said = super::error::last_line(&answer.stderr);
    let said = if said.is_empty() { format!("exit code {}", answer.code) } else { said };
    Err(Error::new(ErrorKind::Refused, format!("the job's folder could not be sent to {host}: {said}"))
        .hint("check the free space and the quota of the folder for logs there; nothing was submitted"))
}
