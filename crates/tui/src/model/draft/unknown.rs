//! Names in the form that are in no list.

use weftrun::core::text::did_you_mean;

use super::{Field, NewJobForm};

impl NewJobForm {
    /// Returns what is wrong with names that were typed and are in no list, each with the nearest one. An empty list is
    /// one that is not known.
    pub fn unknown_names(&self, instances: &[(String, String)]) -> Vec<String> {
        let instances: Vec<&str> = instances.iter().map(|(name, _)| name.as_str()).collect();
        let (queues, priorities) = match &self.planned {
            Some(Ok(planned)) => (&planned.queues[..], &planned.priorities[..]),
            _ => (&[][..], &[][..]),
        };
        [
            self.unknown(Field::Instance, "the catalogue", &instances),
            self.unknown(Field::Queue, "the cluster's queues", &texts(queues)),
            self.unknown(Field::Priority, "the cluster's priorities", &texts(priorities)),
        ]
        .concat()
    }

    fn unknown(&self, field: Field, list: &str, known: &[&str]) -> Vec<String> {
        // A job may take several instance types.
        let typed = self.text(field).split('|').map(str::trim).filter(|name| !name.is_empty());
        let unknown = typed.filter(|name| !known.is_empty() && !known.contains(name));
        let text = |name: &str| {
            let near = did_you_mean(name, known.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            format!("{} `{name}` is not in {list}{near}", field.label())
        };
        unknown.map(text).collect()
    }
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
