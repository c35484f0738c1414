//! `code = { dir = … }`: the folder comes in a ConfigMap of the job, is unpacked in each pod, and goes with the job.

use crate::cluster::{cluster, name, poll};
use crate::replayed::handle_of;
use crate::shell::Shell;

const SCRIPT: &str =
    "#!/bin/sh\necho \"$(cat sub/deep.txt) and $(cat near) for rank $RANK in $PWD\"\necho out > result.txt\n";

#[test]
fn a_folder_reaches_every_pod_and_goes_with_its_job() {
    let Some(cluster) = cluster() else { return };
    let (shell, name) = (Shell::of(cluster, "researcher"), name("folder"));
    let folder = shell.home.path().join("code");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("show.sh"), SCRIPT).unwrap();
    std::fs::write(folder.join("sub/deep.txt"), "deep").unwrap();
    std::os::unix::fs::symlink("sub/deep.txt", folder.join("near")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.join("show.sh"), mode).unwrap();
    let job = |name: &str, more: &str| {
        format!(
            "name = \"{name}\"\nimage = \"busybox:1.36\"\nlaunch = \"per-rank\"\nnodes = 2\nranks_per_node = 2\nfabric = \"off\"\n\
             command = [\"./show.sh\"]\ncode = {{ dir = \"code\" }}\n{more}"
        )
    };
    shell.write("job.toml", &job(&name, ""));
    let rendered = shell.weftrun(&["render", "-b", "kubeflow", "job.toml"]);
    assert!(
        rendered.stdout.contains("kind: ConfigMap") && rendered.stdout.contains("code.tar.gz:"),
        "{}",
        rendered.stdout
    );
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for rank in 0..4 {
        let line = format!("deep and deep for rank {rank} in ");
        assert!(ran.lines().keys().any(|known| known.starts_with(&line)), "{line}: {}", ran.stdout);
    }
    let described = shell.weftrun(&["describe", &handle_of(&ran)]);
    assert!(
        described.stdout.contains("3 files") && described.stdout.contains("sha256 "),
        "{}",
        described.stdout
    );
    // Another user's weftrun reads it from the job.
    let object = shell.cluster.get(&["pytorchjob", &name]);
    let told = object["metadata"]["annotations"]["weftrun.dev/code"].as_str().unwrap_or_default();
    assert!(told.contains("3 files"), "{object:#}");
    let maps = || {
        shell.cluster.kubectl(&["get", "configmap", "-o", "name"]).matches(&format!("{name}-code")).count()
    };
    assert_eq!(maps(), 1);
    shell.delete(&handle_of(&ran));
    poll("the ConfigMap's end", || (maps() == 0).then_some(()));

    // A folder below it, and the command alone where ConfigMaps may not be created.
    let inside = format!("{name}-in");
    shell.write(
        "in.toml",
        &job(&inside, "workdir = \"sub\"\n[backend.kubeflow]\nscripts = \"inline\"\n")
            .replace("\"./show.sh\"", "\"cat\", \"deep.txt\""),
    );
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "in.toml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("deep"), "{}", ran.stdout);
    shell.delete(&handle_of(&ran));
}
