//! The parts of a job that every script on another host has alike: its code and its secrets.

use weftrun_core::spec::{Code, SecretRef};
use weftrun_core::{Error, ErrorKind, Result};

use super::quote;

/// Returns the lines that bring a job's code into `folder`, a word of the shell. `failed` is what a command that fails runs.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a file name with a folder, and for an option in the place of a revision.
pub fn code(backend: &str, code: &Code, folder: &str, failed: &str) -> Result<String> {
    match code {
        Code::Script { name, text } => {
            if name.is_empty()
                || name.contains('/')
                || name.starts_with(['-', '.'])
                || name.chars().any(char::is_control)
            {
                return Err(Error::new(ErrorKind::InvalidSpec, "the code's file name may hold no folder")
                    .with("name", name.escape_debug()));
            }
            quote::feed(&format!("cat > {folder}/{}", quote::word(name)?), text)
        }
        Code::Git { url, rev } => {
            let checkout = match rev {
                Some(rev) if rev.starts_with('-') => {
                    return Err(Error::new(ErrorKind::InvalidSpec, "not a Git revision")
                        .with("rev", rev.escape_debug()));
                }
                Some(rev) => {
                    format!("git -C {folder} checkout --quiet {} --{failed}\n", quote::word(rev)?)
                }
                None => String::new(),
            };
            let url = quote::word(url)?;
            Ok(format!("[ -d {folder}/.git ] || git clone --quiet -- {url} {folder}{failed}\n{checkout}"))
        }
        _ => Err(Error::unsupported(backend, "code of this kind")),
    }
}

/// Returns the path of a secret below the folder of secrets, as a word of the shell.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for one that leaves that folder.
pub fn secret(secret: &SecretRef) -> Result<String> {
    if secret.secret.contains("..") || secret.key.contains("..") {
        return Err(Error::new(ErrorKind::InvalidSpec, "a secret's name may not hold `..`")
            .with("secret", &secret.secret));
    }
    quote::word(&format!("{}/{}", secret.secret, secret.key))
}
