//! Writes a [`JobSpec`] as a job file.

use toml_edit::{DocumentMut, Item, Table};

use super::field::Field;
use super::keys::{FABRIC_TABLE, JOB, ROLE};
use super::shape::{FieldAccess, Key};
use crate::request::FabricRequest;
use crate::spec::{JobSpec, Role, RoleKind};

/// Writes a job as a job file. Reading it back returns an equal job.
///
/// ```
/// use weftrun_core::spec::{JobFile, JobSpec, Role, to_toml};
/// let job = JobSpec::builder("demo").role(Role::worker().nodes(2).command(["hostname"])).build()?;
/// let text = to_toml(&job);
/// assert_eq!(JobFile::parse("job.toml", text.as_bytes())?.spec, job);
/// # Ok::<(), weftrun_core::Error>(())
/// ```
pub fn to_toml(job: &JobSpec) -> String {
    // The accessors of the table of keys are for writing only, so they get a copy.
    let mut job = job.clone();
    let mut file = DocumentMut::new();
    let root = file.as_table_mut();
    let one = matches!(job.roles.as_slice(), [role] if role.name == "worker" && fits_the_top(role));
    for key in JOB.keys {
        match key.place {
            FieldAccess::Job(field) => insert(root, key, field(&mut job)),
            FieldAccess::Fabric(field) => insert(root, key, field(&mut job.fabric)),
            FieldAccess::Role(field) if one => {
                job.roles.iter_mut().for_each(|role| insert(root, key, field(role)));
            }
            FieldAccess::Request => fabric(root, key, &mut job.fabric),
            FieldAccess::Roles if !one => roles(root, key, &mut job.roles),
            FieldAccess::Role(_) | FieldAccess::Roles | FieldAccess::Setting { .. } | FieldAccess::Part => {}
        }
    }
    file.to_string()
}

/// Returns whether all values of the role can be at the top of the file.
fn fits_the_top(role: &Role) -> bool {
    role.kind == RoleKind::Worker && role.image.is_none() && role.env.is_empty()
}

fn insert(table: &mut Table, key: &Key, field: &dyn Field) {
    if let Some(item) = field.write(&key.shape) {
        table.insert(key.name, item);
    }
}

fn roles(root: &mut Table, key: &Key, roles: &mut [Role]) {
    let mut tables = Table::new();
    tables.set_implicit(true);
    for role in roles.iter_mut() {
        let mut table = Table::new();
        let by_name = role.kind == RoleKind::of_name(&role.name);
        for key in ROLE.keys.iter().filter(|key| key.name != "kind" || !by_name) {
            if let FieldAccess::Role(field) = key.place {
                insert(&mut table, key, field(role));
            }
        }
        tables.insert(&role.name, Item::Table(table));
    }
    if !tables.is_empty() {
        root.insert(key.name, Item::Table(tables));
    }
}

/// Writes `fabric = "efa"` where only the kind is set.
fn fabric(root: &mut Table, fabric: &Key, request: &mut FabricRequest) {
    let mut table = Table::new();
    for key in FABRIC_TABLE.keys {
        if let FieldAccess::Fabric(field) = key.place {
            insert(&mut table, key, field(request));
        }
    }
    if table.len() == 1
        && let Some(kind) = table.remove("kind")
    {
        root.insert(fabric.name, kind);
    } else if !table.is_empty() {
        root.insert(fabric.name, Item::Table(table));
    }
}
