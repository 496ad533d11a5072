//! A real browser: headless Chromium, driven by `chromedriver` over HTTP (WebDriver).
//!
//! Both come from system packages (Debian: `chromium` and `chromium-driver`). Without
//! `chromedriver` its tests are skipped.

use crate::sandbox::guard::Guard;
use crate::skip::skip;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The time limit for the start of the browser, and for a page to show something.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one check waits for a page to change, in ms. A page that was left and is cached for
/// going back never reports a change.
const LOOK_MS: u64 = 2_000;
/// The most checks.
const LOOKS_MAX: usize = 15;

/// The time limit for finding an element, in ms.
const FIND_MS: u64 = 10_000;

/// How often a click is tried on an element that the page moves or replaces.
const CLICKS_MAX: usize = 20;

/// WebDriver's code of the Tab key.
pub const TAB: &str = "\u{e004}";
/// WebDriver's code of Enter.
pub const ENTER: &str = "\u{e007}";
/// The field that marks a script argument as an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    /// The URL of its session.
    session: String,
    _driver: Child,
    /// Kept open: the driver ends when it prints into a closed pipe.
    _said: Lines<BufReader<ChildStdout>>,
    _guard: Guard,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None` if it is not installed, and the test is skipped.
    ///
    /// # Errors
    /// It does not start, or is missing where it is required.
    pub async fn start() -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut driver = match command.process_group(0).kill_on_drop(true).spawn() {
            Ok(driver) => driver,
            Err(error) => {
                skip(&format!("no chromedriver (Debian: chromium, chromium-driver): {error}"));
                return Ok(None);
            }
        };
        let group = driver.id().context("it has just been started")?;
        let said = driver.stdout.take().context("it is piped")?;
        let mut said = BufReader::new(said).lines();
        let port = timeout(PATIENCE, port(&mut said)).await.context("chromedriver is silent")??;
        let http = reqwest::Client::builder().timeout(PATIENCE).build()?;
        let root = format!("http://127.0.0.1:{port}/session");
        let profile = format!("--user-data-dir={}", folder.path().display());
        let arguments = [
            "--headless=new",
            // Test machines often run everything as root, where Chromium's sandbox refuses to
            // start.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            // An animated element may have moved by the time of a click.
            "--force-prefers-reduced-motion",
            "--window-size=1280,900",
            &profile,
        ];
        let wanted = json!({
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": LOOK_MS, "pageLoad": 30_000, "implicit": FIND_MS},
        });
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let started: Value = http.post(&root).json(&body).send().await?.json().await?;
        let session = started.pointer("/value/sessionId").and_then(Value::as_str);
        let session = session.with_context(|| format!("no browser: {started}"))?;
        let process = started.pointer("/value/capabilities/goog:processID").map(Value::to_string);
        // The browser has its own process group, which includes its child processes.
        let guard = Guard::arm(
            "kill -9 -\"$1\"; kill -9 \"$2\"",
            [group.to_string(), process.context("a browser is a process")?],
        )?;
        let session = format!("{root}/{session}");
        Ok(Some(Self {
            http,
            session,
            _driver: driver,
            _said: said,
            _guard: guard,
            _folder: folder,
        }))
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// The driver does not answer.
    pub async fn quit(self) -> Result<()> {
        self.http.delete(&self.session).send().await?.error_for_status()?;
        Ok(())
    }

    async fn ask(&self, command: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/{command}", self.session);
        let answer = self.http.post(url).json(body).send().await?;
        let is_done = answer.status().is_success();
        let mut answer: Value = answer.json().await?;
        let value = answer.get_mut("value").map(Value::take).unwrap_or_default();
        ensure!(is_done, "{command}: {}", text(&value, "message"));
        Ok(value)
    }

    /// Goes to a page, and waits until it is loaded.
    ///
    /// # Errors
    /// There is no such page.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.ask("url", &json!({"url": url})).await.map(|_| ())
    }

    /// Evaluates a JavaScript expression on the page.
    ///
    /// # Errors
    /// It throws.
    pub async fn look(&self, expression: &str) -> Result<Value> {
        let script = format!("return {expression};");
        self.ask("execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Waits until an expression holds; it is checked whenever the page changes.
    ///
    /// # Errors
    /// It does not hold after half a minute; the error then shows the page's text.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let script = format!(
            "const done = arguments[0]; const holds = () => {{ try {{ return {expression}; }} catch {{ return false; }} }};
            if (holds()) return done(true);
            const seen = new MutationObserver(() => {{ if (holds()) {{ seen.disconnect(); done(true); }} }});
            seen.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});"
        );
        for _ in 0..LOOKS_MAX {
            match self.ask("execute/async", &json!({"script": script, "args": []})).await {
                Ok(_) => return Ok(()),
                // The next page may have it.
                Err(error)
                    if ["unloaded", "timeout"].iter().any(|it| error.to_string().contains(it)) => {}
                Err(error) => return Err(error),
            }
        }
        let page = self.look("location.href + '\\n' + document.body.innerText").await?;
        bail!("{expression} does not hold: {}", page.as_str().unwrap_or_default())
    }

    /// Waits until the page's content has this text.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub async fn until_shown(&self, text: &str) -> Result<()> {
        self.until(&format!("document.querySelector('main').innerText.includes({})", json!(text)))
            .await
    }

    /// Clicks on the first matching element, in the middle of the window, as a user does.
    ///
    /// # Errors
    /// There is none, or it cannot be clicked.
    pub async fn click(&self, xpath: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_click(xpath).await {
                // A page that follows events may have moved or replaced it between two commands.
                Err(error) if tries < CLICKS_MAX && has_moved(&error) => {}
                done => return done,
            }
        }
    }

    async fn try_click(&self, xpath: &str) -> Result<()> {
        let element = self.find(xpath).await?;
        let script = "const done = arguments[1]; arguments[0].scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'}); requestAnimationFrame(() => done(true));";
        let it = json!({(ELEMENT): element});
        self.ask("execute/async", &json!({"script": script, "args": [it]})).await?;
        self.ask(&format!("element/{element}/click"), &json!({})).await.map(|_| ())
    }

    /// Writes into a field, replacing its content.
    ///
    /// # Errors
    /// There is none.
    pub async fn write(&self, xpath: &str, text: &str) -> Result<()> {
        let element = self.find(xpath).await?;
        self.ask(&format!("element/{element}/clear"), &json!({})).await?;
        self.ask(&format!("element/{element}/value"), &json!({"text": text})).await.map(|_| ())
    }

    async fn find(&self, xpath: &str) -> Result<String> {
        let found = self.ask("element", &json!({"using": "xpath", "value": xpath})).await?;
        let element = found.as_object().and_then(|it| it.values().next()?.as_str());
        Ok(element.with_context(|| format!("no {xpath}"))?.to_owned())
    }

    /// Presses keys, one after the other, wherever the focus is.
    ///
    /// # Errors
    /// The browser is gone.
    pub async fn press(&self, keys: &str) -> Result<()> {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [
                    json!({"type": "keyDown", "value": key.to_string()}),
                    json!({"type": "keyUp", "value": key.to_string()}),
                ]
            })
            .collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.ask("actions", &body).await.map(|_| ())
    }

    /// Runs a command of Chromium's own protocol.
    ///
    /// # Errors
    /// The browser refuses it.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        self.ask("goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await
    }

    /// The browser's complaints since the last call: failed scripts, and loads blocked by a page's
    /// policy.
    ///
    /// # Errors
    /// The browser is gone.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let found = self.ask("se/log", &json!({"type": "browser"})).await?;
        let text = |entry: &Value| text(entry, "message").to_owned();
        Ok(found.as_array().map(|all| all.iter().map(text).collect()).unwrap_or_default())
    }

    /// A screenshot of the window, as PNG.
    ///
    /// # Errors
    /// The browser is gone.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        let url = format!("{}/screenshot", self.session);
        let answer: Value = self.http.get(url).send().await?.json().await?;
        Ok(BASE64.decode(text(&answer, "value"))?)
    }

    /// A picture of the first element matching a CSS selector, as PNG, with `scale` pixels per CSS
    /// pixel.
    ///
    /// # Errors
    /// There is none, or the browser is gone.
    pub async fn picture_of(&self, selector: &str, scale: u32) -> Result<Vec<u8>> {
        let place = format!(
            "(() => {{
                const it = document.querySelector({}).getBoundingClientRect();
                const [x, y] = [it.x + scrollX, it.y + scrollY];
                return {{ x, y, width: it.width, height: it.height, scale: {scale} }};
            }})()",
            json!(selector)
        );
        let clip = self.look(&place).await?;
        let wanted = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let answer = self.devtools("Page.captureScreenshot", wanted).await?;
        Ok(BASE64.decode(text(&answer, "data"))?)
    }
}

/// Whether an element found a moment ago has been moved or replaced since.
fn has_moved(error: &anyhow::Error) -> bool {
    let error = error.to_string();
    ["click intercepted", "not clickable", "stale element"].iter().any(|it| error.contains(it))
}

/// A text field; empty if missing.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The driver's port, from its start message.
async fn port(said: &mut Lines<BufReader<ChildStdout>>) -> Result<u16> {
    while let Some(line) = said.next_line().await? {
        if let Some(port) = line.strip_prefix("ChromeDriver was started successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
    }
    bail!("chromedriver ended")
}
