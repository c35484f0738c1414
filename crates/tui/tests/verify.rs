//! The benchmark of a job's nodes: how it is started, stopped and shown.

mod common;

use std::sync::Arc;

use common::{opened, press, screen};
use weftrun::report::{VerifyGroup, VerifySearch};
use weftrun::verify::Verdict;
use weftrun_tui::model::Model;
use weftrun_tui::model::verify::{Curve, VerifyView};
use weftrun_tui::msg::{Effect, Msg};
use weftrun_tui::update::update;

fn view(ended: bool) -> VerifyView {
    let group = |round, nodes: &[&str], busbw: Option<f64>| {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let failed = busbw.is_none().then(|| "the job had not started after 45s".to_owned());
        VerifyGroup::new(round, nodes, busbw, failed)
    };
    let points = (20..34).map(|log| (f64::from(log), 90.0 * (1.0 - 0.7_f64.powi(log - 19)))).collect();
    let reason = "90.0 GB/s is 25 % of the lowest published figure (362 to 382 GB/s)";
    VerifyView {
        job: "slurm://prod/4711".to_owned(),
        phase: "running".to_owned(),
        curves: vec![Curve {
            name: "all_reduce".to_owned(),
            points,
            expected: Some(("published", 362.0)),
            verdict: ended.then(|| (Verdict::Degraded, reason.to_owned())),
        }],
        groups: vec![
            group(1, &["node-0", "node-3"], Some(350.0)),
            group(1, &["node-1", "node-2"], Some(90.0)),
            group(2, &["node-1", "node-0"], Some(349.0)),
            group(2, &["node-2", "node-3"], None),
        ],
        search: ended.then(|| VerifySearch::new(vec!["node-2".to_owned()], None, Vec::new())),
        ended,
        ..VerifyView::default()
    }
}

fn started() -> Model {
    let mut model = opened();
    press(&mut model, "V");
    press(&mut model, "y");
    model
}

#[test]
fn it_asks_before_it_submits_and_x_stops_it() {
    let mut model = opened();
    assert!(press(&mut model, "V").is_empty());
    assert!(screen(&mut model, 100, 30).contains("submit a benchmark?"));
    press(&mut model, "n");
    assert!(model.verifying.is_none());
    press(&mut model, "V");
    let effects = press(&mut model, "y");
    assert!(matches!(&effects[..], [Effect::Verify(_)]), "{effects:?}");
    assert!(screen(&mut model, 100, 30).contains("planning the benchmark"));
    update(&mut model, Msg::Verify(Arc::new(view(false))));
    let effects = press(&mut model, "x");
    assert!(matches!(&effects[..], [Effect::StopVerify]), "{effects:?}");
    // Hidden, it goes on, and is shown again without a question.
    press(&mut model, "esc");
    assert!(model.layers.is_empty());
    update(&mut model, Msg::Verify(Arc::new(view(true))));
    assert!(model.said().is_some_and(|said| said.text.contains("V shows it")));
    press(&mut model, "V");
    assert!(screen(&mut model, 100, 40).contains("slow nodes: node-2"));
}

#[test]
fn the_curve_and_the_search_at_all_sizes() {
    let mut all = Vec::new();
    for (ended, (columns, rows)) in [(false, (60, 15)), (true, (80, 24)), (true, (120, 36))] {
        let mut model = started();
        update(&mut model, Msg::Verify(Arc::new(view(ended))));
        all.push(format!("── {columns}x{rows}\n{}", screen(&mut model, columns, rows)));
    }
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("verify", all.join("\n"));
    });
}
