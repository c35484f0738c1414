//! The lines of shell in the pages, taken apart into the commands that are ours.

/// A command of ours: the words behind `weftrun`, and whether its standard input comes from somewhere else.
#[derive(Debug, PartialEq, Eq)]
pub struct Ours {
    pub words: Vec<String>,
    pub fed: bool,
}

/// The commands of ours in a block of shell.
pub fn of(block: &str) -> Vec<Ours> {
    let lines = block.replace("\\\n", " ");
    lines.lines().flat_map(of_line).collect()
}

fn of_line(line: &str) -> Vec<Ours> {
    let line = line.trim_start().trim_start_matches("$ ");
    // A command substitution is a command of its own.
    let line = match line.split_once("$(weftrun ") {
        Some((before, rest)) => {
            let (inside, behind) = rest.split_once(')').unwrap_or((rest, ""));
            format!("{before}x ; weftrun {inside} ; true {behind}")
        }
        None => line.to_owned(),
    };
    let words = shlex::split(&line).unwrap_or_else(|| panic!("no shell understands: {line}"));
    let mut found = Vec::new();
    let mut piped = false;
    for part in words.split_inclusive(|word| ["|", "&&", "||", ";"].contains(&word.as_str())) {
        let is_pipe = part.last().is_some_and(|word| word == "|");
        let fed = std::mem::replace(&mut piped, is_pipe);
        let plain = part.iter().filter(|word| !["|", "&&", "||", ";"].contains(&word.as_str()));
        let mut plain = plain.skip_while(|word| is_assignment(word)).cloned();
        if plain.next().as_deref() == Some("weftrun") {
            found.push(Ours { words: without_redirections(plain), fed });
        }
    }
    found
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
}

fn without_redirections(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.trim_start_matches(|c: char| c.is_ascii_digit()) {
            ">" | ">>" | "<" => drop(words.next()),
            other if other.starts_with(['>', '<']) => {}
            _ => kept.push(word),
        }
    }
    kept
}

#[test]
fn lines_are_taken_apart() {
    let words =
        |block: &str| -> Vec<String> { of(block).into_iter().map(|ours| ours.words.join(" ")).collect() };
    assert_eq!(
        words("H=$(weftrun submit job.toml) && weftrun wait \"$H\" -o json"),
        ["submit job.toml", "wait $H -o json"]
    );
    assert_eq!(words("weftrun init > job.toml   # a comment"), ["init"]);
    assert_eq!(
        words("weftrun plan \\\n  a.toml\n# weftrun no\ncat x | weftrun mutate -f - 2>/dev/null"),
        ["plan a.toml", "mutate -f -"]
    );
    assert!(of("kubectl logs | weftrun transport -")[0].fed);
    assert_eq!(words("NCCL_DEBUG=INFO weftrun demo ; runai list"), ["demo"]);
}
