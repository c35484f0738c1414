//! A volume as one word, the form of `--volume` and of the terminal UI.

use std::fmt;
use std::str::FromStr;

use super::{Volume, VolumeSource};

/// The syntax of a volume, for error messages.
pub(super) const FORM: &str = "write NAME:/MOUNT=claim:CLAIM, NAME:/MOUNT=host:/PATH or NAME:/MOUNT=memory:64Gi, \
                               followed by `,ro` for read-only";

/// Writes `NAME:/MOUNT=claim:CLAIM`, `…=host:/PATH`, `…=memory` or `…=memory:SIZE`, followed by `,ro` for
/// read-only.
///
/// ```
/// use weftrun_core::spec::Volume;
/// let volume: Volume = "data:/data=claim:corpus,ro".parse()?;
/// assert!(volume.read_only && volume.mount == "/data");
/// assert_eq!(volume.to_string(), "data:/data=claim:corpus,ro");
/// assert!("data=/data".parse::<Volume>().is_err());
/// # Ok::<(), String>(())
/// ```
impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}=", self.name, self.mount)?;
        match &self.source {
            VolumeSource::HostPath(path) => write!(f, "host:{path}")?,
            VolumeSource::Claim(claim) => write!(f, "claim:{claim}")?,
            VolumeSource::Memory { size: Some(size) } => write!(f, "memory:{size}")?,
            VolumeSource::Memory { size: None } => f.write_str("memory")?,
        }
        f.write_str(if self.read_only { ",ro" } else { "" })
    }
}

/// Reads the form; its names, paths and sizes are validated with the whole job.
impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a volume: {FORM}");
        let (what, read_only) = text.strip_suffix(",ro").map_or((text, false), |what| (what, true));
        let (place, source) = what.split_once('=').ok_or_else(wrong)?;
        let (name, mount) = place.split_once(':').ok_or_else(wrong)?;
        let source = match source.split_once(':').unwrap_or((source, "")) {
            ("claim", claim) => VolumeSource::Claim(claim.to_owned()),
            ("host", path) => VolumeSource::HostPath(path.to_owned()),
            ("memory", "") => VolumeSource::Memory { size: None },
            ("memory", size) => VolumeSource::Memory { size: Some(size.to_owned()) },
            _ => return Err(wrong()),
        };
        Ok(Self { name: name.to_owned(), mount: mount.to_owned(), source, read_only })
    }
}
