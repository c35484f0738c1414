//! The configuration: the keys that each layer may set, and that every key has its effect.

use crate::place::{Done, Place, SMALL_JOB};

#[test]
fn output_and_color_are_honoured() {
    let place = Place::new();
    place.configure("output = \"json\"\ncolor = \"always\"\n");
    assert_eq!(place.run("targets").ok().json()["schema"], "weftrun/v1");
    assert!(place.run("targets -o table").ok().out.contains("\u{1b}["), "colour");
    assert!(!place.run("targets -o table --color never").ok().out.contains('\u{1b}'));
    let mut command = place.command(["targets"]);
    command.env("WEFTRUN_OUTPUT", "yaml").env("WEFTRUN_COLOR", "never");
    assert!(Done::of(command).ok().out.starts_with("schema: weftrun/v1\n"));
    let mut command = place.command(["targets", "-o", "table", "--color", "auto"]);
    command.env("NO_COLOR", "1");
    assert!(!Done::of(command).ok().out.contains('\u{1b}'));
}

#[test]
fn a_word_nobody_knows_is_refused() {
    let place = Place::new();
    let mut command = place.command(["targets"]);
    command.env("WEFTRUN_OUTPUT", "jsno");
    let done = Done::of(command).code(3);
    assert!(done.err.contains("`output` is \"jsno\""), "{}", done.err);
}

#[test]
fn every_value_says_where_it_is_from() {
    let place = Place::new();
    place
        .configure("default_target = \"prod\"\n[target.prod]\nbackend = \"slurm\"\n[job]\nqueue = \"gpu\"\n");
    place.write(".weftrun.toml", "[job]\nqueue = \"mine\"\n[target.prod]\nssh = \"evil.example.com\"\n");
    let shown = || {
        let mut command = place.command(["config", "show", "--origin"]);
        command.env("WEFTRUN_NAMESPACE", "nlp");
        Done::of(command).ok()
    };
    let done = shown();
    assert!(!done.out.contains("mine") && !done.out.contains("evil"), "it counts untrusted: {}", done.out);
    assert!(done.out.contains("job.queue = \"gpu\""), "{}", done.out);
    assert!(done.err.contains("weftrun config trust"), "{}", done.err);
    place.run("config trust").ok();
    let done = shown();
    for line in
        ["job.queue = \"mine\"  # .weftrun.toml:2", "namespace = \"nlp\"  # variable WEFTRUN_NAMESPACE"]
    {
        assert!(done.out.contains(line), "`{line}` is not in:\n{}", done.out);
    }
    assert!(done.out.contains("config.toml:1\n"), "{}", done.out);
    assert!(place.run("config show").ok().out.contains("evil.example.com"));
    place.run("config trust --revoke").ok();
    assert!(!place.run("config show").ok().out.contains("evil.example.com"));
}

#[test]
fn setting_a_value_keeps_the_comments() {
    let place = Place::new();
    place.configure("# mine\noutput = \"table\" # for people\n");
    place.run("config set target.prod.backend kubeflow").ok();
    place.run("config set job.labels.team nlp").ok();
    let text = std::fs::read_to_string(place.config()).unwrap();
    assert!(text.starts_with("# mine\noutput = \"table\" # for people\n"), "{text}");
    assert!(!text.contains("[target]\n"), "{text}");
    place.run("config set output jsno").code(3);
    assert_eq!(std::fs::read_to_string(place.config()).unwrap(), text, "a mistake changes nothing");
    let key = place.run("config set target.prod.serivce-account me").code(3);
    assert!(key.err.contains("service-account"), "{}", key.err);
    let unknown = place.run("config set target.prod.backend kubflow").code(6);
    assert!(
        unknown.err.contains("no backend `kubflow`") && unknown.err.contains("did you mean `kubeflow`?"),
        "{}",
        unknown.err
    );
    assert!(place.run("config unset outptu").code(6).err.contains("`outptu` is not set in"));
    assert_eq!(std::fs::read_to_string(place.config()).unwrap(), text, "nothing was changed");
    place.run("config unset target.prod").ok();
    assert!(!std::fs::read_to_string(place.config()).unwrap().contains("kubeflow"));
    assert_eq!(place.run("config path").ok().out.trim(), place.config().display().to_string());
}

#[test]
fn mistakes_of_a_file_are_all_reported_with_their_lines() {
    let place = Place::new();
    place.configure("outptu = \"json\"\ncolor = \"sometimes\"\n[job]\nname = \"x\"\n");
    let done = place.run("targets").code(3);
    for said in ["outptu", "did you mean `output`", "sometimes", "config.toml:1:1", "config.toml:2:9"] {
        assert!(done.err.contains(said), "`{said}` is not in:\n{}", done.err);
    }
}

/// User < project < environment < job file < flags, value by value.
#[test]
fn later_layers_win() {
    let place = Place::new();
    place.configure("[job]\nqueue = \"user\"\npriority = \"user\"\nimage = \"user\"\n");
    place.write(".weftrun.toml", "[job]\npriority = \"project\"\nimage = \"project\"\n");
    place.write("bare.toml", SMALL_JOB);
    place.write("says.toml", format!("{SMALL_JOB}image = \"file\"\n"));
    place.run("config trust").ok();
    let rendered = |line: &str| {
        let mut command = place.command(["render", "-b", "kubeflow"]);
        command.args(line.split(' ')).env("WEFTRUN_IMAGE", "environment");
        Done::of(command).ok().out
    };
    let bare = rendered("bare.toml");
    for said in ["queue-name: user", "priorityClassName: project", "image: environment"] {
        assert!(bare.contains(said), "`{said}` is not in:\n{bare}");
    }
    assert!(rendered("says.toml").contains("image: file"));
    assert!(rendered("--image flag says.toml").contains("image: flag"));
}

/// What this machine shows is listed, added by its name, and not listed any more.
#[test]
fn found_targets_are_listed_and_added() {
    let place = Place::new();
    place.write("../home/.ssh/config", "Host gpu-1 gpu-2\n  User me\nHost *\n  Port 22\n");
    place.write(
        "../home/.kube/config",
        "apiVersion: v1\nkind: Config\ncurrent-context: arn:aws:eks:us-west-2:1:cluster/prod\ncontexts:\n\
         - {name: 'arn:aws:eks:us-west-2:1:cluster/prod', context: {cluster: c, user: u}}\n\
         - {name: \"\\e[31mdev\", context: {cluster: c, user: u}}\n",
    );
    let listed = place.run("config add").ok().out;
    for line in
        ["prod             kubeflow", "31mdev", "hosts            hosts      gpu-1, gpu-2 in ~/.ssh/config"]
    {
        assert!(listed.contains(line), "{listed}");
    }
    assert!(!listed.contains('\u{1b}'), "{listed:?}");
    let added = place.run("config add prod hosts").ok();
    assert!(added.err.contains("added target prod") && added.err.contains("doctor -b prod"), "{}", added.err);
    let text = std::fs::read_to_string(place.config()).unwrap();
    for line in [
        "[target.prod]",
        "context = \"arn:aws:eks:us-west-2:1:cluster/prod\"",
        "hosts = [\"gpu-1\", \"gpu-2\"]",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let json = place.run("targets -o json").json();
    let found: Vec<&str> =
        json["found"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    // Others may be of this machine: a Slurm that is installed.
    assert!(!found.contains(&"prod") && !found.contains(&"hosts") && found.contains(&"31mdev"), "{json}");
    assert!(place.run("config add prdo").code(6).err.contains("`weftrun config add` lists"));
}
