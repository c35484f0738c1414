//! The pages that the program writes, in a real browser: headless and without a network. Skipped, with a note, where there is
//! no Chromium. `WEFTRUN_KEEP_PAGES=FOLDER` keeps a picture of each for a person, `WEFTRUN_WRITE_DOCS=1` draws the stored
//! ones again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::chromium::Chromium;
use crate::place::{Place, repo};
use crate::transport::{plain, transport};
use crate::verify::table;

/// Returns the problems of a page in the present window and colours.
const AUDIT: &str = include_str!("audit.js");
/// Whether the page is wider than the window.
const WIDER: &str = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
/// All that takes the focus, in the order of the page.
const FOCUS: &str = "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')]";
/// What is compared: the drawings, without their texts, since fonts differ between machines.
const DRAWINGS: &str = "(() => { const all = [...document.querySelectorAll('svg[role=img]')];
    document.body.replaceChildren(...all);
    for (const one of all) one.style = 'display: block; margin: 8px; max-width: none';
    document.querySelectorAll('text').forEach((text) => text.remove());
    document.body.style = 'margin: 0; padding: 0 8px; max-width: none';
    return Math.ceil(document.body.getBoundingClientRect().height); })()";
/// Pages whose drawings are compared; those of the others are of the same kinds.
const COMPARED: [&str; 4] = ["report-tcp", "report-times", "report-train", "verify-slow"];
/// Parts of a thousand pixels that may differ: edges are smoothed differently by each release of the browser.
const TOLERANCE: u64 = 10;

/// A page that the program wrote.
struct Page {
    name: &'static str,
    url: String,
}

/// Writes the pages: of good, bad, failed and hanging runs, with and without times, speeds and the names of ranks.
fn pages(place: &Place) -> Vec<Page> {
    let capture =
        |name: &str| repo("crates/diagnose/tests/cases/nccl/captures").join(name).display().to_string();
    let failure = |name: &str| repo("tests/cases/failures").join(name).display().to_string();
    let row = "1073741824 268435456 float sum -1 28000.0 38.34 19.10 0 28000.0 38.34 19.10 0\n";
    place.write("nccl-tests.log", table("20.30", 0) + row);
    place.write(
        "job.toml",
        "name = \"small\"\nlaunch = \"per-rank\"\nnodes = 2\nenv = { STEPS = \"7\" }\ncommand = [\"sh\", \"-c\", \"exit $RANK\"]\n",
    );
    let handle = place.run("submit job.toml").ok().out.trim().to_owned();
    place.run(&format!("wait {handle}"));
    let lines = [
        ("report-tcp", format!("report {}", capture("ofi_tcp_2x2")), 0),
        ("report-times", format!("report {}", capture("socket_2x2_timestamps")), 0),
        ("report-train", format!("report {}", capture("torchrun_train_2x2")), 0),
        ("report-hang", format!("report {}", failure("hang")), 0),
        ("report-job", format!("report {handle}"), 0),
        ("transport-tcp", format!("transport {}", capture("ofi_tcp_2x2")), 0),
        ("transport-killed", format!("transport {}", failure("sigkill")), 0),
        ("why-exception", format!("why {}", failure("exception")), 0),
        ("why-hang", format!("why {}", failure("hang")), 0),
        ("why-good", format!("why {}", failure("ok")), 0),
        ("why-job", format!("why {handle}"), 0),
        ("verify-slow", "verify --from nccl-tests.log --instance-type p4d.24xlarge".to_owned(), 7),
    ];
    let written = lines.map(|(name, line, code)| {
        let path = place.write(&format!("{name}.html"), place.run(&format!("{line} -o html")).code(code).out);
        Page { name, url: format!("file://{}", path.display()) }
    });
    written.into()
}

#[test]
fn pages_are_readable_by_everybody_and_ask_the_network_nothing() {
    let Some(mut browser) = Chromium::start() else { return };
    let place = Place::new();
    let mut wrong = Vec::new();
    for page in pages(&place) {
        browser.open(&page.url);
        for (width, dark) in [(1400, false), (1400, true), (400, false), (400, true)] {
            browser.show(width, dark);
            let window = format!("{} at {width}{}", page.name, if dark { ", dark" } else { "" });
            let found = browser.value(AUDIT);
            wrong.extend(
                found.as_array().unwrap().iter().map(|what| format!("{window}: {}", what.as_str().unwrap())),
            );
            keep(&mut browser, &window);
        }
        browser.show_printed();
        keep(&mut browser, &format!("{} printed", page.name));
        if browser.value(WIDER) == true {
            wrong.push(format!("{}: wider than the paper", page.name));
        }
        browser.show(1400, false);
        wrong.extend(keyboard(&mut browser).into_iter().map(|what| format!("{}: {what}", page.name)));
        wrong.extend(browser.faults(&page.url).into_iter().map(|what| format!("{}: {what}", page.name)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Presses Tab until all that takes the focus had it; returns what had none, or showed none.
fn keyboard(browser: &mut Chromium) -> Vec<String> {
    let count = browser.value(&format!("{FOCUS}.length")).as_u64().unwrap();
    browser.value("document.activeElement.blur()");
    let mut reached = BTreeSet::new();
    let mut wrong = Vec::new();
    for _ in 0..count {
        browser.tab();
        let at = browser.value(&format!("{FOCUS}.indexOf(document.activeElement)"));
        let shown = browser.value("getComputedStyle(document.activeElement).outlineStyle !== 'none'");
        if shown != true {
            wrong.push(format!("the focus on part {at} is not visible"));
        }
        reached.extend(at.as_u64());
    }
    let missed: Vec<u64> = (0..count).filter(|at| !reached.contains(at)).collect();
    if !missed.is_empty() {
        wrong.push(format!("Tab does not reach the parts {missed:?} of {count}"));
    }
    wrong
}

/// Keeps a picture for a person, if asked to.
fn keep(browser: &mut Chromium, name: &str) {
    if let Some(folder) = std::env::var_os("WEFTRUN_KEEP_PAGES") {
        let side = |browser: &mut Chromium, what: &str| {
            browser.value(&format!("document.documentElement.{what}")).as_u64().unwrap()
        };
        let (width, height) = (side(browser, "clientWidth"), side(browser, "scrollHeight").min(8000));
        let picture = BASE64.decode(browser.picture(width, height)).unwrap();
        fs::write(Path::new(&folder).join(format!("{}.png", name.replace([' ', ','], "-"))), picture)
            .unwrap();
    }
}

#[test]
fn drawings_look_like_the_stored_pictures() {
    let Some(mut browser) = Chromium::start() else { return };
    let place = Place::new();
    let mut wrong = Vec::new();
    for page in pages(&place).iter().filter(|page| COMPARED.contains(&page.name)) {
        for dark in [false, true] {
            browser.open(&page.url);
            browser.show(960, dark);
            let height = browser.value(DRAWINGS).as_u64().unwrap();
            assert!(height > 100, "{} has no drawing", page.name);
            let name = format!("{}{}.png", page.name, if dark { "-dark" } else { "" });
            let (stored, seen) =
                (repo("crates/cli/tests/drawings").join(&name), browser.picture(960, height));
            if std::env::var_os("WEFTRUN_WRITE_DOCS").is_some() {
                fs::create_dir_all(stored.parent().unwrap()).unwrap();
                fs::write(&stored, BASE64.decode(&seen).unwrap()).unwrap();
            }
            let stored = fs::read(&stored).map(|bytes| BASE64.encode(bytes)).unwrap_or_default();
            let differs = difference(&mut browser, &stored, &seen);
            if differs.as_u64().is_none_or(|parts| parts > TOLERANCE) {
                wrong.push(format!("{name}: {differs} of 1000 pixels"));
            }
        }
    }
    let help = "WEFTRUN_WRITE_DOCS=1 draws them again in crates/cli/tests/drawings: look at each";
    assert!(wrong.is_empty(), "{help}:\n{}", wrong.join("\n"));
}

/// Returns how many of a thousand drawn pixels differ between two pictures; a text if they cannot be compared.
fn difference(browser: &mut Chromium, stored: &str, seen: &str) -> Value {
    browser.open("about:blank");
    let expression = "(async (...all) => {
        const pixels = [];
        for (const data of all) {
            const image = new Image();
            image.src = 'data:image/png;base64,' + data;
            try { await image.decode(); } catch { return 'not a picture'; }
            const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
            canvas.drawImage(image, 0, 0);
            pixels.push(canvas.getImageData(0, 0, image.width, image.height));
        }
        const [one, other] = pixels;
        if (one.width !== other.width || one.height !== other.height) return 'another size';
        const [a, b] = [one.data, other.data];
        let drawn = 0, differ = 0;
        for (let at = 0; at < a.length; at += 4) {
            const apart = (x, i, y, j) => Math.max(...[0, 1, 2].map((c) => Math.abs(x[i + c] - y[j + c])));
            // The first pixel is ground.
            if (apart(a, at, a, 0) > 48 || apart(b, at, b, 0) > 48) drawn += 1;
            if (apart(a, at, b, at) > 48) differ += 1;
        }
        return Math.ceil(1000 * differ / Math.max(drawn, 1));
    })";
    browser.value(&format!("{expression}({stored:?}, {seen:?})"))
}

#[test]
fn the_audit_finds_what_is_wrong() {
    let Some(mut browser) = Chromium::start() else { return };
    let place = Place::new();
    let path = place.write(
        "bad.html",
        "<!doctype html><html><title>Bad</title><h2>No first heading</h2><a href=\"#nowhere\">to nothing</a><h4>Skipped</h4>
<p style=\"color: #888\">pale</p><p style=\"opacity: .3\">faint</p><svg width=\"9\" height=\"9\"><text style=\"font-size: 5px\" y=\"9\">tiny, and cut</text></svg><b id=\"x\"></b><b id=\"x\"></b>
<div style=\"overflow-x: auto; width: 90px\"><p style=\"width: 300px\">scrolls</p></div><table><tr><th>no scope</th></tr></table>
<a href=\"#x\" tabindex=\"-1\" style=\"outline: none\">unreached</a><p style=\"width: 2000px\">wide</p>
<img src=\"http://weftrun.invalid/x.png\"><script>console.log(1)</script></html>",
    );
    let url = format!("file://{}", path.display());
    browser.show(400, false);
    browser.open(&url);
    let found = browser.value(AUDIT).to_string();
    for part in [
        "wider than the window: 2",
        "pale in",
        "faint in",
        "not one h1",
        "a heading is skipped",
        "no main part",
        "no language",
        "a drawing without a name",
        "letters of 5.0 px",
        "a text is cut",
        "without a scope",
        "a link to nothing",
        "two parts with the id x",
        "scrolls, but has no focus",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert!(keyboard(&mut browser).iter().any(|what| what.contains("does not reach the parts [1]")));
    let faults = browser.faults(&url).join(" ");
    assert!(faults.contains("weftrun.invalid") && faults.contains("consoleAPICalled"), "{faults}");
}

#[test]
fn the_page_of_a_thousand_ranks_is_as_readable() {
    let Some(mut browser) = Chromium::start() else { return };
    let (place, logs) = (Place::new(), tempfile::tempdir().unwrap());
    crate::report::thousand_ranks(logs.path());
    let page = place.run(&format!("report {} -o html", logs.path().display())).ok().out;
    assert!(page.len() <= 2_000_000, "{} bytes", page.len());
    let path = place.write("page.html", page);
    let url = format!("file://{}", path.display());
    browser.open(&url);
    for (width, dark) in [(1400, false), (400, true)] {
        browser.show(width, dark);
        keep(&mut browser, &format!("thousand at {width}"));
        assert_eq!(browser.value(AUDIT), Value::Array(Vec::new()), "at {width}");
    }
    assert_eq!(keyboard(&mut browser), [""; 0]);
    assert_eq!(browser.faults(&url), [""; 0]);
}

#[test]
fn a_browser_shows_from_disk_what_the_json_says() {
    let Some(mut browser) = Chromium::start() else { return };
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
    let url = format!("file://{}", page.display());
    browser.open(&url);
    let count = |browser: &mut Chromium, selector: &str| {
        let count = browser.value(&format!("document.querySelectorAll({selector:?}).length"));
        usize::try_from(count.as_u64().unwrap()).unwrap()
    };
    let length = |key: &str| report[key].as_array().map_or(0, Vec::len);
    assert!(length("findings") > 0 && length("ranks") > 0, "{report}");
    assert_eq!(count(&mut browser, "section.finding:not(#cause)"), length("findings"));
    assert_eq!(count(&mut browser, "#ranks tbody tr"), length("ranks"));
    assert_eq!(count(&mut browser, "#matrix, #verdict"), 2);
    // The log's own markup is text to the browser.
    assert_eq!(count(&mut browser, "img, script"), 0);
    assert_eq!(browser.value("document.body.textContent.includes('<img src=x')"), true);
    assert_eq!(browser.faults(&url), [""; 0]);
}
