//! The data row by row, and the user's own rows.

use std::fmt::Write;

use super::*;
use crate::Confidence;

#[test]
fn every_row_of_the_table_is_read() {
    let rows: Vec<_> = tsv::rows(BUILTIN).collect::<Result<_>>().unwrap();
    assert_eq!(rows.len(), BUILTIN.lines().filter(|line| !line.is_empty()).count() - 1, "all but the header");
    assert_eq!(Catalogue::builtin().rows().len(), rows.len(), "two rows have one name");
}

/// One line per row, so that a change of the data shows in a review as the changed values.
#[test]
fn rows() {
    fn or<T: ToString>(value: Option<T>) -> String {
        value.map_or("-".to_owned(), |v| v.to_string())
    }
    let mut table = String::new();
    for row in Catalogue::builtin().rows() {
        let _ = writeln!(
            table,
            "{:<26} {:<9} {}×{} {}MiB | {} efa {} of {} nics, {}×{} | {} Gb/s, {} each, gen {} nitro {} | read {} write {} gdr {} | huge {} seen {} | {} cpu {} MiB {} | {:?} | unsure {:?} | notes {:?}",
            row.name,
            row.provider,
            row.accelerators,
            row.accelerator,
            or(row.accelerator_memory_mib),
            row.fabric,
            or(row.efa_max),
            or(row.nics),
            or(row.fabric_resource_count),
            or(row.fabric_resource.as_deref()),
            or(row.network_gbps),
            or(row.nic_gbps),
            or(row.fabric_generation.as_deref()),
            or(row.nitro.as_deref()),
            or(row.rdma_read),
            or(row.rdma_write),
            or(row.gpudirect_rdma),
            or(row.hugepages_2mi.as_deref()),
            or(row.hugepages_2mi_allocatable_mib),
            or(row.vcpus),
            or(row.memory_mib),
            or(row.arch.as_deref()),
            row.confidence,
            row.unsure,
            row.notes.values(),
        );
    }
    insta::assert_snapshot!(table);
}

#[test]
fn the_rows_agree_with_themselves() {
    for row in Catalogue::builtin().rows() {
        let name = &row.name;
        assert!(row.accelerators > 0 && row.confidence.is_some() && !row.sources.is_empty(), "{name}");
        match row.fabric {
            NodeFabric::Efa => {
                assert!(row.efa_max > Some(0), "{name}");
                assert_eq!(row.fabric_resource.as_deref(), Some("vpc.amazonaws.com/efa"), "{name}");
                assert!(row.hugepages_2mi.is_some(), "{name}");
                assert!(row.efa_max <= row.nics, "{name}");
            }
            NodeFabric::EfaOrRoce => assert_eq!(row.efa_max, None, "{name}"),
            _ => assert_eq!(row.efa_max, Some(0), "{name}"),
        }
        // A NIC with RDMA write also has RDMA read; the converse does not hold: p4d.
        assert!(row.rdma_write != Some(true) || row.rdma_read == Some(true), "{name}");
        for column in &row.unsure {
            assert!(serde_json::to_value(row).unwrap().get(column).is_some(), "{name}: no column {column}");
        }
    }
}

#[test]
fn figures_the_rules_rest_on() {
    let catalogue = Catalogue::builtin();
    let row = |name: &str| catalogue.get(name).unwrap();
    for (name, efa) in [
        ("p4d.24xlarge", 4),
        ("p5.48xlarge", 32),
        ("p5e.48xlarge", 32),
        ("p5en.48xlarge", 16),
        ("p6-b200.48xlarge", 8),
        ("p6-b300.48xlarge", 16),
        ("p6e-gb200.36xlarge", 4),
        ("trn1.32xlarge", 8),
        ("trn2.48xlarge", 16),
        ("g5.12xlarge", 1),
        ("g5g.metal", 0),
    ] {
        assert_eq!(row(name).efa_max, Some(efa), "{name}");
    }
    // Where the value 1 of FI_EFA_USE_DEVICE_RDMA aborts the job.
    for name in ["g4dn.8xlarge", "g5.48xlarge", "p3dn.24xlarge", "dl2q.24xlarge", "inf1.24xlarge"] {
        assert_eq!(row(name).rdma_read, Some(false), "{name}");
    }
    assert_eq!(row("p6e-gb200.36xlarge").accelerators, 4);
    assert_eq!(row("p6e-gb200.36xlarge").confidence, Some(Confidence::Low));
    assert_eq!(row("p6e-gb300.36xlarge").fabric, NodeFabric::EfaOrRoce);
    assert!(row("g5.12xlarge").is_unsure("hugepages_2mi"));
    assert!(!row("p5.48xlarge").is_unsure("hugepages_2mi"));
    assert_eq!(row("BM.GPU.H100.8").fabric_resource_count, Some(16));
}

#[test]
fn names_are_found_with_hyperpods_prefix_and_nearly() {
    let catalogue = Catalogue::builtin();
    assert_eq!(catalogue.get("ml.p4d.24xlarge").unwrap().name, "p4d.24xlarge");
    assert_eq!(catalogue.get("p4d.24xlarg"), None);
    assert_eq!(catalogue.nearest("p4d.24xlarg"), Some("p4d.24xlarge"));
    assert_eq!(catalogue.nearest("a laptop"), None);
}

fn with(text: &str) -> Result<Catalogue> {
    #[derive(serde::Deserialize)]
    struct File {
        instances: BTreeMap<String, InstanceOverride>,
    }
    Catalogue::builtin().with(&toml::from_str::<File>(text).unwrap().instances)
}

#[test]
fn a_users_row_changes_a_known_one_or_extends_it() {
    let catalogue = with(
        r#"
        [instances."p5.48xlarge"]
        efa_max = 16
        [instances.ours]
        extends = "p5.48xlarge"
        hugepages_2mi = "2Gi"
        [instances.box]
        accelerators = 2
        accelerator = "l40s"
        "#,
    )
    .unwrap();
    assert_eq!(catalogue.get("p5.48xlarge").unwrap().efa_max, Some(16));
    let ours = catalogue.get("ours").unwrap();
    assert_eq!((ours.efa_max, ours.hugepages_2mi.as_deref(), ours.accelerators), (Some(16), Some("2Gi"), 8));
    assert!(ours.from_config && ours.fabric == NodeFabric::Efa);
    let plain = catalogue.get("box").unwrap();
    assert_eq!((plain.accelerators, plain.efa_max, plain.rdma_read), (2, None, None));
    assert_eq!(catalogue.rows().len(), 102);
}

#[test]
fn what_is_set_by_the_user_is_sure() {
    let catalogue = with("[instances.\"g5.12xlarge\"]\nhugepages_2mi = \"1Gi\"\n").unwrap();
    assert!(!catalogue.get("g5.12xlarge").unwrap().is_unsure("hugepages_2mi"));
}

#[test]
fn every_wrong_row_is_reported() {
    let error = with(
        r#"
        [instances.a]
        extends = "b"
        [instances.b]
        extends = "a"
        [instances.c]
        extends = "p5.48xlarg"
        [instances.d]
        efa_max = 1
        "#,
    )
    .unwrap_err();
    let text: Vec<String> = error
        .findings()
        .iter()
        .map(|f| {
            format!(
                "{}: {} [{}]",
                f.subject.as_deref().unwrap(),
                f.message,
                f.fix.as_ref().map_or("", |f| &f.text)
            )
        })
        .collect();
    insta::assert_snapshot!(text.join("\n"));
}
