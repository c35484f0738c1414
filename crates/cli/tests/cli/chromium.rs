//! A headless Chromium, driven over its DevTools pipe (chromedevtools.github.io/devtools-protocol, read 2026-11-23): JSON
//! messages that end with a NUL, on the descriptors 3 and 4 of the browser.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use weftrun_testkit::child;

/// Far more than a loaded machine needs for one answer.
const LIMIT: Duration = Duration::from_mins(5);
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell"];

/// A browser with a profile of its own, and no network.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    sent: u64,
    /// The page's session.
    session: Option<String>,
    /// What it reported since the last [`Chromium::open`].
    events: Vec<Value>,
    folder: tempfile::TempDir,
}

impl Chromium {
    /// Starts it; none, with a note, where there is none on this machine.
    pub fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let version = |name: &&str| {
            let mut version = child::command(name);
            version
                .arg("--version")
                .env("HOME", folder.path())
                .output()
                .is_ok_and(|done| done.status.success())
        };
        let Some(name) = NAMES.iter().find(|name| version(name)) else {
            weftrun_testkit::skipped("there is no Chromium on this machine");
            return None;
        };
        // The shell moves the descriptors: a child gets 0 and 1 from here, and the browser reads 3 and writes 4.
        let mut child = child::command("sh")
            .env("HOME", folder.path())
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
                name,
                "--remote-debugging-pipe",
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--force-color-profile=srgb",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let messages = BufReader::new(out).split(0).map_while(Result::ok);
            messages
                .map_while(|bytes| sender.send(serde_json::from_slice(&bytes).unwrap()).ok())
                .for_each(drop);
        });
        let mut browser = Self { child, to, from, sent: 0, session: None, events: Vec::new(), folder };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session =
            browser.call("Target.attachToTarget", &attach)["sessionId"].as_str().unwrap().to_owned();
        browser.session = Some(session);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.call("Page.setLifecycleEventsEnabled", &json!({"enabled": true}));
        Some(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.next(method);
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self, wanted: &str) -> Value {
        self.from.recv_timeout(LIMIT).unwrap_or_else(|error| {
            let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
            panic!("{wanted}: {error}: {}", String::from_utf8_lossy(&log))
        })
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.call("Page.navigate", &json!({"url": url}));
        let loaded = |event: &Value| {
            let params = &event["params"];
            event["method"] == "Page.lifecycleEvent"
                && params["name"] == "load"
                && params["loaderId"] == opened["loaderId"]
        };
        while !self.events.iter().any(loaded) {
            let event = self.next(url);
            self.events.push(event);
        }
        // Events of the page before it.
        let own = |event: &Value| event["params"]["loaderId"] == opened["loaderId"];
        let first = self.events.iter().position(own).unwrap_or(0);
        self.events.drain(..first);
    }

    /// Sets the width of the window, and whether its colours are dark.
    pub fn show(&mut self, width: u32, dark: bool) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features =
            json!({"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Shows the page as it is printed on A4, without colours of the screen.
    pub fn show_printed(&mut self) {
        self.show(718, false);
        self.call("Emulation.setEmulatedMedia", &json!({"media": "print"}));
    }

    /// Returns the value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &params);
        assert!(answer.get("exceptionDetails").is_none(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Presses the Tab key.
    pub fn tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.call("Input.dispatchKeyEvent", &key);
        }
    }

    /// Returns the page's left upper part as PNG, in base64.
    pub fn picture(&mut self, width: u64, height: u64) -> String {
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let picture =
            self.call("Page.captureScreenshot", &json!({"captureBeyondViewport": true, "clip": clip}));
        picture["data"].as_str().unwrap().to_owned()
    }

    /// Returns what a page must not cause: errors, messages of scripts, and requests other than for itself.
    pub fn faults(&mut self, url: &str) -> Vec<String> {
        let bad = |event: &&Value| match event["method"].as_str() {
            Some("Network.requestWillBeSent") => event["params"]["request"]["url"] != url,
            Some(method) => matches!(
                method,
                "Runtime.exceptionThrown"
                    | "Runtime.consoleAPICalled"
                    | "Log.entryAdded"
                    | "Network.webSocketCreated"
            ),
            None => false,
        };
        self.events.iter().filter(bad).map(Value::to_string).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.session = None;
        let close = format!("{}\0", json!({"id": 0, "method": "Browser.close"}));
        // A browser that is gone already cannot be closed.
        if self.to.write_all(close.as_bytes()).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
