//! `$(NAME)` in commands and values is filled in by Kubernetes; everything else is kept from it.

use weftrun_core::spec::Rendezvous;

/// Text that comes back as it is: `$$` is a dollar to Kubernetes, `$(` begins a name, any other `$` stands for itself
/// (k8s.io/kubernetes third_party/forked/golang/expansion, read 2026-11-21).
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        if c == '$' && matches!(rest.peek(), Some('$' | '(')) {
            out.push('$');
        }
    }
    out
}

/// The words of a node's command, of which some hold what only its pod knows. They are made with these references and
/// without: what is the same in both comes back as it is, the others are ours and are filled in.
pub fn words(at: &Rendezvous<'_>, make: impl Fn(&Rendezvous<'_>) -> Vec<String>) -> Vec<String> {
    let nothing = Rendezvous { node_rank: "", master_addr: "", master_port: "" };
    let pairs = make(at).into_iter().zip(make(&nothing));
    pairs.map(|(with, without)| if with == without { literal(&with) } else { with }).collect()
}

/// What Kubernetes makes of a text where no name is known.
#[cfg(test)]
pub fn filled_in(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('$', Some('$')) => {
                rest.next();
                out.push('$');
            }
            ('$', Some('(')) => out.push_str("FILLED IN"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_comes_back_as_it_is(text in "([^$]|[$(]){0,20}") {
            prop_assert_eq!(filled_in(&literal(&text)), text);
        }
    }

    #[test]
    fn what_only_the_pod_knows_is_filled_in_and_nothing_else() {
        let at =
            Rendezvous { node_rank: "$(RANK)", master_addr: "$(MASTER_ADDR)", master_port: "$(MASTER_PORT)" };
        let made =
            words(&at, |at| vec![format!("--node-rank={}", at.node_rank), "$(RANK)".into(), "$$".into()]);
        assert_eq!(made, ["--node-rank=$(RANK)", "$$(RANK)", "$$$"]);
    }
}
