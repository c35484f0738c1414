//! The GID wrapper, run by a real POSIX shell over fake sysfs trees.

use std::fs;
use std::path::{Path, PathBuf};

use crate::child;
use weftrun_core::shell::gid;

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("weftrun-gid-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// Adds a device whose port 1 has these (type, address) pairs, by index.
    fn device(self, name: &str, gids: &[(&str, &str)]) -> Self {
        let port = self.0.join(name).join("ports/1");
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        fs::create_dir_all(port.join("gids")).unwrap();
        for (index, (kind, address)) in gids.iter().enumerate() {
            fs::write(port.join(format!("gid_attrs/types/{index}")), format!("{kind}\n")).unwrap();
            fs::write(port.join(format!("gids/{index}")), format!("{address}\n")).unwrap();
        }
        self
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const V4: &str = "0000:0000:0000:0000:0000:ffff:0a00:0001";
const V6: &str = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";

fn run(shell: &str, sysfs: &Path, argv: &[&str], env: &[(&str, &str)]) -> String {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let wrapped = gid::wrap(&argv);
    let output = child::command(shell)
        .args(&wrapped[1..])
        .env("FABRIC_GID_SYSFS", sysfs)
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/dash", "/bin/bash"].into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

fn index(tree: &Tree) -> String {
    let show = ["/bin/sh", "-c", "echo \"${NCCL_IB_GID_INDEX-unset}\""];
    let all: Vec<_> = shells().into_iter().map(|shell| run(shell, &tree.0, &show, &[])).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    all[0].trim().to_owned()
}

#[test]
fn the_index_of_the_ipv4_roce_v2_gid_is_found() {
    let both = [("IB/RoCE v1", V6), ("RoCE v2", V6), ("IB/RoCE v1", V4), ("RoCE v2", V4)];
    assert_eq!(index(&Tree::new("several").device("mlx5_0", &both)), "3");
    // One GID only: where a `grep` over one file prints no file name.
    assert_eq!(index(&Tree::new("one").device("mlx5_0", &[("RoCE v2", V4)])), "0");
    assert_eq!(index(&Tree::new("two-hcas").device("mlx5_0", &both).device("mlx5_1", &both)), "3");
    // Ten and above are numbers, not texts.
    let mut many = vec![("IB/RoCE v1", V6); 9];
    many.extend([("RoCE v2", V4), ("RoCE v2", V4)]);
    assert_eq!(index(&Tree::new("many").device("mlx5_0", &many)), "9");
}

#[test]
fn without_a_certain_answer_it_stays_unset() {
    assert_eq!(index(&Tree::new("none")), "unset");
    assert_eq!(index(&Tree::new("v6").device("mlx5_0", &[("RoCE v2", V6)])), "unset");
    assert_eq!(index(&Tree::new("ib").device("mlx5_0", &[("IB/RoCE v1", V6)])), "unset");
    let disagree = Tree::new("disagree")
        .device("mlx5_0", &[("RoCE v2", V4)])
        .device("mlx5_1", &[("RoCE v2", V6), ("RoCE v2", V4)]);
    assert_eq!(index(&disagree), "unset");
    // A device without RoCE (an additional InfiniBand card) is ignored.
    let beside =
        Tree::new("beside").device("mlx5_0", &[("RoCE v2", V4)]).device("mlx5_1", &[("IB/RoCE v1", V6)]);
    assert_eq!(index(&beside), "0");
}

#[test]
fn the_users_words_and_values_arrive_unharmed() {
    let tree = Tree::new("words").device("mlx5_0", &[("RoCE v2", V4)]);
    let argv = ["printf", "[%s]", "a b", "", "$HOME", "'q'", "\"", "*", "\\n", "--"];
    for shell in shells() {
        assert_eq!(run(shell, &tree.0, &argv, &[]), "[a b][][$HOME]['q'][\"][*][\\n][--]");
        let own =
            run(shell, &tree.0, &["/bin/sh", "-c", "echo $NCCL_IB_GID_INDEX"], &[("NCCL_IB_GID_INDEX", "7")]);
        assert_eq!(own, "7\n");
    }
    assert_eq!(gid::wrapped_from(&gid::wrap(&["a".to_owned()])), Some(4));
}
