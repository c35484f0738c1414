use super::*;

const BIN: &str = "/opt/amazon-efa-ofi/openmpi/bin";

fn rule() -> Mpirun {
    Mpirun {
        bin: Some(BIN.into()),
        forward: vec!["LD_LIBRARY_PATH".into(), "OPAL_PREFIX".into()],
        library_dirs: vec!["/opt/amazon-efa-ofi/ofi/lib".into()],
        ..Mpirun::default()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Rewrites a shell string; `@` in the expectation is the mounted mpirun with both variables.
fn script(text: &str) -> (String, Vec<MpirunNote>) {
    let command = vec!["bash".to_owned(), "-c".to_owned(), text.to_owned()];
    let done = rewrite(&command, &[], &rule());
    assert_eq!(done.command.len(), 3);
    let again = rewrite(&done.command, &[], &rule());
    assert_eq!(again.command, done.command, "a second time changes nothing");
    assert_eq!(again.changed, 0);
    (done.command[2].clone(), done.notes)
}

fn expect(text: &str, expected: &str) {
    let full = format!("{BIN}/mpirun -x LD_LIBRARY_PATH -x OPAL_PREFIX");
    let (got, notes) = script(text);
    assert_eq!(got, expected.replace('@', &full), "in {text:?}, notes {notes:?}");
}

#[test]
fn command_positions_are_rewritten() {
    for (text, expected) in [
        ("mpirun -np 2 app", "@ -np 2 app"),
        ("a; mpirun x", "a; @ x"),
        ("a && mpirun x || mpirun y", "a && @ x || @ y"),
        ("a | mpirun x & mpirun y", "a | @ x & @ y"),
        ("(mpirun x); { mpirun y; }", "(@ x); { @ y; }"),
        (
            "if mpirun x; then mpirun y; elif mpirun z; then :; else mpirun w; fi",
            "if @ x; then @ y; elif @ z; then :; else @ w; fi",
        ),
        ("while ! mpirun x; do mpirun y; done", "while ! @ x; do @ y; done"),
        ("for i in 1 2; do mpirun $i; done", "for i in 1 2; do @ $i; done"),
        ("case $a in mpirun) mpirun x;; *) mpirun y;; esac", "case $a in mpirun) @ x;; *) @ y;; esac"),
        ("f() { mpirun x; }; f", "f() { @ x; }; f"),
        ("A=1 B=\"2 3\" mpirun x", "A=1 B=\"2 3\" @ x"),
        ("time mpirun x", "time @ x"),
        ("timeout -k 5 60 mpirun x", "timeout -k 5 60 @ x"),
        (
            "exec env -u A B=1 nice -n 5 numactl -N 0 stdbuf -oL mpirun x",
            "exec env -u A B=1 nice -n 5 numactl -N 0 stdbuf -oL @ x",
        ),
        ("mpirun \\\n  -np 2 \\\n  app", "@ \\\n  -np 2 \\\n  app"),
        ("sleep 5 && \\\n  mpirun x", "sleep 5 && \\\n  @ x"),
        ("timeout 5 \\\n  mpirun x", "timeout 5 \\\n  @ x"),
        ("mpirun x > log 2>&1", "@ x > log 2>&1"),
        ("echo ü; mpirun ä", "echo ü; @ ä"),
        ("OUT=$(mpirun x)", "OUT=$(@ x)"),
        ("bash -c 'mpirun x'", "bash -c '@ x'"),
        ("/usr/local/mpi/bin/mpirun x", "@ x"),
        ("mpirun x\r\nmpirun y\r\n", "@ x\r\n@ y\r\n"),
        ("[[ -f a ]] && mpirun x", "[[ -f a ]] && @ x"),
        ("diff <(mpirun x) b", "diff <(@ x) b"),
    ] {
        expect(text, expected);
    }
}

#[test]
fn everything_else_is_left() {
    for text in [
        "# mpirun x\ntrue mpirun",
        "echo mpirun x",
        "echo \"mpirun x; mpirun y\"",
        "echo 'a; mpirun x'",
        "cat <<EOF\nmpirun x\nEOF\n",
        "cat <<-'EOF' | sh\n\tmpirun x\n\tEOF\n",
        "which mpirun",
        "mpirun_rsh x",
        "my-mpirun x",
        "./mpirun-wrapper x",
        "echo a \\\n mpirun x",
        "\\mpirun x",
        "A=mpirun; $A x",
        "cat <<A <<B; true\nmpirun x\nA\nmpirun y\nB\n",
    ] {
        expect(text, text);
    }
}

#[test]
fn the_other_words_keep_their_name() {
    let (got, _) = script("mpiexec -n 2 a; orterun b");
    let x = "-x LD_LIBRARY_PATH -x OPAL_PREFIX";
    assert_eq!(got, format!("{BIN}/mpiexec {x} -n 2 a; {BIN}/orterun {x} b"));
}

#[test]
fn what_is_forwarded_is_not_repeated() {
    let (got, notes) = script(
        "mpirun -x LD_LIBRARY_PATH=/a:/opt/amazon-efa-ofi/ofi/lib app; mpirun -x \"OPAL_PREFIX=/x\" b",
    );
    assert_eq!(
        got,
        format!(
            "{BIN}/mpirun -x OPAL_PREFIX -x LD_LIBRARY_PATH=/a:/opt/amazon-efa-ofi/ofi/lib app; \
             {BIN}/mpirun -x LD_LIBRARY_PATH -x \"OPAL_PREFIX=/x\" b"
        )
    );
    assert_eq!(notes, []);
    let (_, notes) = script("mpirun -x LD_LIBRARY_PATH=/a app");
    assert_eq!(notes, [MpirunNote::LibraryPath("/a".into())]);
}

#[test]
fn an_env_list_excludes_x() {
    let (got, notes) = script("mpirun --mca mca_base_env_list 'LD_LIBRARY_PATH;FOO=1' app");
    assert_eq!(got, format!("{BIN}/mpirun --mca mca_base_env_list 'LD_LIBRARY_PATH;FOO=1' app"));
    assert_eq!(notes, [MpirunNote::EnvList(vec!["OPAL_PREFIX".into()])]);
}

#[test]
fn another_path_is_left_and_named() {
    let (got, notes) = script("/opt/intel/bin/mpirun x; mpirun y");
    assert_eq!(got, format!("/opt/intel/bin/mpirun x; {BIN}/mpirun -x LD_LIBRARY_PATH -x OPAL_PREFIX y"));
    assert_eq!(notes, [MpirunNote::OtherPath("/opt/intel/bin/mpirun".into())]);
}

#[test]
fn scripts_are_opaque_and_named() {
    let opaque = |command: &str| rewrite(&words(command), &[], &rule()).notes;
    let named = |script: &str| vec![MpirunNote::Opaque { script: Some(script.into()) }];
    assert_eq!(opaque("/job/run.sh --fast"), named("/job/run.sh"));
    assert_eq!(opaque("bash -e run"), named("run"));
    assert_eq!(opaque("timeout 5 sh /run.sh"), named("/run.sh"));
    assert_eq!(opaque(""), [MpirunNote::Opaque { script: None }]);
    assert_eq!(script("cd /x && ./go.sh").1, named("./go.sh"));
    assert_eq!(script("source env.sh; mpirun x").1, []);
}

#[test]
fn argv_keeps_the_border_between_command_and_args() {
    let done = rewrite(&words("timeout 3600 mpirun"), &words("-np 2 app"), &rule());
    assert_eq!(done.command, words(&format!("timeout 3600 {BIN}/mpirun -x LD_LIBRARY_PATH -x OPAL_PREFIX")));
    assert_eq!(done.args, words("-np 2 app"));
    let done = rewrite(&[], &words("mpirun -np 2 app"), &rule());
    assert_eq!(done.command, Vec::<String>::new());
    assert_eq!(done.args[..2], words(&format!("{BIN}/mpirun -x")));
    // Only the first command word of an argv: the rest are its arguments.
    let done = rewrite(&words("mpirun a mpirun b"), &[], &rule());
    assert_eq!(done.changed, 1);
    assert_eq!(done.command.last().map(String::as_str), Some("b"));
    // A shell whose string is in args.
    let done = rewrite(&words("/bin/bash -o pipefail -ec"), &["mpirun x".to_owned()], &rule());
    assert_eq!(done.args, [format!("{BIN}/mpirun -x LD_LIBRARY_PATH -x OPAL_PREFIX x")]);
}

#[test]
fn the_gid_wrapper_is_looked_through() {
    let wrapped = gid::wrap(&words("mpirun -np 2 app"));
    let done = rewrite(&wrapped, &[], &rule());
    assert_eq!(done.changed, 1);
    assert_eq!(done.command[..4], wrapped[..4]);
    assert_eq!(done.command[4], format!("{BIN}/mpirun"));
}

#[test]
fn without_a_folder_only_the_variables_are_forwarded() {
    let rule = Mpirun { forward: vec!["NCCL_DEBUG".into()], ..Mpirun::default() };
    let done = rewrite(&words("/opt/amazon/openmpi/bin/mpirun -np 2 app"), &[], &rule);
    assert_eq!(done.command, words("/opt/amazon/openmpi/bin/mpirun -x NCCL_DEBUG -np 2 app"));
}

#[test]
fn hostile_scripts_are_left_quickly() {
    let started = std::time::Instant::now();
    for text in [
        "(".repeat(3000),
        "$(".repeat(3000),
        "case a in ".repeat(300),
        "if ".repeat(20_000),
        "{ ".repeat(20_000),
        "`".repeat(10_000),
        "! ".repeat(20_000),
        "a=\"$(".repeat(2000),
        "mpirun x; ".repeat(100_000),
        "<<A ".repeat(2000),
        "\0mpirun".to_owned(),
        "${a:-".repeat(3000),
        "mpirun 'x".to_owned(),
        "((".repeat(3000) + &"))".repeat(3000),
        "$(( ".repeat(3000),
        "a=(".repeat(3000),
        "<(".repeat(3000),
        "@(".repeat(3000),
        "{a".repeat(20_000),
        "a[".repeat(20_000),
        "[[ ( ".repeat(3000),
    ] {
        let command = vec!["sh".to_owned(), "-c".to_owned(), text.clone()];
        let done = rewrite(&command, &[], &rule());
        assert_eq!(done.command[2], text, "{}", &text[..10.min(text.len())]);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_change_before_something_unreadable_is_not_made_and_not_counted() {
    for text in ["mpirun ``$(if )", "mpirun a; bash -c 'if '", "mpirun a; mpirun $(if )"] {
        let done = rewrite(&["sh".into(), "-c".into(), text.into()], &[], &rule());
        assert_eq!((done.command[2].as_str(), done.changed), (text, 0));
        assert!(done.notes.iter().any(|note| matches!(note, MpirunNote::Unreadable(_))), "{:?}", done.notes);
    }
}

#[test]
fn a_descriptor_that_no_shell_could_hold_is_left() {
    let done = rewrite(&["sh".into(), "-c".into(), "99999999999<>f mpirun".into()], &[], &rule());
    assert_eq!(done.command[2], "99999999999<>f mpirun");
    assert!(matches!(done.notes[..], [MpirunNote::Unreadable(_)]), "{:?}", done.notes);
    assert_eq!(commands("mpirun -np 16 app 2>&1 123456789").unwrap().len(), 1);
    expect("echo {1..99999999999999999999} $(mpirun)", "echo {1..99999999999999999999} $(@)");
}

/// Where shells differ, or the text is incomplete, nothing is changed, and that is reported.
#[test]
fn what_shells_read_differently_is_left_and_said() {
    for odd in [
        "; mpirun a",
        "mpirun a; }",
        "mpirun a; fi",
        "mpirun a; )",
        "mpirun a; if true; then mpirun b",
        "mpirun a; cat <<EOF\nx\n",
        "mpirun a; cat <<$X\nx\n$X\n",
        "mpirun a; cat <<\"$(x)\"\nx\n",
        "mpirun a; X=$(cat <<E) b\nmpirun x\nE\n",
        "mpirun a; cat <<E $(echo\n) \nmpirun x\nE\n",
        "mpirun a; cat <<E \"b\nc\"\nmpirun x\nE\n",
        "mpirun a; cat <<E `echo\n`\nmpirun x\nE\n",
        "mpirun a; echo \"${X%'}'}\"",
        "mpirun a; echo $'it\\'s'",
        "mpirun a; echo ${ mpirun b; }",
        "mpirun a; coproc mpirun b",
        "mpirun a; echo \"x",
        "mpirun a; echo `x",
        "mpirun a; echo $(x",
        "mpirun a; echo ${x",
        "mpirun a; echo $((1 + 2)",
        "mpirun a; echo x(y)",
        "mpirun a; case x in",
        "mpirun a; f() mpirun b",
        "mpirun a &&",
        "mpirun a |",
        "mpirun \0a",
    ] {
        let done = rewrite(&["sh".into(), "-c".into(), odd.into()], &[], &rule());
        assert_eq!(done.command[2], odd);
        assert!(matches!(done.notes[..], [MpirunNote::Unreadable(_)]), "{odd:?}: {:?}", done.notes);
    }
}

#[test]
fn here_documents_are_read_as_bash_reads_them() {
    for usual in [
        "cat <<'EOF' > f\nmpirun_x b\nEOF\nmpirun a",
        "X=$(cat <<-EOF\na\nEOF\n)\nmpirun a",
        "echo $((1<<2)) <<<word; mpirun a",
        "cat << \"END\" | mpirun a\nx\nEND\n",
        "cat <<\\EOF; mpirun a\n$x\nEOF\n",
        "cat <<EOF | tee $(hostname).txt; mpirun a\nbegun on $(hostname) by `whoami`\n${X:-)}\nEOF\n",
        "cat <<E\r\nx\r\nE\r\nmpirun a\r\n",
    ] {
        let done = rewrite(&["sh".into(), "-c".into(), usual.into()], &[], &rule());
        assert_eq!((done.changed, &done.notes[..]), (1, &[][..]), "{usual}");
    }
}

/// Its text may run later, so what it lacks is reported.
#[test]
fn an_mpirun_in_a_here_document_is_left_and_named() {
    let (got, notes) = script("cat > run.sh <<'EOF'\nset -e\n  timeout 5 mpirun -np 2 app\nEOF\nsh run.sh");
    assert!(got.contains("timeout 5 mpirun -np 2"), "{got}");
    assert_eq!(notes, [MpirunNote::Document]);
    assert_eq!(script("cat <<EOF\nthe mpirun of the image\nEOF\nmpirun a").1, []);
}
