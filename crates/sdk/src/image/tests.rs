use std::io::Write;

use weftrun_core::ErrorKind;
use weftrun_core::image::{ImageFacts, Part};
use weftrun_testkit::registry::{FakeRegistry, layer};

use super::*;

fn glibc(version: &str) -> Vec<u8> {
    let text = format!("GNU C Library (Ubuntu GLIBC {version}-0ubuntu9) stable release version {version}.\n");
    layer(&[("lib/libc.so.6", text.as_bytes())])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn config(folder: &tempfile::TempDir) -> Config {
    let mut config = Config::empty(folder.path().join("state"));
    config.env.insert("HOME".into(), folder.path().display().to_string());
    config
}

async fn read(config: &Config, image: &str) -> Result<ImageFacts> {
    super::read(config, image, &|_| {}).await
}

fn versions(facts: &ImageFacts) -> Vec<(Part, &str)> {
    facts.found.iter().map(|found| (found.part, found.version.as_deref().unwrap_or_default())).collect()
}

#[tokio::test]
async fn layers_of_every_compression_are_read_once() {
    let (registry, folder) = (FakeRegistry::start().unwrap(), tempfile::tempdir().unwrap());
    let nccl = layer(&[("usr/lib/libnccl.so.2.21.5", &vec![b'x'; 300_000])]);
    let mpi = layer(&[("usr/lib/libmpi.so.40", b"Open MPI v4.1.6, package\0")]);
    let layers = [glibc("2.31"), gzip(&nccl), zstd(&mpi)];
    let image =
        registry.push("nlp/train", "1", &["PATH=/bin", "LD_LIBRARY_PATH=/usr/local/cuda/lib64"], &layers);
    let config = config(&folder);
    let facts = read(&config, &image).await.unwrap();
    assert_eq!(versions(&facts), [(Part::Glibc, "2.31"), (Part::Nccl, "2.21.5"), (Part::OpenMpi, "4.1.6")]);
    assert_eq!(
        (facts.library_path.as_deref(), &*facts.architecture),
        (Some("/usr/local/cuda/lib64"), "amd64")
    );
    assert!(facts.left_out.is_empty() && is_digest(&facts.digest), "{facts:?}");
    let before = registry.requests().len();
    assert_eq!(read(&config, &image).await.unwrap(), facts);
    // The list, the manifest and the configuration.
    assert_eq!(registry.requests().len() - before, 3, "{:?}", registry.requests());
}

#[tokio::test]
async fn a_login_is_used_and_asked_for() {
    let (registry, folder) = (FakeRegistry::start().unwrap(), tempfile::tempdir().unwrap());
    registry.wants_login("ada", "s3cr3t");
    let image = registry.push("private", "1", &[], &[glibc("2.39")]);
    let config = config(&folder);
    let error = read(&config, &image).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credentials, "{error}");
    assert!(error.hints()[0].contains("docker login"), "{:?}", error.hints());
    std::fs::create_dir(folder.path().join(".docker")).unwrap();
    let auth = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "ada:s3cr3t");
    let login = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"{auth}\"}}}}}}", registry.address);
    std::fs::write(folder.path().join(".docker/config.json"), login).unwrap();
    assert_eq!(versions(&read(&config, &image).await.unwrap()), [(Part::Glibc, "2.39")]);
    let tokens = registry.requests().iter().filter(|path| path.starts_with("/token?")).count();
    assert_eq!(tokens, 2, "one token is enough for all requests: {:?}", registry.requests());
}

#[tokio::test]
async fn what_is_not_what_it_says_is_refused_or_left_out() {
    let (registry, folder) = (FakeRegistry::start().unwrap(), tempfile::tempdir().unwrap());
    let config = config(&folder);
    let error = read(&config, &format!("{}/nothing:1", registry.address)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("manifest unknown"), "{error}");

    let real = glibc("2.31");
    let image = registry.push("spoilt", "1", &[], std::slice::from_ref(&real));
    registry.spoil("spoilt", &real, &glibc("2.99"));
    let error = read(&config, &image).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    // Nothing of it was cached.
    registry.spoil("spoilt", &real, &real);
    assert_eq!(versions(&read(&config, &image).await.unwrap()), [(Part::Glibc, "2.31")]);

    let half = gzip(&glibc("2.35"))[..80].to_vec();
    let image = registry.push("half", "1", &[], &[glibc("2.36"), half, b"no archive".to_vec()]);
    let facts = read(&config, &image).await.unwrap();
    assert_eq!((versions(&facts), facts.left_out.len()), (vec![(Part::Glibc, "2.36")], 2), "{facts:?}");
}

#[tokio::test]
async fn a_registry_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let error = read(&config(&folder), "127.0.0.1:1/a:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let error = read(&config(&folder), "127.0.0.1:1/a:b:c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
}

#[test]
fn a_note_of_a_digest_is_a_file_in_the_folder() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let file = note(Path::new("/state"), &digest);
    assert_eq!(file, Path::new("/state").join(format!("sha256-{}-v1.json", "0a".repeat(32))));
    assert!(!is_digest("sha256:../../x") && !is_digest("sha512:00"));
}

/// A registry whose every answer is an endless error.
fn endless_registry() -> String {
    use std::io::Read;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\r\n{\"errors\":[{\"message\":\"";
                let _ = stream.write_all(head.as_bytes());
                let piece = vec![b'x'; 1 << 20];
                while stream.write_all(&piece).is_ok() {}
            });
        }
    });
    address.to_string()
}

#[tokio::test]
async fn an_endless_error_is_cut() {
    let (address, folder) = (endless_registry(), tempfile::tempdir().unwrap());
    let began = std::time::Instant::now();
    let error = read(&config(&folder), &format!("{address}/a:1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.message().len() < 1000, "{}", error.message().len());
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
}

#[tokio::test]
async fn layers_of_several_frames_are_read_whole() {
    let (registry, folder) = (FakeRegistry::start().unwrap(), tempfile::tempdir().unwrap());
    let tar = layer(&[("usr/lib/libmpi.so.40", b"Open MPI v4.1.6, package\0")]);
    let (first, second) = tar.split_at(tar.len() / 2);
    let note = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"toc"].concat();
    let packed = [note.clone(), zstd(first), note.clone(), zstd(second), note].concat();
    let gzipped = [gzip(&glibc("2.31")[..700]), gzip(&glibc("2.31")[700..])].concat();
    let image = registry.push("frames", "1", &[], &[packed, gzipped]);
    let facts = read(&config(&folder), &image).await.unwrap();
    assert_eq!(versions(&facts), [(Part::Glibc, "2.31"), (Part::OpenMpi, "4.1.6")]);
    assert!(facts.left_out.is_empty(), "{facts:?}");
}
