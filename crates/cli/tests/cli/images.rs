//! `--check-image`: what is in an image is read from a registry on loopback, and held against the plan.

use weftrun_testkit::registry::{FakeRegistry, layer};

use crate::place::Place;

fn image(registry: &FakeRegistry, glibc: &str) -> String {
    let banner = format!("GNU C Library (Ubuntu GLIBC {glibc}) stable release version {glibc}.\n");
    let files: [(&str, &[u8]); 2] =
        [("lib/libc.so.6", banner.as_bytes()), ("usr/lib/libnccl.so.2", b"NCCL version 2.27.3+cuda12.9\0")];
    registry.push("nlp/train", glibc, &["LD_LIBRARY_PATH=/usr/local/cuda/lib64"], &[layer(&files)])
}

fn job(image: &str) -> String {
    format!(
        "name = \"llama\"\nimage = \"{image}\"\nnodes = 2\ngpus_per_node = 8\nmemory = \"1800Gi\"\ninstance_type = \"p5.48xlarge\"\n\
         profile = \"dgxc\"\nfabric = \"efa\"\ncommand = [\"train\"]\n"
    )
}

#[test]
fn an_image_that_cannot_load_the_mounted_stack_is_an_error() {
    let (place, registry) = (Place::new(), FakeRegistry::start().unwrap());
    place.write("old.toml", job(&image(&registry, "2.31")));
    let done = place.run("plan -b kubeflow --check-image old.toml");
    assert_eq!(done.code, 3, "{}", done.err);
    for said in [
        "GLIBC 2.31 < 2.34: the mounted EFA stack will not load",
        "[IMG-GLIBC]",
        "NCCL 2.27.3+cuda12.9 (/usr/lib/libnccl.so.2)",
        "LD_LIBRARY_PATH = \"/usr/local/cuda/lib64\"",
    ] {
        assert!(done.err.contains(said), "`{said}` is not in:\n{}", done.err);
    }
    let before = registry.requests().len();
    let plain = place.run("plan -b kubeflow old.toml").ok();
    assert!(!plain.err.contains("IMG-") && registry.requests().len() == before, "{}", plain.err);

    place.write("new.toml", job(&image(&registry, "2.39")));
    let report = place.run("plan -b kubeflow --check-image -o json new.toml").ok().json();
    let codes: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"IMG-LIBRARY-PATH") && !codes.contains(&"IMG-GLIBC"), "{codes:?}");
}

#[test]
fn an_image_that_cannot_be_read_is_no_plan() {
    let (place, registry) = (Place::new(), FakeRegistry::start().unwrap());
    place.write("none.toml", job(&format!("{}/none:1", registry.address)));
    let done = place.run("submit -b local --check-image none.toml");
    assert_eq!((done.code, done.out.as_str()), (6, ""), "{}", done.err);
    assert!(done.err.contains("no such image"), "{}", done.err);
}
