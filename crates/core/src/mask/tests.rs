use serde_json::json;

use super::*;

/// Returns a made-up token; no secret stands in this repository.
fn made(prefix: &str, length: usize) -> String {
    let letters = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7".chars().cycle().take(length);
    prefix.chars().chain(letters).collect()
}

#[test]
fn known_tokens_are_hidden_wherever_they_stand() {
    let prefixes = [
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "glrt-",
        "sk-",
        "sk-ant-api03-",
        "sk-proj-",
        "hf_",
        "nvapi-",
        "gsk_",
        "AIza",
        "ya29.",
        "GOCSPX-",
        "npm_",
        "pypi-AgEIcHlwaS5vcmc",
        "xoxb-",
        "sk_live_",
        "SG.",
        "hvs.",
        "dckr_pat_",
        "sha256~",
        "wandb_v1_",
    ];
    let mut tokens: Vec<String> = prefixes.iter().map(|prefix| made(prefix, 40)).collect();
    tokens.extend([
        "AKIAIOSFODNN7ABCDEFG".to_owned(),
        format!("{}.{}.{}", made("eyJ", 20), made("eyJ", 30), made("", 30)),
    ]);
    for token in tokens {
        for around in ["T", "a T b", "x=T", "\"T\"", "['T']", "curl -H 'X: T'", "see T.", "https://T@host/x"]
        {
            let shown = mask(&around.replace('T', &token)).into_owned();
            assert!(!shown.contains(&token[token.len() - 12..]), "{around}: {shown}");
        }
    }
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----";
    assert_eq!(mask(&format!("a\n{key}\nb")), "a\n…\nb");
    assert_eq!(mask(&key[..50]), "…", "one that was cut");
}

#[test]
fn values_of_secret_names_are_hidden_in_every_way_of_writing_them() {
    for (text, shown) in [
        ("train.py --token=hunter2 --lr 0.1", "train.py --token=… --lr 0.1"),
        ("train.py --api-key hunter2x --lr 0.1", "train.py --api-key … --lr 0.1"),
        (
            "[\"train.py\", \"--password\", \"hunter\", \"--lr\"]",
            "[\"train.py\", \"--password\", \"…\", \"--lr\"]",
        ),
        ("GH_PAT=abcdef", "GH_PAT=…"),
        ("export HF_TOKEN='a b c'; x", "export HF_TOKEN='…'; x"),
        ("WANDB_API_KEY = \"0123456789abcdef0123456789abcdef01234567\"", "WANDB_API_KEY = \"…\""),
        ("PGPASSWORD=pw psql", "PGPASSWORD=… psql"),
        ("{\"db_password\": \"hunter\", \"port\": 5}", "{\"db_password\": \"…\", \"port\": 5}"),
        ("- name: HF_TOKEN\n  value: hunter", "- name: HF_TOKEN\n  value: …"),
        ("{name: AWS_SECRET_ACCESS_KEY, value: \"a/b+c\"}", "{name: AWS_SECRET_ACCESS_KEY, value: \"…\"}"),
        ("client_secret: hunter2hunter", "client_secret: …"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer …"),
        ("https://user:pw@host/x", "https://user:…@host/x"),
        ("redis://:pa55@host", "redis://:…@host"),
        ("https://0123456789abcdefABCD@host/x", "https://…@host/x"),
        ("a --password --token=x1 b", "a --password --token=… b"),
        ("train.py --wandb-key=0123456789abcdef0123456789abcdef01234567", "train.py --wandb-key=…"),
        ("{\"auths\":{\"r\":{\"auth\":\"bWU6aHVudGVyMg==\"}}}", "{\"auths\":{\"r\":{\"auth\":\"…\"}}}"),
        ("Authorization: Basic bWU6aHVudGVyMg==", "Authorization: Basic …"),
    ] {
        assert_eq!(mask(text), shown, "{text}");
        assert_eq!(mask(shown), shown, "masked again");
    }
}

#[test]
fn hashes_names_and_prose_are_left() {
    for text in [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "nvcr.io/nvidia/pytorch@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "commId 0x9f86d081884c7d65 rank 3",
        "the token has expired: log in again",
        "set `--token VALUE`, or pass --token to the program",
        "a token is sent to 10.0.0.1 unencrypted",
        "max_tokens=4096 --num-tokens 128 --eos-token=</s> --pad-token-id 0",
        "HF_TOKEN=$HF_TOKEN HF_TOKEN=${HF_TOKEN} --token=$(cat /run/token) TOKEN_FILE=/run/x PWD=/home/me",
        "TOKENIZERS_PARALLELISM=false NCCL_DEBUG=INFO",
        "WANDB_API_KEY=YOUR_WANDB_API_KEY_HERE HF_TOKEN=PLACEHOLDER_HF_TOKEN HF_TOKEN=your-token-here GH_TOKEN=xxxxxxxx",
        "PASSWORD=CHANGE_ME DB_PASSWORD=changeme SECRET_KEY=REPLACE_WITH_KEY",
        "token-env = \"RUNAI_TOKEN\"\ntoken-command = [\"runai\"]",
        "sk-learn-contrib task-0123456789abcdef0123 disk-0123456789abcdefgh",
        "git@github.com:me/x.git https://git@github.com/me/x https://host/x ssh://git@host/x",
        "secretKeyRef:\n  name: hf\n  key: token",
        "imagePullSecrets: [registry]",
        "password: ask your administrator",
        "set `secrets.GH_PAT = \"name/key\"`",
        "https://****************@host/x --token=*******",
        "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp.json",
        "error: no user has the token …",
        "--pad_token=eos --eos-token=151645 --image-token=128256 --special-token=endoftext1",
        "PAD_TOKEN=endoftext1 IMAGE_TOKEN=128256",
        "ValueError: unexpected token: line12345 in config.json",
        "KeyError: basic layer12345678 sk-learn-pipeline-v2-experiment-1",
    ] {
        assert_eq!(mask(text), text);
    }
    for (name, secret) in [
        ("HF_TOKEN", true),
        ("GH_PAT", true),
        ("--api-key", true),
        ("apiKey", true),
        ("token", true),
        ("PAT", true),
        ("PATH", false),
        ("TOKENS", false),
        ("KEY", false),
        ("SPAT", false),
    ] {
        assert_eq!(is_secret_name(name), secret, "{name}");
    }
}

#[test]
fn values_are_masked_by_their_names_and_places() {
    let mut value = json!({
        "command": ["a", "--token", "word", "--lr", "1"],
        "env": [{"name": "MY_PAT", "value": "word"}, {"name": "LR", "value": "word"}],
        "token": "word", "secrets": {"HF_TOKEN": "name/key"}, "text": "see GH_PAT=word",
    });
    mask_value(&mut value);
    assert_eq!(
        value,
        json!({
            "command": ["a", "--token", "…", "--lr", "1"],
            "env": [{"name": "MY_PAT", "value": "…"}, {"name": "LR", "value": "word"}],
            "token": "…", "secrets": {"HF_TOKEN": "name/key"}, "text": "see GH_PAT=…",
        })
    );
}

/// What has digits, or one word, may be a secret.
#[test]
fn a_word_of_a_placeholder_does_not_make_one() {
    for text in [
        "PASSWORD=yourmom123x",
        "HF_TOKEN=hereiam",
        "API_KEY=change8me",
        "TOKEN=xXx9",
        "DB_PASSWORD=add-horse-battery",
        "DB_PASSWORD=correct-horse-here",
        "DB_PASSWORD=your-horse-battery",
        "DB_PASSWORD=change-the-guard",
        "DB_PASSWORD=replacement",
    ] {
        assert!(super::holds_secret(text), "{text}");
    }
    for text in ["HF_TOKEN=INSERT_TOKEN_HERE", "HF_TOKEN=<your token>", "PASSWORD=CHANGE_ME", "API_KEY=xxx"] {
        assert!(!super::holds_secret(text), "{text}");
    }
}
