//! A commented job file to start from: known values are set, optional ones follow `#` with an example.

use toml_edit::{DocumentMut, Item};

use super::keys::JOB;
use super::shape::Key;
use super::write::to_toml;
use crate::spec::JobSpec;

const HEAD: &str = "\
# A job for weftrun: docs/reference/spec.md lists every key.
#   weftrun plan FILE              what its fabric needs, and why; sends nothing
#   weftrun submit --follow FILE   send it, follow all ranks, see which transport they use
";

/// Keys that only some jobs need, and that a one-line comment does not explain.
const LEFT_OUT: [&str; 6] = ["roles", "volumes", "backend", "annotations", "ranks_per_node", "resources"];

/// Writes the file. Reading it returns an equal job.
///
/// ```
/// use weftrun_core::spec::{JobFile, JobSpec, Role};
/// use weftrun_core::spec::file::template;
/// let job = JobSpec::builder("demo").role(Role::worker().nodes(2).command(["hostname"])).build()?;
/// let text = template(&job);
/// assert!(text.contains("\n# time_limit = \"12h\""));
/// assert_eq!(JobFile::parse("job.toml", text.as_bytes())?.spec, job);
/// # Ok::<(), weftrun_core::Error>(())
/// ```
pub fn template(job: &JobSpec) -> String {
    let written = to_toml(job);
    // The text written above is TOML; if it were not, it would still be the best answer.
    let Ok(document) = written.parse::<DocumentMut>() else { return written };
    let mut values = HEAD.to_owned();
    let mut tables = String::new();
    for key in JOB.keys {
        match document.get(key.name) {
            Some(Item::Value(value)) => {
                values.push_str(&format!("\n{}{} = {}\n", comment(key), key.name, value.to_string().trim()));
            }
            Some(item) => tables.push_str(&table(key, item)),
            None if LEFT_OUT.contains(&key.name) || key.example.is_empty() => {}
            None => values.push_str(&format!("\n{}# {} = {}\n", comment(key), key.name, key.example)),
        }
    }
    values + &tables
}

fn table(key: &Key, item: &Item) -> String {
    let mut alone = DocumentMut::new();
    alone.insert(key.name, item.clone());
    format!("\n{}{}\n", comment(key), alone.to_string().trim())
}

/// Returns the comment of a key: what it does, and the words it accepts.
fn comment(key: &Key) -> String {
    let words = key.shape.words().map_or(String::new(), |words| {
        format!(": {}", words.iter().map(|word| word.word).collect::<Vec<_>>().join(", "))
    });
    format!("# {}{words}.\n", key.doc)
}
