//! Code delivered with a job: a script or a folder, inside the command or in a ConfigMap, or a Git repository cloned
//! before the start.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use weftrun_core::spec::{Archive, Code, CodeContent, JobSpec};
use weftrun_core::text::rounded_size;
use weftrun_core::{Error, ErrorKind, Result};

/// How a script is delivered to the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scripts {
    /// Inline if it is small, or if ConfigMaps may not be created.
    #[default]
    Auto,
    /// In the command.
    Inline,
    /// In a ConfigMap.
    ConfigMap,
}

/// The folder of the code in the container.
const FOLDER: &str = "/tmp/weftrun-code";
const MOUNT: &str = "/opt/weftrun/code";
/// The volume of a ConfigMap with code.
pub const VOLUME: &str = "weftrun-code";
/// Up to this size a script is still readable inside a command.
const SMALL: usize = 16 * 1024;
/// The kernel accepts at most 128 KiB in one argument, and base64 makes four bytes of three.
const LARGEST_INLINE: usize = 90 * 1024;
/// An object in etcd is at most 1.5 MiB; a ConfigMap at most 1 MiB.
const LARGEST_MAP: usize = 900 * 1024;

/// Makes the folder `d`, which must be this user's own and no link, since a temporary folder may be a volume that other users write to.
macro_rules! own_folder {
    () => {
        r#"mkdir -m 755 "$d" 2>/dev/null; [ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || { echo "weftrun: $d cannot be created, or belongs to another user" >&2; exit 1; };"#
    };
}

/// Writes the script and runs the command; many ranks of one pod may do so at once.
const INLINE: &str = concat!(
    r#"f=$1 d=${1%/*} t=$1.$$ b=$2; shift 2; "#,
    own_folder!(),
    r#" printf %s "$b" | base64 -d >"$t" && mv "$t" "$f" && exec "$@""#
);
/// Clones once and runs the command in the clone.
const GIT: &str = concat!(
    r#"d=$1 u=$2 r=$3; shift 3; "#,
    own_folder!(),
    r#" p=https:ssh:file; case $u in http:*) p=$p:http ;; esac; [ -d "$d/.git" ] || GIT_ALLOW_PROTOCOL=$p GIT_TERMINAL_PROMPT=0 $(command -v timeout >/dev/null && echo timeout 1800) git clone --quiet -- "$u" "$d" || { echo "weftrun: error: the code was not fetched: see git's message above" >&2; exit 1; }; cd "$d" || exit; [ -z "$r" ] || GIT_ALLOW_PROTOCOL=$p git checkout --quiet "$r" -- || { echo "weftrun: error: the code was not fetched: revision $r" >&2; exit 1; }; exec "$@""#
);

/// Unpacks a folder once in a pod, and runs the command in it, or in the folder below it that `w` names. The archive is a file,
/// or base64. Ranks that begin at the same time each unpack, and the first link wins, so that none sees an incomplete folder.
const UNPACK: &str = concat!(
    r#"d=$1 a=$2 w=$3; shift 3; "#,
    own_folder!(),
    r#" [ -e "$d/folder" ] || { t=$(mktemp -d "$d/folder.XXXXXX") && case $a in (/*) cat -- "$a" ;; (*) printf %s "$a" | base64 -d ;; esac | tar -xzf - -C "$t" && chmod 755 "$t" || { echo "weftrun: error: the code was not fetched: see the message above; the image needs tar and gzip" >&2; rm -rf "$t"; exit 1; }; ln -s -n "$t" "$d/folder" 2>/dev/null || rm -rf "$t"; }; case $w in (/*) ;; (*) cd -P "$d/folder" && cd "./$w" || exit ;; esac; exec "$@""#
);
/// The archive in the ConfigMap.
const ARCHIVE: &str = "code.tar.gz";
/// A ConfigMap holds at most 1 MiB, keys included (k8s.io/kubernetes pkg/apis/core/validation, `MaxSecretSize`).
const LARGEST_ARCHIVE: usize = (1 << 20) - 1024;

/// How the code of a job is delivered to its pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// There is no code.
    None,
    /// These words are put before the command.
    Before(Vec<String>),
    /// A ConfigMap of this name and data, mounted.
    ConfigMap {
        /// Its name.
        name: String,
        /// The script's file name.
        file: String,
        /// The script.
        text: String,
    },
    /// A ConfigMap of this name with the archive of a folder, mounted, and the words before the command that unpack it.
    Folder {
        /// Its name.
        name: String,
        /// The archive.
        archive: Archive,
        /// The words.
        before: Vec<String>,
    },
}

impl Delivery {
    /// Chooses the delivery. `may_make_maps` is none if unknown.
    pub fn of(spec: &JobSpec, how: Scripts, may_make_maps: Option<bool>) -> Result<Self> {
        let words = |script: &str, args: &[&str]| -> Vec<String> {
            let start = ["/bin/sh", "-c", script, "weftrun-code"];
            start.iter().chain(args).map(|word| (*word).to_owned()).collect()
        };
        let shell = |script: &str, args: &[&str]| Self::Before(words(script, args));
        match &spec.code {
            None => Ok(Self::None),
            Some(Code::Git { rev: Some(rev), .. }) if rev.starts_with('-') => {
                Err(Error::new(ErrorKind::InvalidSpec, "a Git revision cannot start with `-`")
                    .with("rev", rev))
            }
            Some(Code::Git { url, rev }) => {
                Ok(shell(GIT, &[FOLDER, url, rev.as_deref().unwrap_or_default()]))
            }
            Some(Code::Script { name, text }) => {
                if name.is_empty() || name.contains('/') {
                    return Err(Error::new(
                        ErrorKind::InvalidSpec,
                        "the name of the script is not a plain file name",
                    )
                    .with("code", name));
                }
                let size = text.len();
                let map = match how {
                    Scripts::Inline => false,
                    Scripts::ConfigMap => true,
                    Scripts::Auto => size > SMALL && may_make_maps == Some(true),
                };
                let largest = if map { LARGEST_MAP } else { LARGEST_INLINE };
                if size > largest {
                    return Err(Error::new(
                        ErrorKind::InvalidSpec,
                        format!("the script has {size} bytes, {largest} fit"),
                    )
                    .with("code", name)
                    .hint(
                        "put it into the image, on a shared volume, or into a Git repository (`code.git`)",
                    ));
                }
                if map {
                    return Ok(Self::ConfigMap {
                        name: format!("{}-code", spec.name),
                        file: name.clone(),
                        text: text.clone(),
                    });
                }
                Ok(shell(INLINE, &[&format!("{FOLDER}/{name}"), &STANDARD.encode(text)]))
            }
            Some(Code::Folder { dir, .. }) => {
                let Some(content) = spec.code_archive()? else { return Ok(Self::None) };
                let bytes = content.archive.bytes();
                let map = how != Scripts::Inline && may_make_maps != Some(false);
                let largest = if map { LARGEST_ARCHIVE } else { LARGEST_INLINE };
                if bytes.len() > largest {
                    return Err(too_large(dir, content, largest, map, may_make_maps));
                }
                let workdir = spec.workdir.as_deref().unwrap_or(".");
                // A volume at /tmp may have the folder of another job.
                let folder = format!("{FOLDER}-{}", content.hash.get(..12).unwrap_or(&content.hash));
                if map {
                    let before = words(UNPACK, &[&folder, &format!("{MOUNT}/{ARCHIVE}"), workdir]);
                    let name = format!("{}-code", spec.name);
                    return Ok(Self::Folder { name, archive: content.archive.clone(), before });
                }
                Ok(shell(UNPACK, &[&folder, &STANDARD.encode(bytes), workdir]))
            }
            Some(_) => Err(Error::new(ErrorKind::Unsupported, "code of this kind cannot be brought along")),
        }
    }

    /// Returns the command with the script's name replaced by its path, and with the words before it.
    pub fn command(&self, spec: &JobSpec, command: Vec<String>) -> Vec<String> {
        let folder = if matches!(self, Self::ConfigMap { .. }) { MOUNT } else { FOLDER };
        let command = match &spec.code {
            Some(Code::Script { name, .. }) => {
                let dotted = format!("./{name}");
                let is = |word: &String| word == name || *word == dotted;
                command
                    .into_iter()
                    .map(|word| if is(&word) { format!("{folder}/{name}") } else { word })
                    .collect()
            }
            _ => command,
        };
        match self {
            Self::Before(words) | Self::Folder { before: words, .. } if !command.is_empty() => {
                words.iter().cloned().chain(command).collect()
            }
            _ => command,
        }
    }

    /// Returns the name of the ConfigMap, to be changed.
    pub fn map_name(&mut self) -> Option<&mut String> {
        match self {
            Self::ConfigMap { name, .. } | Self::Folder { name, .. } => Some(name),
            Self::None | Self::Before(_) => None,
        }
    }

    /// Returns the volume and mount of a ConfigMap.
    pub fn volume(&self) -> Option<(Value, Value)> {
        let (Self::ConfigMap { name, .. } | Self::Folder { name, .. }) = self else { return None };
        Some((
            json!({"name": VOLUME, "configMap": {"name": name, "defaultMode": 0o555}}),
            json!({"name": VOLUME, "mountPath": MOUNT, "readOnly": true}),
        ))
    }

    /// Returns the ConfigMap.
    pub fn object(&self, metadata: &Value) -> Option<Value> {
        let (name, key, data) = match self {
            Self::ConfigMap { name, file, text } => (name, "data", json!({file: text})),
            Self::Folder { name, archive, .. } => {
                (name, "binaryData", json!({ARCHIVE: STANDARD.encode(archive.bytes())}))
            }
            Self::None | Self::Before(_) => return None,
        };
        let mut metadata = metadata.clone();
        metadata["name"] = json!(name);
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("annotations");
        }
        Some(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, key: data}))
    }
}

/// Returns the refusal of a folder that does not fit where its archive would be.
fn too_large(
    dir: &str,
    content: &CodeContent,
    largest: usize,
    map: bool,
    may_make_maps: Option<bool>,
) -> Error {
    let place = if map { "a ConfigMap" } else { "the command of a pod" };
    let size = rounded_size(content.archive.bytes().len() as u64);
    let message = format!(
        "the job's folder has {size} compressed, and {} fit into {place}",
        rounded_size(largest as u64)
    );
    let error = Error::new(ErrorKind::InvalidSpec, message)
        .with("code.dir", dir)
        .hint("build it into the image, clone it on a shared volume, or use `code = { git = … }`")
        .hint("list what the job does not need in `.gitignore`");
    match may_make_maps {
        Some(false) if !map => error.hint("ConfigMaps, which hold more, cannot be created here"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use proptest::prelude::*;

    use super::*;
    use weftrun_testkit::child;

    fn inline(shell: &str, file: &std::path::Path, text: &str) -> Output {
        let mut command = child::command(shell);
        command.args(["-c", INLINE, "weftrun-code"]).arg(file).arg(STANDARD.encode(text));
        command.arg("cat").arg(file).output().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn an_inline_script_arrives_byte_for_byte(text in "([ -~]|[\r\n\t\u{1}\u{7f}é🦀]|\\$\\(touch canary\\)|WEFTRUN_END\n){0,200}") {
            for shell in ["dash", "bash"] {
                let dir = tempfile::tempdir().unwrap();
                let done = inline(shell, &dir.path().join("code/x y'$(id).py"), &text);
                prop_assert_eq!(done.stdout, text.clone().into_bytes(), "{}", shell);
            }
        }
    }

    /// Point A4 of issue 14.
    #[test]
    fn an_inline_script_follows_no_link_that_somebody_planted() {
        for shell in ["dash", "bash"] {
            let (dir, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::os::unix::fs::symlink(victim.path(), dir.path().join("code")).unwrap();
            let done = inline(shell, &dir.path().join("code/x.py"), "print(1)\n");
            assert_eq!(done.status.code(), Some(1), "{shell}");
            assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0, "{shell} followed the link");
            let git = child::command(shell)
                .args(["-c", GIT, "weftrun-code"])
                .arg(dir.path().join("code"))
                .args(["/nonexistent/repository", "", "true"])
                .output()
                .unwrap();
            assert_eq!(git.status.code(), Some(1), "{shell}");
            assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0, "{shell} followed the link");
        }
    }

    #[test]
    fn a_revision_that_git_would_take_for_an_option_is_refused() {
        let mut spec = JobSpec::builder("git")
            .role(weftrun_core::spec::Role::worker().command(["true"]))
            .build()
            .unwrap();
        spec.code =
            Some(Code::Git { url: "https://host/repository".into(), rev: Some("--upload-pack=x".into()) });
        let refused = Delivery::of(&spec, Scripts::Auto, None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
    }

    fn folder(bytes: usize) -> JobSpec {
        let mut spec = JobSpec::builder("code")
            .role(weftrun_core::spec::Role::worker().command(["./run.sh", "x"]))
            .build()
            .unwrap();
        let archive = Archive::new(vec![b'x'; bytes]);
        let content =
            CodeContent { hash: "ab".repeat(32), commit: None, dirty: false, files: 1, bytes: 1, archive };
        spec.code = Some(Code::Folder { dir: ".".into(), content: Some(content) });
        spec
    }

    /// Point 10 of issue 39: ranks of one pod begin at the same time.
    #[test]
    fn a_folder_is_unpacked_once_and_whole_by_ranks_that_begin_together() {
        for shell in ["dash", "bash"] {
            let dir = tempfile::tempdir().unwrap();
            let source = dir.path().join("source");
            std::fs::create_dir_all(source.join("sub")).unwrap();
            (0..200).for_each(|n| std::fs::write(source.join(format!("sub/{n}")), "x").unwrap());
            let Code::Folder { content: Some(content), .. } = weftrun_testkit::code_folder(&source) else {
                panic!("a folder")
            };
            let archive = dir.path().join("code.tar.gz");
            std::fs::write(&archive, content.archive.bytes()).unwrap();
            let encoded = STANDARD.encode(content.archive.bytes());
            for (number, from) in [archive.display().to_string(), encoded].iter().enumerate() {
                let code = dir.path().join(format!("code-{number}"));
                let start = |workdir: &str| {
                    let mut command = child::command(shell);
                    command.args(["-c", UNPACK, "weftrun-code"]).arg(&code).arg(from).arg(workdir);
                    command.args(["sh", "-c", "ls | wc -l; basename \"$PWD\""]);
                    command.stdout(std::process::Stdio::piped()).spawn().unwrap()
                };
                let ranks: Vec<_> = (0..8).map(|_| start("sub")).collect();
                for rank in ranks {
                    let done = rank.wait_with_output().unwrap();
                    assert_eq!(String::from_utf8_lossy(&done.stdout), "200\nsub\n", "{shell} {number}");
                }
                let whole = start(".").wait_with_output().unwrap();
                assert!(String::from_utf8_lossy(&whole.stdout).starts_with("1\n"), "{shell} {number}");
                // One copy and the link to it.
                assert_eq!(std::fs::read_dir(&code).unwrap().count(), 2, "{shell} {number}");
            }
            let cut = STANDARD.encode(&content.archive.bytes()[..content.archive.bytes().len() / 2]);
            let mut command = child::command(shell);
            command
                .args(["-c", UNPACK, "weftrun-code"])
                .arg(dir.path().join("cut"))
                .args([&cut, ".", "true"]);
            let done = command.output().unwrap();
            assert_eq!(done.status.code(), Some(1), "{shell}");
            assert!(String::from_utf8_lossy(&done.stderr).contains("the code was not fetched"), "{done:?}");
            assert_eq!(std::fs::read_dir(dir.path().join("cut")).unwrap().count(), 0, "{shell}");
        }
    }

    #[test]
    fn a_folder_is_in_a_config_map_up_to_its_limit_or_inline_and_else_refused() {
        let of = |bytes, how, may| Delivery::of(&folder(bytes), how, may);
        let map = of(LARGEST_ARCHIVE, Scripts::Auto, None).unwrap();
        let object = map.object(&json!({"labels": {}})).unwrap();
        assert_eq!(object["binaryData"][ARCHIVE].as_str().unwrap().len(), LARGEST_ARCHIVE.div_ceil(3) * 4);
        assert!(object["data"].is_null() && map.volume().is_some());
        let words = map.command(&folder(1), vec!["./run.sh".into()]);
        assert!(words.last().unwrap() == "./run.sh" && words.contains(&format!("{MOUNT}/{ARCHIVE}")));
        let inline = of(1000, Scripts::Auto, Some(false)).unwrap();
        assert!(inline.volume().is_none() && inline.object(&json!({})).is_none(), "{inline:?}");
        for (bytes, how, may, said) in [
            (LARGEST_ARCHIVE + 1, Scripts::Auto, None, "fit into a ConfigMap"),
            (
                LARGEST_INLINE + 1,
                Scripts::Auto,
                Some(false),
                "ConfigMaps, which hold more, cannot be created here",
            ),
            (LARGEST_INLINE + 1, Scripts::Inline, Some(true), "fit into the command of a pod"),
        ] {
            let refused = of(bytes, how, may).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
            let told = format!("{refused} {:?}", refused.hints());
            assert!(told.contains(said) && told.contains("code = { git"), "{told}");
        }
        assert!(of(0, Scripts::Auto, None).is_err(), "a folder that nobody read");
    }

    #[cfg(any(feature = "hosts", feature = "slurm"))]
    #[test]
    fn git_is_told_which_transports_it_may_use_and_ends() {
        // What the scripts of every backend run, with a program in the place of git.
        let script = |url: &str, folder: &std::path::Path| {
            let code = Code::Git { url: url.into(), rev: Some("main".into()) };
            crate::remote::script::code("slurm", &code, &folder.display().to_string(), "", "exit 1").unwrap()
        };
        for shell in ["dash", "bash"] {
            for (url, protocols) in [
                ("https://host/x", "https:ssh:file"),
                ("git@host:x", "https:ssh:file"),
                ("http://127.0.0.1/x", "https:ssh:file:http"),
            ] {
                let dir = tempfile::tempdir().unwrap();
                let (git, folder) = (dir.path().join("git"), dir.path().join("code"));
                let said = "#!/bin/sh\necho \"$GIT_ALLOW_PROTOCOL $*\" >> \"${0%/*}/said\"\n";
                std::fs::write(&git, said).unwrap();
                std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
                let path = format!("{}:{}", dir.path().display(), child::path());
                let run = |script: &str, words: &[&str]| {
                    let mut command = child::command(shell);
                    command.args(["-c", script, "weftrun-code"]).args(words).env("PATH", &path);
                    let done = command.output().unwrap();
                    assert!(
                        done.status.success(),
                        "{shell} {url}: {}",
                        String::from_utf8_lossy(&done.stderr)
                    );
                };
                run(GIT, &[&folder.display().to_string(), url, "main", "true"]);
                run(&script(url, &folder), &[]);
                let said = std::fs::read_to_string(dir.path().join("said")).unwrap();
                let lines: Vec<&str> = said.lines().collect();
                assert_eq!(lines.len(), 4, "{shell} {url}: {said}");
                assert!(
                    lines.iter().all(|line| line.split(' ').next() == Some(protocols)),
                    "{shell} {url}: {said}"
                );
                assert!(said.contains("clone --quiet --"), "{said}");
            }
        }
        assert!(GIT.contains(&format!("timeout {}", weftrun_core::spec::git::CLONE_LIMIT)));
    }
}
