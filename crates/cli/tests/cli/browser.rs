//! The report's page in a real browser, headless and without a network. Skipped, with a note, where there is no Chromium.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Place, repo};
use crate::transport::{plain, transport};

/// Far more than a loaded machine needs.
const LIMIT: Duration = Duration::from_secs(300);

fn browser() -> Option<&'static str> {
    let known = ["chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell"];
    let found = known.into_iter().find(|name| {
        let version =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        println!("skipped: there is no Chromium on this machine");
    }
    found
}

/// What a browser made of a page, as HTML again, and what it logged.
fn shown(browser: &str, page: &Path) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (dom, log) = (folder.path().join("dom"), folder.path().join("log"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdout(File::create(&dom).unwrap())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("{browser} did not end: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (fs::read_to_string(dom).unwrap(), String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned())
}

#[test]
fn a_browser_draws_the_report_of_a_run() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let capture = repo("crates/core/tests/cases/nccl/captures/socket_2x2");
    fs::write(&page, place.run(&format!("report {} -o html", capture.display())).ok().out).unwrap();
    let (dom, log) = shown(browser, &page);
    assert!(dom.contains("its nodes used socket") && dom.matches("<svg").count() >= 3, "{dom}");
    // Every link of the page leads to a part of it.
    let targets = dom.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next());
    let missing: Vec<&str> = targets.filter(|id| !dom.contains(&format!("id=\"{id}\""))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!log.contains("CONSOLE"), "{log}");
}

#[test]
fn a_browser_shows_from_disk_what_the_json_says() {
    let Some(browser) = browser() else { return };
    let folder = plain("hang_timeout");
    fs::write(
        folder.path().join("evil.log"),
        "h:7:7 [0] NCCL WARN <img src=x onerror=alert(1)><script>alert(2)</script> Connection closed by remote peer\n",
    )
    .unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, transport(&["-o", "html", "."], folder.path()).stdout).unwrap();
    let report: Value =
        serde_json::from_slice(&transport(&["-o", "json", "."], folder.path()).stdout).unwrap();
    let (dom, log) = shown(browser, &page);
    let count = |what: &str| dom.matches(what).count();
    let length = |key: &str| report[key].as_array().map_or(0, Vec::len);
    assert!(length("findings") > 0 && length("ranks") > 0, "{report}");
    assert_eq!(count("<section class=\"finding"), length("findings"), "{dom}");
    let ranks = dom.split("id=\"ranks\"").nth(1).and_then(|rest| rest.split("</table>").next()).unwrap_or("");
    // One row is the head.
    assert_eq!(ranks.matches("<tr>").count(), length("ranks") + 1, "{ranks}");
    assert!(dom.contains("id=\"matrix\"") && dom.contains("id=\"verdict\""), "{dom}");
    // The log's own markup is text to the browser, and the page sends no requests.
    assert_eq!((count("<img"), count("<script")), (0, 0), "{dom}");
    assert!(dom.contains("&lt;img src=x"), "{dom}");
    assert!(!log.contains("CONSOLE"), "{log}");
}
