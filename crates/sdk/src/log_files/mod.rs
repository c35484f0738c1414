//! Logs of any job in files, whichever program submitted it: folders, patterns, gzip and zstd, one file for each rank or
//! for each node, and recordings of weftrun.

mod inputs;
mod prefetch;
mod ras_answers;

use weftrun_core::Result;
use weftrun_core::log::SourceId;
use weftrun_core::nccl::bandwidth::{Bandwidth, Source};
use weftrun_core::nccl::{Event, TransportMap};

pub use inputs::Input;
use inputs::Wanted;
use prefetch::Piece;
use ras_answers::RasAnswers;

use crate::report::HealthReport;

/// Finds log files: by path, by folder (`*.log`, `*.out`, `*.err`, compressed ones, and NCCL_DEBUG_FILE's), by
/// pattern (`*` and `?` within one component), and `-` for standard input.
///
/// ```no_run
/// # fn main() -> weftrun::Result<()> {
/// let map = weftrun::open_logs(["logs/", "old/rank*.log.zst"])?.map()?;
/// println!("{}", weftrun::diagnose::Sources::of_logs(&map).diagnose().why);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) for a name without a file, and
/// [`ErrorKind::Io`](crate::ErrorKind::Io) for a folder that cannot be read.
pub fn open_logs<N: AsRef<str>>(named: impl IntoIterator<Item = N>) -> Result<LogFiles> {
    inputs::resolve(named, Wanted::Logs).map(|inputs| LogFiles { inputs })
}

/// Reads the files of a profiler of NCCL, found as [`open_logs`] finds logs; of a folder also `*.jsonl` and `*.prom`. Logs
/// to which weftrun's own library writes are read as well.
///
/// # Errors
/// Those of [`open_logs`] and of [`LogFiles::map`].
pub fn read_bandwidth<N: AsRef<str>>(named: impl IntoIterator<Item = N>) -> Result<Bandwidth> {
    let inputs = inputs::resolve(named, Wanted::Recordings)?;
    let (mut bandwidth, mut source) = (Bandwidth::default(), Source::default());
    prefetch::read(&inputs, |_, piece| {
        match piece {
            Piece::Bytes(bytes, _) => bandwidth.read(&mut source, bytes),
            Piece::End => {
                bandwidth.end(&mut source);
                source = Source::default();
            }
        }
        Ok(())
    })?;
    Ok(bandwidth)
}

/// Log files, in the order in which they are read.
#[derive(Clone, Debug)]
pub struct LogFiles {
    inputs: Vec<Input>,
}

impl LogFiles {
    /// Returns the files.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Reads all files into a new map.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) for a file that cannot be read or is damaged.
    pub fn map(&self) -> Result<TransportMap> {
        let mut map = TransportMap::new();
        self.read_into(&mut map, |_| Ok(()))?;
        Ok(map)
    }

    /// Reads all files into a new map, and the last answer of NCCL's RAS service in them: the output of `ncclras`.
    ///
    /// # Errors
    /// Those of [`LogFiles::map`].
    pub fn map_and_health(&self) -> Result<(TransportMap, Option<HealthReport>)> {
        let (mut map, mut answers) = (TransportMap::new(), RasAnswers::default());
        self.read_pieces(&mut map, |_, bytes| match bytes {
            Some(bytes) => answers.take(bytes),
            None => answers.end(),
        })?;
        let health = answers.judge(&map);
        Ok((map, health))
    }

    /// Reads all files into a map, and passes on what each line shows.
    ///
    /// # Errors
    /// Those of [`LogFiles::map`] and of `show`.
    pub fn read_into(
        &self,
        map: &mut TransportMap,
        mut show: impl FnMut(&Event) -> Result<()>,
    ) -> Result<()> {
        prefetch::read(&self.inputs, |name, piece| {
            let events = match piece {
                Piece::Bytes(bytes, candidates) => map.read_searched(name, bytes, candidates),
                Piece::End => map.end(name),
            };
            events.iter().try_for_each(&mut show)
        })
    }

    /// Reads all files into a map, and passes on the bytes of each.
    ///
    /// # Errors
    /// Those of [`LogFiles::map`].
    pub fn read_bytes(&self, map: &mut TransportMap, mut each: impl FnMut(&SourceId, &[u8])) -> Result<()> {
        self.read_pieces(map, |name, bytes| bytes.into_iter().for_each(|bytes| each(name, bytes)))
    }

    /// Reads all files into a map, and passes on the bytes of each, then none at its end.
    fn read_pieces(
        &self,
        map: &mut TransportMap,
        mut each: impl FnMut(&SourceId, Option<&[u8]>),
    ) -> Result<()> {
        prefetch::read(&self.inputs, |name, piece| {
            match piece {
                Piece::Bytes(bytes, candidates) => {
                    each(name, Some(bytes));
                    map.read_searched(name, bytes, candidates);
                }
                Piece::End => {
                    each(name, None);
                    map.end(name);
                }
            }
            Ok(())
        })
    }
}
