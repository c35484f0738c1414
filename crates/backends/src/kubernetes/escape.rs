//! Escapes commands and values: Kubernetes expands `$(NAME)` in them, and all other text must stay unchanged.

use weftrun_core::spec::Rendezvous;

/// Escapes a text so that Kubernetes returns it unchanged: it reads `$$` as a dollar, `$(` as the start of a
/// name, and any other `$` literally (k8s.io/kubernetes third_party/forked/golang/expansion, read
/// 2026-11-21).
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

/// Returns the words of a node's command, some of which contain values that only the pod has. They are built
/// with the references and without: words that are equal in both are escaped, the others contain weftrun's
/// references and are expanded.
pub fn words(at: &Rendezvous<'_>, make: impl Fn(&Rendezvous<'_>) -> Vec<String>) -> Vec<String> {
    let nothing = Rendezvous { node_rank: "", master_addr: "", master_port: "" };
    let pairs = make(at).into_iter().zip(make(&nothing));
    pairs.map(|(with, without)| if with == without { literal(&with) } else { with }).collect()
}

/// Returns a text as Kubernetes expands it without any variables.
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
