//! Where the model meets the world: one loop that waits for keys, answers and signals, changes the model, runs the
//! effects, and draws when something has changed; never more often than every 16 ms, and not at all when nothing does.

mod backfill;
mod clipboard;
mod effects;
mod ingest;
mod milestones;
mod own_action;
#[cfg(debug_assertions)]
mod panic_hook;
mod paths;
mod plan;
#[cfg(test)]
mod recordings;
mod screen_out;
mod search;
pub(crate) mod spill;
mod targets;
mod terminal;
mod terminal_background;
mod verify;
pub(crate) mod view_builder;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event, EventStream, KeyEvent, MouseButton, MouseEventKind};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc};
use weftrun::core::backend::FoundTarget;
use weftrun::core::job::JobHandle;
use weftrun::core::log::clean_text;
use weftrun::{Client, Error, ErrorKind, Result};

use crate::keymap::Keymap;
use crate::model::jobs::{Entry, Health};
use crate::model::session::Session;
use crate::model::{Model, NoticeKind, SAID_FOR, Screen};
use crate::msg::{Effect, Msg};
use crate::theme::Theme;
use crate::update::update;
use crate::view::mouse_targets::MouseTargets;
use crate::view::{view, view_for_mouse};
use effects::Runner;
use terminal::Screenful;

/// Least time between two frames.
const FRAME: Duration = Duration::from_millis(16);
/// Least time between two frames for a terminal at the other end of a network.
const REMOTE_FRAME: Duration = Duration::from_millis(33);

/// Starts the demo job and returns its handle.
pub type StartDemo = Arc<dyn Fn(Client) -> BoxFuture<'static, Result<JobHandle>> + Send + Sync>;

/// Makes a job of logs in files, with a client that knows its target.
pub type OpenLogs = Arc<dyn Fn(&Path) -> Result<(Client, JobHandle)> + Send + Sync>;

/// Writes a found target of a backend into the configuration, and returns a client that knows it.
pub type AddTarget = Arc<dyn Fn(&str, &FoundTarget) -> Result<Client> + Send + Sync>;

/// How the UI starts.
#[derive(Clone, Default)]
pub struct Options {
    /// Targets to show; the first is where new jobs go.
    pub targets: Vec<String>,
    /// The target new jobs go to, where it is not the first.
    pub default_target: Option<String>,
    /// The demo, if the program has one.
    pub demo: Option<StartDemo>,
    /// How logs in files are opened, if the program can.
    pub logs: Option<OpenLogs>,
    /// What further targets could be made of, each with its backend.
    pub found: Vec<(&'static str, FoundTarget)>,
    /// How one of them is made, if the program can.
    pub add: Option<AddTarget>,
    /// A job to open at once.
    pub job: Option<JobHandle>,
    /// The theme's name; `NO_COLOR` in the environment wins.
    pub theme: Option<String>,
    /// Keys by action name.
    pub keys: BTreeMap<String, Vec<String>>,
    /// The user's own actions: name, key, and command of a shell.
    pub actions: Vec<(String, String, String)>,
    /// Whether the terminal draws ASCII only.
    pub ascii: bool,
    /// Whether the mouse wheel is enabled.
    pub mouse: bool,
    /// Whether colours are forbidden.
    pub no_colour: bool,
    /// Profiles a new job can name.
    pub profiles: Vec<String>,
    /// Instance types a new job can name, each with what it has.
    pub instances: Vec<(String, String)>,
    /// Whether the terminal is at the other end of a network: fewer frames are drawn.
    pub remote: bool,
    /// Where the last session ended, to continue from there.
    pub session: Option<Session>,
    /// Where copied text is saved too, for terminals that do not take it.
    pub copies: Option<PathBuf>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("targets", &self.targets)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

/// Runs the UI until the user quits; returns its state for the next start.
///
/// # Errors
/// [`ErrorKind::Usage`] without a terminal, [`ErrorKind::InvalidConfig`] for unknown keys or themes, [`ErrorKind::Io`]
/// when the terminal fails.
pub async fn run(client: Client, options: Options) -> Result<Session> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::new(ErrorKind::Usage, "the terminal UI needs a terminal")
            .hint("`weftrun list`, `logs`, `transport` and `watch` print the same without one"));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(Error::new(ErrorKind::Usage, "the terminal UI cannot draw on this terminal (TERM is dumb or not set)")
            .hint("`weftrun list`, `logs`, `transport` and `watch` print the same as lines; else set TERM to its kind"));
    }
    let mut model = model(&options)?;
    let mut screen = Screenful::enter()?;
    let mut typed = Vec::new();
    let chosen = options.theme.is_some() || options.session.as_ref().is_some_and(|kept| kept.theme.is_some());
    if !chosen && !options.no_colour {
        let true_colours =
            std::env::var("COLORTERM").is_ok_and(|value| matches!(&*value, "truecolor" | "24bit"));
        let bright;
        (bright, typed) =
            if true_colours { terminal_background::brightness(options.remote) } else { (None, Vec::new()) };
        model.theme = Theme::for_background(bright, true_colours);
        model.found_theme = Some(model.theme);
    }
    let mut running = Loop::new(client, &options);
    let outcome = running.run(&mut model, &mut screen, typed).await;
    screen.leave();
    running.runner.finish().await;
    outcome.map(|()| Session::of(&model))
}

fn model(options: &Options) -> Result<Model> {
    let mut model = Model::new(options.targets.iter().cloned(), weftrun::clock::now());
    model.keymap = Keymap::default().rebind(&options.keys)?;
    model.own_actions = own_action::read(&options.actions, &model.keymap)?;
    model.ascii = options.ascii;
    // Loaded before the session, since its draft needs the options.
    model.profiles.clone_from(&options.profiles);
    model.instances.clone_from(&options.instances);
    if let Some(session) = &options.session {
        session.restore(&mut model);
        model.resume = Some(session.clone()).filter(|session| options.job.is_none() && session.job.is_some());
    }
    if let Some(name) = &options.theme {
        let names: Vec<&str> = Theme::NAMES.iter().map(|(_, name)| *name).collect();
        model.theme = Theme::parse(name).ok_or_else(|| {
            Error::new(ErrorKind::InvalidConfig, format!("tui.theme: there is no theme `{name}`"))
                .hint(format!("there are {}", names.join(", ")))
        })?;
    }
    if options.no_colour {
        model.theme = Theme::Mono;
    }
    model.mouse = options.mouse;
    model.has_demo = options.demo.is_some();
    model.opens_logs = options.logs.is_some();
    if options.add.is_some() {
        model.found.clone_from(&options.found);
        model.found.iter_mut().for_each(|(_, found)| found.sign = clean_text(&found.sign).into_owned());
    }
    model.wanted.clone_from(&options.job);
    if let Some(target) = &options.default_target {
        model.default_target.clone_from(target);
    }
    Ok(model)
}

/// The events that wake the loop.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Wake {
    Input(Option<std::io::Result<Event>>),
    Msg(Msg),
    Logs,
    Draw,
    Clock,
    Stop,
    Quit,
}

struct Loop {
    runner: Runner,
    inbox: mpsc::Receiver<Msg>,
    grew: Arc<Notify>,
    frame: Duration,
    copies: Option<PathBuf>,
}

impl Loop {
    fn new(client: Client, options: &Options) -> Self {
        let (outbox, inbox) = mpsc::channel(1024);
        let grew = Arc::new(Notify::new());
        let runner = Runner::new(client, options, outbox, grew.clone());
        let frame = if options.remote { REMOTE_FRAME } else { FRAME };
        Self { runner, inbox, grew, frame, copies: options.copies.clone() }
    }

    async fn run(&mut self, model: &mut Model, screen: &mut Screenful, typed: Vec<KeyEvent>) -> Result<()> {
        let mut signals = terminal::Signals::new()?;
        let mut input = EventStream::new();
        model.size = screen.size()?;
        screen.mouse(model.mouse)?;
        self.runner.watch_all();
        if let Some(job) = model.wanted.clone() {
            let effects = crate::update::open_job(model, &job);
            self.perform(effects, screen, &mut input).await?;
        }
        for key in typed {
            let effects = update(model, Msg::Key(key));
            if self.perform(effects, screen, &mut input).await? {
                return Ok(());
            }
        }
        let spots = MouseTargets::default();
        let mut dirty = true;
        let mut spacing = self.frame;
        let mut drawn = Instant::now().checked_sub(self.frame).unwrap_or_else(Instant::now);
        loop {
            let wake =
                self.wait(&mut input, &mut signals, dirty.then(|| drawn + spacing), next_tick(model)).await;
            model.now = weftrun::clock::now();
            let mut effects = Vec::new();
            match wake {
                Wake::Quit | Wake::Input(None) => return Ok(()),
                Wake::Input(Some(event)) => {
                    let event = event.map_err(|error| terminal::io("read the keyboard", &error))?;
                    // A mouse that only moves changes nothing.
                    if let Some(msg) = translate(event, &spots) {
                        effects = update(model, msg);
                        dirty = true;
                    }
                }
                Wake::Msg(msg) => {
                    effects = update(model, msg);
                    // Other pending messages belong to the same frame.
                    for _ in 0..256 {
                        let Ok(msg) = self.inbox.try_recv() else { break };
                        effects.append(&mut update(model, msg));
                    }
                    dirty = true;
                }
                Wake::Logs => {
                    effects = update(model, Msg::LogsGrew);
                    dirty |= model.open.is_some() && matches!(model.screen, Screen::Logs | Screen::Overview);
                }
                Wake::Clock => dirty = true,
                Wake::Stop => effects.push(Effect::Sleep),
                Wake::Draw => {
                    // Lines may have arrived while another screen was open, and their message is not
                    // repeated.
                    effects = update(model, Msg::LogsGrew);
                    if let Some(open) = &mut model.open {
                        open.logs.height = crate::view::log_height_of(&open.logs, model.screen, model.size);
                    }
                    let begun = Instant::now();
                    screen.draw(|frame| {
                        if model.mouse { view_for_mouse(model, frame, &spots) } else { view(model, frame) }
                    })?;
                    drawn = Instant::now();
                    // A terminal that is slow to write to (a slow link) gets fewer frames, not a queue of
                    // them.
                    spacing = self.frame.max((drawn - begun) * 2).min(Duration::from_millis(250));
                    dirty = false;
                }
            }
            if self.perform(effects, screen, &mut input).await? {
                return Ok(());
            }
        }
    }

    async fn wait(
        &mut self,
        input: &mut EventStream,
        signals: &mut terminal::Signals,
        draw: Option<Instant>,
        tick: Option<Duration>,
    ) -> Wake {
        let sleep = |at: Option<Instant>| async move {
            match at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let clock = sleep(tick.map(|tick| Instant::now() + tick));
        tokio::select! {
            biased;
            stop = signals.next() => if stop { Wake::Stop } else { Wake::Quit },
            event = input.next() => Wake::Input(event),
            () = sleep(draw) => Wake::Draw,
            Some(msg) = self.inbox.recv() => Wake::Msg(msg),
            () = self.grew.notified() => Wake::Logs,
            () = clock => Wake::Clock,
        }
    }

    /// Runs effects: those that need the terminal here, the others in tasks. Returns whether to quit.
    async fn perform(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut Screenful,
        input: &mut EventStream,
    ) -> Result<bool> {
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::Sleep => screen.sleep()?,
                Effect::Redraw => {
                    #[cfg(debug_assertions)]
                    panic_hook::on_demand(screen);
                    screen.clear()?;
                }
                Effect::Mouse(on) => screen.mouse(on)?,
                Effect::Copy(text) => {
                    screen.copy(&text)?;
                    if let Some(path) = self.copies.clone() {
                        self.runner.start(Effect::Keep(path, text));
                    }
                }
                Effect::Run(command, variables) => {
                    *input = EventStream::new();
                    let done = screen.outside(|| own_action::run(&command, &variables))?;
                    *input = EventStream::new();
                    if let Err(error) = done {
                        self.runner.answer(Msg::Failed(error)).await;
                    }
                }
                Effect::Edit(spec) => {
                    // The editor reads the same keyboard, so this program must not.
                    *input = EventStream::new();
                    let answer = screen.outside(|| plan::edit(&spec))?;
                    *input = EventStream::new();
                    self.runner.answer(Msg::Spec(None, answer)).await;
                }
                effect => self.runner.start(effect),
            }
        }
        Ok(false)
    }
}

/// Returns when the relative times on the screen change next, if there are any. The list of jobs and the overview show
/// ages, and each screen shows since when a target is down.
fn next_tick(model: &Model) -> Option<Duration> {
    let now = model.now;
    let running = |entry: &&Entry| !entry.summary.phase.is_terminal();
    let mut since = Vec::new();
    match (model.screen, &model.open) {
        (Screen::Jobs, _) => {
            since.extend(model.jobs.entries.iter().filter(running).filter_map(|entry| entry.summary.created));
        }
        (Screen::Overview, Some(open)) => {
            let job = model.jobs.get(&open.handle).filter(running);
            since.extend(job.and_then(|entry| entry.summary.created));
            // The rank that was silent for the shortest time.
            let store = open.logs.store.read();
            let last = store.streams().iter().filter_map(|stream| stream.last).max();
            since.extend(job.and(last.or(store.watched())));
            since.extend(open.ras.as_ref().map(|ras| ras.at));
        }
        _ => {}
    }
    let down = model.jobs.targets.iter().filter_map(|target| match &target.health {
        Health::Down(since, _) => Some(*since),
        _ => None,
    });
    let ages = since
        .into_iter()
        .chain(down)
        .map(|then| now.as_second().saturating_sub(then.as_second()))
        .map(|age| Duration::from_secs(if age < 120 { 1 } else { 30 }));
    let said = model.said().filter(|notice| notice.kind != NoticeKind::Error).map(|notice| {
        let left = SAID_FOR.saturating_sub(now.duration_since(notice.at));
        left.unsigned_abs() + Duration::from_millis(10)
    });
    ages.chain(said).min()
}

fn translate(event: Event, spots: &MouseTargets) -> Option<Msg> {
    match event {
        Event::Key(key) => Some(Msg::Key(key)),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(columns, rows) => Some(Msg::Resize(columns, rows)),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollDown => Some(Msg::Wheel(3)),
            MouseEventKind::ScrollUp => Some(Msg::Wheel(-3)),
            MouseEventKind::Down(MouseButton::Left) => spots.press(mouse.column, mouse.row).map(Msg::Click),
            MouseEventKind::Drag(MouseButton::Left) => spots.drag(mouse.row).map(Msg::Click),
            MouseEventKind::Up(MouseButton::Left) => {
                spots.release();
                None
            }
            _ => None,
        },
        _ => None,
    }
}
