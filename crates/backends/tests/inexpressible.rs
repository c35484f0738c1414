//! What each backend cannot express is a checked-in table (`tests/inexpressible/BACKEND.txt`), the same for every
//! instance type and profile. Written anew with `WEFTRUN_WRITE_TABLES=1`; a new "no" is a decision, not an accident.

use std::fs;
use std::path::Path;

use weftrun_core::backend::{Registry, TargetConfig};
use weftrun_testkit::fabric_table;

#[tokio::test]
async fn what_a_backend_cannot_express_is_the_checked_in_table() {
    weftrun_backends::link();
    let mut wrong = Vec::new();
    for entry in Registry::linked().entries() {
        let state = tempfile::tempdir().unwrap();
        let backend = (entry.connect)(TargetConfig::new(entry.name, entry.name, state.path())).await.unwrap();
        let table = match fabric_table(backend.as_ref()) {
            Ok(table) => table,
            Err(error) => {
                wrong.push(format!("{}: {error}", entry.name));
                continue;
            }
        };
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/inexpressible/{}.txt", entry.name));
        if std::env::var_os("WEFTRUN_WRITE_TABLES").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &table).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        if table.contains("SOMETIMES") || table != written {
            wrong.push(format!("{}: {} should be\n{table}", entry.name, path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
