//! A commented job file to start from: what is known is set, what could be set stands behind `#` with an example.

use toml_edit::{DocumentMut, Item};

use super::keys::JOB;
use super::shape::{Key, Shape};
use super::write::to_toml;
use crate::spec::JobSpec;

const HEAD: &str = "\
# A job for weftrun: docs/reference/spec.md lists every key.
#   weftrun plan FILE              what its fabric needs, and why; sends nothing
#   weftrun submit --follow FILE   send it, follow all ranks, see which transport they use
";

/// Keys that only some jobs need, and that a comment of one line does not explain.
const LEFT_OUT: [&str; 6] = ["roles", "volumes", "backend", "annotations", "ranks_per_node", "resources"];

/// Writes the file. Reading it gives the job back.
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
    // What we wrote is TOML; were it not, it would still be what is wanted.
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

/// What the key does, and the words it can have.
fn comment(key: &Key) -> String {
    let words = match key.shape {
        Shape::Word(words) => Some(words),
        Shape::OneOf([Shape::Word(words), ..]) => Some(*words),
        _ => None,
    };
    let words = words.map_or(String::new(), |words| {
        format!(": {}", words.iter().map(|word| word.word).collect::<Vec<_>>().join(", "))
    });
    format!("# {}{words}.\n", key.doc)
}
