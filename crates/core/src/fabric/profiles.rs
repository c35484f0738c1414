//! The available profiles, and the default for a job.

use std::collections::BTreeMap;

use super::Profile;
use crate::request::Fabric;
use crate::{Error, ErrorKind, Result};

const BUILTIN: &[(&str, &str)] = &[
    ("azure-nd", include_str!("../../data/profiles/azure-nd.toml")),
    ("coreweave", include_str!("../../data/profiles/coreweave.toml")),
    ("crusoe", include_str!("../../data/profiles/crusoe.toml")),
    ("dgxc", include_str!("../../data/profiles/dgxc.toml")),
    ("eks-dra", include_str!("../../data/profiles/eks-dra.toml")),
    ("eks-gb200", include_str!("../../data/profiles/eks-gb200.toml")),
    ("eks-gb300", include_str!("../../data/profiles/eks-gb300.toml")),
    ("eks-image", include_str!("../../data/profiles/eks-image.toml")),
    ("gke-a4x", include_str!("../../data/profiles/gke-a4x.toml")),
    ("gke-a4x-max", include_str!("../../data/profiles/gke-a4x-max.toml")),
    ("gke-gib", include_str!("../../data/profiles/gke-gib.toml")),
    ("gke-gib-dra", include_str!("../../data/profiles/gke-gib-dra.toml")),
    ("gke-tcpx", include_str!("../../data/profiles/gke-tcpx.toml")),
    ("gke-tcpxo", include_str!("../../data/profiles/gke-tcpxo.toml")),
    ("infiniband", include_str!("../../data/profiles/infiniband.toml")),
    ("lambda", include_str!("../../data/profiles/lambda.toml")),
    ("nebius", include_str!("../../data/profiles/nebius.toml")),
    ("neuron", include_str!("../../data/profiles/neuron.toml")),
    ("nscale", include_str!("../../data/profiles/nscale.toml")),
    ("oci", include_str!("../../data/profiles/oci.toml")),
    ("oci-host", include_str!("../../data/profiles/oci-host.toml")),
    ("parallelcluster", include_str!("../../data/profiles/parallelcluster.toml")),
    ("roce", include_str!("../../data/profiles/roce.toml")),
    ("slingshot", include_str!("../../data/profiles/slingshot.toml")),
    ("together", include_str!("../../data/profiles/together.toml")),
];

/// Longest chain of `extends`: a longer one is a cycle.
const LONGEST_CHAIN: usize = 16;

/// Profiles by name: the shipped ones, and the user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiles {
    tables: BTreeMap<String, toml::Table>,
}

impl Profiles {
    /// Returns the shipped ones.
    ///
    /// ```
    /// use weftrun_core::fabric::Profiles;
    /// let dgxc = Profiles::builtin().get("dgxc")?;
    /// assert_eq!(dgxc.efa.map(|efa| efa.count), Some(32));
    /// # Ok::<(), weftrun_core::Error>(())
    /// ```
    pub fn builtin() -> Self {
        // An unreadable shipped profile is a bug in the build; a test reads all of them.
        let tables = BUILTIN.iter().filter_map(|(name, text)| Some(((*name).to_owned(), text.parse().ok()?)));
        Self { tables: tables.collect() }
    }

    /// Adds a profile of the user's, as written in a config file under `[profile.NAME]`. It replaces a
    /// shipped one of the same name, which it may also extend.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, mut table: toml::Table) -> Self {
        let name = name.into();
        if let Some(toml::Value::String(base)) = table.get("extends")
            && *base == name
            && let Some(shadowed) = self.tables.get(&name)
        {
            let mut merged = shadowed.clone();
            table.remove("extends");
            merge(&mut merged, table);
            table = merged;
        }
        self.tables.insert(name, table);
        self
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Returns the profile of a name, with everything it extends.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the available names; [`ErrorKind::InvalidConfig`] for a key that no
    /// profile has, or a cycle of `extends`.
    pub fn get(&self, name: &str) -> Result<Profile> {
        let mut table = self.flattened(name, LONGEST_CHAIN)?;
        table.insert("name".to_owned(), name.into());
        toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| {
            Error::new(ErrorKind::InvalidConfig, format!("profile `{name}`: {}", error.message()))
                .hint("docs/concepts/fabric.md lists the keys of a profile")
        })
    }

    fn flattened(&self, name: &str, depth: usize) -> Result<toml::Table> {
        let Some(table) = self.tables.get(name) else { return Err(self.unknown(name)) };
        match table.get("extends").and_then(toml::Value::as_str) {
            None => Ok(table.clone()),
            Some(_) if depth == 0 => Err(Error::new(
                ErrorKind::InvalidConfig,
                format!("profile `{name}` extends itself, directly or through others"),
            )),
            Some(base) => {
                let mut merged = self.flattened(base, depth - 1)?;
                merge(&mut merged, table.clone());
                Ok(merged)
            }
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let near = crate::text::suggestion(name, self.names());
        Error::new(ErrorKind::NotFound, format!("there is no profile `{name}`"))
            .with("known", self.names().collect::<Vec<_>>().join(", "))
            .hint(near.as_deref().unwrap_or("`[profile.NAME]` with `extends` in a config file adds one"))
    }

    /// Returns the profile of a raw manifest or script for which none is named: `mutate` reports that it
    /// was assumed.
    pub fn for_manifest(fabric: Fabric) -> &'static str {
        match fabric {
            Fabric::Roce => "roce",
            Fabric::InfiniBand => "infiniband",
            Fabric::Auto | Fabric::Efa | Fabric::Tcp | Fabric::Off => "dgxc",
        }
    }
}

/// Merges `over` into `under`: tables key by key, everything else as a whole.
fn merge(under: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => merge(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}
