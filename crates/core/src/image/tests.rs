use proptest::prelude::*;

use super::*;
use crate::catalogue::Catalogue;
use crate::fabric::{ClusterFacts, FabricPlan, Profiles};
use crate::request::Fabric;
use crate::spec::{JobSpec, Launch, Role};

/// Returns a member of an archive, as tar writes it.
fn member(kind: u8, path: &str, body: &[u8]) -> Vec<u8> {
    let mut head = [0u8; 512];
    head[..path.len().min(100)].copy_from_slice(&path.as_bytes()[..path.len().min(100)]);
    head[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
    head[156] = kind;
    head[257..263].copy_from_slice(b"ustar\0");
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = head.to_vec();
    all.extend_from_slice(body);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut all = members.concat();
    all.extend([0; 1024]);
    all
}

fn scan(bytes: &[u8], step: usize) -> Result<ImageLayer, NotALayer> {
    let mut scan = LayerScan::default();
    for piece in bytes.chunks(step.max(1)) {
        scan.feed(piece)?;
    }
    scan.finish()
}

fn elf(text: &str, before: usize) -> Vec<u8> {
    let mut bytes = vec![b'.'; before];
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes.extend([0x7f; 700]);
    bytes
}

const BANNER: &str = "GNU C Library (Ubuntu GLIBC 2.31-0ubuntu9.14) stable release version 2.31.\nCopyright";

fn usual() -> Vec<u8> {
    let long = format!("usr/{}/libmpi.so.40.30.4", "deep/".repeat(40));
    let pax = format!("path={long}\n");
    let pax = format!("{} {pax}", pax.len() + 4);
    archive(&[
        member(b'5', "./usr/lib/", b""),
        member(b'0', "./usr/lib/x86_64-linux-gnu/libc.so.6", &elf(BANNER, 1000)),
        member(b'0', "opt/amazon/efa/lib/libfabric.so.1.24.0", b"\x7fELF"),
        member(b'2', "opt/amazon/efa/lib/libfabric.so.1", b""),
        member(
            b'0',
            "opt/amazon/efa/lib/pkgconfig/libfabric.pc",
            b"Name: libfabric\nVersion: 1.22.0amzn1.0\nLibs: -lfabric\n",
        ),
        member(b'0', "opt/aws/lib/libnccl-net.so", &elf("Initializing aws-ofi-nccl 1.13.2-aws", 3)),
        member(b'0', "opt/hpcx/lib/libnccl-net.so.0.0.0", &elf("NET/IB : SHARP", 3)),
        member(
            b'0',
            "usr/lib/libnccl.so.2",
            &elf("NCCL version %d.%d", 1)
                .into_iter()
                .chain(elf("NCCL version 2.20.5+cuda12.4", 9))
                .collect::<Vec<_>>(),
        ),
        member(b'x', "PaxHeader", pax.as_bytes()),
        member(b'0', "cut-off-name", &elf("Open MPI v4.1.4, package: Debian", 77)),
        member(b'0', "usr/lib/mpich/libmpi.so.12", &elf("MPICH 4.1", 0)),
        member(b'0', "etc/passwd", b"root:x:0:0\n"),
        member(b'0', "../libc.so.6", &elf("GNU C Library (x) version 9.9.", 0)),
    ])
}

fn of(layer: &ImageLayer) -> Vec<(Part, &str, Option<&str>)> {
    layer.found.iter().map(|found| (found.part, found.path.as_str(), found.version.as_deref())).collect()
}

#[test]
fn what_matters_is_found_with_its_version() {
    let layer = scan(&usual(), 4096).unwrap();
    let deep = format!("/usr/{}libmpi.so.40.30.4", "deep/".repeat(40));
    assert_eq!(
        of(&layer),
        [
            (Part::Glibc, "/usr/lib/x86_64-linux-gnu/libc.so.6", Some("2.31")),
            (Part::Libfabric, "/opt/amazon/efa/lib/libfabric.so.1.24.0", None),
            (Part::LibfabricNote, "/opt/amazon/efa/lib/pkgconfig/libfabric.pc", Some("1.22.0amzn1.0")),
            (Part::AwsOfiNccl, "/opt/aws/lib/libnccl-net.so", Some("1.13.2-aws")),
            (Part::NetPlugin, "/opt/hpcx/lib/libnccl-net.so.0.0.0", None),
            (Part::Nccl, "/usr/lib/libnccl.so.2", Some("2.20.5+cuda12.4")),
            (Part::OpenMpi, &deep, Some("4.1.4")),
        ]
    );
    let seen = over([&layer]);
    let libfabric = seen.iter().find(|found| found.part == Part::Libfabric).unwrap();
    assert_eq!(libfabric.version.as_deref(), Some("1.22.0amzn1.0"));
}

#[test]
fn layers_cover_and_take_away() {
    let library = |path: &str, version: &str| {
        let text = format!("NCCL version {version}");
        member(b'0', path, &elf(&text, 5))
    };
    let layers = [
        archive(&[
            library("a/libnccl.so.2", "2.19.3"),
            library("b/libnccl.so.2", "2.20.1"),
            library("c/d/libnccl.so.2", "2.21.1"),
            library("e/libnccl.so.2", "2.22.1"),
        ]),
        archive(&[
            library("a/libnccl.so.2", "2.28.9"),
            member(b'0', "b/.wh.libnccl.so.2", b""),
            member(b'0', "c/.wh..wh..opq", b""),
            member(b'2', "e/libnccl.so.2", b""),
        ]),
        archive(&[library("c/libnccl.so.2", "2.26.2")]),
    ];
    let layers: Vec<ImageLayer> = layers.iter().map(|layer| scan(layer, 512).unwrap()).collect();
    let seen = over(&layers);
    let seen: Vec<_> =
        seen.iter().map(|found| (found.path.as_str(), found.version.as_deref().unwrap())).collect();
    assert_eq!(seen, [("/a/libnccl.so.2", "2.28.9"), ("/c/libnccl.so.2", "2.26.2")]);
}

#[test]
fn what_is_no_archive_or_only_half_of_one_is_refused() {
    assert_eq!(scan(b"", 1), Err(NotALayer));
    assert_eq!(scan(&[b'x'; 2048], 100), Err(NotALayer));
    let whole = usual();
    assert_eq!(scan(&whole[..whole.len() - 2048], 100), Err(NotALayer));
    let mut damaged = whole;
    damaged[3] ^= 1;
    assert_eq!(scan(&damaged, 100), Err(NotALayer));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Chunk borders do not change the result.
    #[test]
    fn pieces_do_not_matter(step in 1usize..3000) {
        let whole = usual();
        prop_assert_eq!(scan(&whole, step), scan(&whole, whole.len()));
    }

    /// No input makes it panic, and its memory is bounded.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2000), at in 0usize..9000, step in 1usize..700) {
        let _ = scan(&bytes, step);
        let mut whole = usual();
        for (index, byte) in bytes.iter().enumerate() {
            let at = (at + index) % whole.len();
            whole[at] = *byte;
        }
        let _ = scan(&whole, step);
    }
}

fn image(found: &[(Part, &str, Option<&str>)]) -> ImageFacts {
    let found = found.iter().map(|(part, path, version)| Library {
        part: *part,
        path: (*path).to_owned(),
        version: version.map(str::to_owned),
    });
    ImageFacts { reference: "x.io/train:1".into(), found: found.collect(), ..ImageFacts::default() }
}

fn judged(image: &ImageFacts, profile: &str, fabric: Fabric, launch: Launch) -> Vec<(String, String)> {
    let worker = Role::worker().nodes(2).gpus_per_node(8).memory("1800Gi").instance_type("p5.48xlarge");
    let spec = JobSpec::builder("llama").image("x.io/train:1").launch(launch).fabric(fabric);
    let spec = spec.role(worker.command(["train"])).build().unwrap();
    let profile = Profiles::builtin().get(profile).unwrap();
    let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
    assert_eq!(plan.fabric, fabric, "{:?}", plan.skipped);
    judge(image, &spec, &plan, &profile).into_iter().map(|finding| (finding.code, finding.message)).collect()
}

fn codes(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(code, _)| code.as_str()).collect()
}

#[test]
fn an_old_c_library_does_not_load_the_mounted_stack() {
    let old = image(&[(Part::Glibc, "/lib/libc.so.6", Some("2.31"))]);
    let said = judged(&old, "dgxc", Fabric::Efa, Launch::PerRank);
    assert_eq!(said[0].1, "GLIBC 2.31 < 2.34: the mounted EFA stack will not load");
    assert_eq!(codes(&said), ["IMG-GLIBC"]);
    let musl = image(&[(Part::Musl, "/lib/ld-musl-x86_64.so.1", None)]);
    assert_eq!(codes(&judged(&musl, "dgxc", Fabric::Efa, Launch::PerRank)), ["IMG-GLIBC"]);
    for fine in ["2.34", "2.35-0ubuntu3", "2.100", "3.0"] {
        let image = image(&[(Part::Glibc, "/lib/libc.so.6", Some(fine))]);
        assert!(judged(&image, "dgxc", Fabric::Efa, Launch::PerRank).is_empty(), "{fine}");
    }
    // Nothing is mounted there, so no library of the node needs to load.
    let own = image(&[
        (Part::Glibc, "/lib/libc.so.6", Some("2.31")),
        (Part::Libfabric, "/opt/amazon/efa/lib/libfabric.so.1", None),
        (Part::AwsOfiNccl, "/opt/amazon/ofi-nccl/lib/libnccl-net.so", None),
    ]);
    assert!(judged(&own, "eks-image", Fabric::Efa, Launch::PerRank).is_empty());
    assert_eq!(codes(&judged(&own, "dgxc", Fabric::Efa, Launch::PerRank)), ["IMG-GLIBC", "IMG-TWO-STACKS"]);
}

#[test]
fn an_image_without_the_stack_that_nobody_mounts() {
    let half = image(&[
        (Part::Libfabric, "/usr/lib/libfabric.so.1", None),
        (Part::NetPlugin, "/opt/hpcx/libnccl-net.so", None),
    ]);
    let said = judged(&half, "eks-image", Fabric::Efa, Launch::PerRank);
    assert_eq!(codes(&said), ["IMG-NO-STACK"]);
    assert!(said[0].1.contains("no aws-ofi-nccl") && !said[0].1.contains("no libfabric"), "{}", said[0].1);
}

#[test]
fn folders_of_the_image_that_are_hidden_are_named() {
    let mut own = image(&[(Part::Glibc, "/lib/libc.so.6", Some("2.39"))]);
    own.library_path = Some("/usr/local/cuda/lib64:/opt/amazon-efa-ofi/ofi/lib:/opt/x".into());
    let said = judged(&own, "dgxc", Fabric::Efa, Launch::PerRank);
    assert_eq!(codes(&said), ["IMG-LIBRARY-PATH"]);
    assert!(said[0].1.ends_with("/usr/local/cuda/lib64:/opt/x"), "{}", said[0].1);
}

#[test]
fn versions_that_do_not_go_together() {
    let five = image(&[
        (Part::Glibc, "/lib/libc.so.6", Some("2.39")),
        (Part::OpenMpi, "/usr/lib/libmpi.so.40", Some("5.0.6")),
    ]);
    assert_eq!(codes(&judged(&five, "dgxc", Fabric::Efa, Launch::Mpi)), ["IMG-OPENMPI"]);
    assert!(judged(&five, "dgxc", Fabric::Efa, Launch::PerRank).is_empty());
    let odd = image(&[
        (Part::OpenMpi, "/usr/lib/libmpi.so.40", Some("")),
        (Part::Nccl, "/l/libnccl.so", Some("?")),
    ]);
    assert!(judged(&odd, "dgxc", Fabric::Efa, Launch::Mpi).is_empty());
    let nccl = |version| image(&[(Part::Nccl, "/usr/lib/libnccl.so.2", Some(version))]);
    assert_eq!(
        codes(&judged(&nccl("2.20.5+cuda12.4"), "roce", Fabric::Roce, Launch::PerRank)),
        ["IMG-NCCL-GID"]
    );
    assert!(judged(&nccl("2.21.5"), "roce", Fabric::Roce, Launch::PerRank).is_empty());
}

#[test]
fn names_that_the_images_nccl_does_not_read_are_reported() {
    let judged = |version: &str| {
        let image = image(&[(Part::Nccl, "/usr/lib/libnccl.so.2", Some(version))]);
        let worker = Role::worker().nodes(2).gpus_per_node(8).env("NCCL_RAS_ENABLE", "0");
        let spec = JobSpec::builder("llama").image("x.io/train:1").env("NCCL_DEBUG", "INFO");
        let spec = spec.role(worker.command(["train"])).build().unwrap();
        let profile = Profiles::builtin().get("infiniband").unwrap();
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        judge(&image, &spec, &plan, &profile)
            .into_iter()
            .map(|one| (one.code, one.message))
            .collect::<Vec<_>>()
    };
    let old = judged("2.23.4+cuda12.6");
    assert_eq!(codes(&old), ["L-NAME-VERSION"]);
    assert!(old[0].1.contains("NCCL_RAS_ENABLE") && old[0].1.contains("since NCCL 2.24"), "{old:?}");
    // That version has an advisory of its own.
    assert_eq!(codes(&judged("2.24.3")), ["W-ADVISORY"]);
    assert_eq!(judged("?"), []);
}

#[test]
fn layers_that_take_much_away_are_laid_over_each_other_in_linear_time() {
    let many = |count: usize| {
        let found = (0..count).map(|at| Library {
            part: Part::Nccl,
            path: format!("/lib{at}/a/b/c/libnccl.so"),
            version: None,
        });
        let bottom = ImageLayer { found: found.collect(), ..ImageLayer::default() };
        let gone = (0..count).map(|at| format!("/lib{at}/none"));
        let top =
            ImageLayer { removed: gone.clone().collect(), emptied: gone.collect(), ..ImageLayer::default() };
        let began = std::time::Instant::now();
        let seen = over([&bottom, &top, &top, &top]);
        assert_eq!(seen.len(), count);
        began.elapsed()
    };
    let (once, eight) = (many(2000), many(16_000));
    assert!(eight < once * 30 + std::time::Duration::from_millis(500), "{once:?}, {eight:?}");
}
