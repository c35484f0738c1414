//! `explain`: every code and rule has its page.

use crate::place::Place;

#[test]
fn every_name_that_is_listed_has_a_page() {
    let place = Place::new();
    let names = place.run("explain");
    assert_eq!(names.code, 0);
    let there: Vec<&str> = names.out.lines().collect();
    for name in [
        "E-HP-NEEDS-MEMORY",
        "W-LDPATH-SHADOW",
        "L-NAME-MISSPELT",
        "partial-node",
        "efa.devices",
        "SPEC-SYNTAX",
        "CONFIG-LOCKED",
        "K8S-OOM",
        "SLURM-TIME-LIMIT",
        "NCCL-NET-SOCKET-FALLBACK",
    ] {
        assert!(there.contains(&name), "{name}");
        let page = place.run(&format!("explain {name}"));
        assert!(page.code == 0 && page.out.starts_with(name) && page.out.lines().count() > 2, "{name}");
    }
    assert!(place.run("explain r01").out.contains("NCCL-NET-SOCKET-FALLBACK"));
    let none = place.run("explain efa.device");
    assert!(none.code == 6 && none.err.contains("efa.devices"), "{}", none.err);
}
