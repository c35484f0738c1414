//! A control plane to try the command line on: `cargo test --test runai -- --ignored --exact serve::serve --nocapture`
//! prints a configuration, and serves until it is killed.

use weftrun_testkit::fake_runai::{CLIENT_ID, CLIENT_SECRET, FakeRunAi, PROJECT};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "serves until it is killed"]
async fn serve() {
    let minor = std::env::var("MINOR").ok().and_then(|minor| minor.parse().ok()).unwrap_or(24);
    let fake = FakeRunAi::start(minor).await.unwrap();
    println!("\n[target.fake]\nbackend = \"runai\"\nurl = \"{}\"\nproject = \"{PROJECT}\"", fake.url());
    println!("client-id = \"{CLIENT_ID}\"\n# RUNAI_CLIENT_SECRET={CLIENT_SECRET}\npoll-seconds = 1");
    std::future::pending::<()>().await;
}
