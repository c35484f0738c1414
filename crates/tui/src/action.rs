//! All user actions in one table, from which the keys, the footer, the help, the palette and the docs page
//! are made.

/// A user action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Shows the help.
    Help,
    /// Opens the palette of all actions.
    Palette,
    /// Closes what is on top, else goes back towards the jobs.
    Back,
    /// Does the same, and quits from the jobs.
    Leave,
    /// Quits.
    Quit,
    /// Gives the terminal back to the shell until `fg`.
    Sleep,
    /// Redraws everything and queries every target again.
    Refresh,
    /// Switches the mouse on or off.
    Mouse,
    /// Takes the next theme.
    Theme,
    /// Hides or shows the jobs beside an open one.
    Rail,
    /// Makes the jobs beside an open one narrower.
    Narrower,
    /// Makes the jobs beside an open one wider.
    Wider,
    /// Shows the list of jobs.
    Jobs,
    /// Shows ranks and phases of the open job.
    Overview,
    /// Shows which transport each pair uses.
    Fabric,
    /// Shows the logs.
    Logs,
    /// Shows what is wrong and how it is known.
    Diagnosis,
    /// Makes a new job.
    New,
    /// Moves up.
    Up,
    /// Moves down.
    Down,
    /// Moves a page up.
    PageUp,
    /// Moves a page down.
    PageDown,
    /// Goes to the beginning.
    Top,
    /// Goes to the end.
    Bottom,
    /// Moves left.
    Left,
    /// Moves right.
    Right,
    /// Goes to the next pane or field.
    Next,
    /// Goes to the pane or field before.
    Previous,
    /// Opens what is selected.
    Open,
    /// Opens logs of a run that are in files.
    OpenLogs,
    /// Starts the demo job on this machine.
    Demo,
    /// Cancels the job, after asking.
    Cancel,
    /// Deletes the job and its record, after asking.
    Delete,
    /// Suspends the job, or lets it go on.
    Suspend,
    /// Queues the job again, after asking.
    Requeue,
    /// Measure the bandwidth of its nodes.
    Verify,
    /// Filters what is shown.
    Filter,
    /// Begins a blank job.
    Blank,
    /// Copies what is selected.
    Copy,
    /// Sorts by the next column.
    Sort,
    /// Takes the next communicator.
    Communicator,
    /// Switches between nodes and ranks.
    Zoom,
    /// Takes the next form of the matrix.
    Form,
    /// Follows the end of the log, or pauses.
    Follow,
    /// Finds a text without hiding lines.
    Find,
    /// Goes to the next place found.
    FindNext,
    /// Goes to the place found before.
    FindPrevious,
    /// Goes to a line or a time.
    GoTo,
    /// Shows the lines that prove a finding in the log.
    Evidence,
    /// Shows only some ranks.
    Ranks,
    /// Takes the next least severity.
    Level,
    /// Shows times absolute, relative or not at all.
    Times,
    /// Wraps long lines.
    Wrap,
    /// Sets or removes a bookmark.
    Bookmark,
    /// Goes to the next bookmark.
    NextBookmark,
    /// Saves what is shown to a file.
    Export,
    /// Shows the log of the attempt before.
    Attempt,
    /// Queries NCCL's RAS service inside the running job.
    Health,
    /// Shows each rank in a colour of its own, or all alike.
    RankColours,
    /// Shows repeated lines once.
    Fold,
    /// Keeps the last lines of a rank visible on every screen.
    Pin,
    /// Makes a new job like this one.
    Again,
    /// Puts the proposed fix into a new job.
    Fix,
    /// Switches the rule of a change off or on.
    Toggle,
    /// Switches all rules on again.
    UndoRules,
    /// Shows the changes, the document as a diff, or the document side by side.
    Diff,
    /// Picks a value of the field from a list.
    Pick,
    /// Saves the job as a file.
    SaveJob,
    /// Opens the job in `$EDITOR`.
    Edit,
    /// Takes a job file.
    File,
    /// Checks on the cluster whether it would accept the job.
    Check,
    /// Submits the job, after asking.
    Submit,
}

/// Where an action makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Everywhere.
    Everywhere,
    /// Where there are things to move over.
    Moving,
    /// The list of jobs.
    Jobs,
    /// Wherever a job is open, and in the list of jobs.
    Job,
    /// Ranks and phases.
    Overview,
    /// The transport matrix.
    Fabric,
    /// The logs.
    Logs,
    /// The diagnosis.
    Diagnosis,
    /// The new job.
    Submit,
}

impl Place {
    /// Heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Self::Everywhere => "Everywhere",
            Self::Moving => "Moving",
            Self::Jobs => "Jobs",
            Self::Job => "A job",
            Self::Overview => "Overview",
            Self::Fabric => "Fabric",
            Self::Logs => "Logs",
            Self::Diagnosis => "Diagnosis",
            Self::Submit => "New job",
        }
    }

    /// All of them, in the order of the help.
    pub const ALL: [Self; 9] = [
        Self::Everywhere,
        Self::Moving,
        Self::Jobs,
        Self::Job,
        Self::Overview,
        Self::Fabric,
        Self::Logs,
        Self::Diagnosis,
        Self::Submit,
    ];
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it does.
    pub action: Action,
    /// Its name in the palette and in the config file.
    pub name: &'static str,
    /// Keys it has unless rebound.
    pub keys: &'static [&'static str],
    /// Where it makes sense.
    pub place: Place,
    /// One line of help.
    pub help: &'static str,
    /// Word in the footer; none if it is not shown there.
    pub footer: Option<&'static str>,
}

const fn row(
    action: Action,
    name: &'static str,
    keys: &'static [&'static str],
    place: Place,
    help: &'static str,
    footer: Option<&'static str>,
) -> Row {
    Row { action, name, keys, place, help, footer }
}

use Action as A;
use Place as P;

/// The table. In the footer the rows of the screen come first, in this order.
pub const TABLE: &[Row] = &[
    row(A::Help, "help", &["?", "f1"], P::Everywhere, "help; again: what the signs mean", Some("help")),
    row(A::Palette, "palette", &[":"], P::Everywhere, "all actions by name", Some("cmd")),
    row(A::Back, "back", &["esc"], P::Everywhere, "close, back; never quits", Some("back")),
    row(A::Leave, "leave", &["q"], P::Everywhere, "close, back; from the jobs: quit", Some("quit")),
    row(A::Quit, "quit", &["ctrl-c", "Q"], P::Everywhere, "quit", None),
    row(A::Sleep, "sleep", &["ctrl-z"], P::Everywhere, "back to the shell until `fg`", None),
    row(A::Refresh, "refresh", &["ctrl-l", "f5"], P::Everywhere, "redraw, and list jobs again", None),
    row(A::Mouse, "mouse", &["m"], P::Everywhere, "mouse on or off: wheel and clicks", None),
    row(A::Theme, "theme", &["T"], P::Everywhere, "next theme", None),
    row(A::Rail, "rail", &["\\"], P::Everywhere, "hide or show the jobs beside an open one", None),
    row(A::Narrower, "narrower", &["<"], P::Everywhere, "jobs beside an open one: narrower", None),
    row(A::Wider, "wider", &[">"], P::Everywhere, "jobs beside an open one: wider", None),
    row(A::Jobs, "jobs", &["1"], P::Everywhere, "jobs of all targets", None),
    row(A::Overview, "overview", &["2"], P::Everywhere, "ranks and phases", None),
    row(A::Fabric, "fabric", &["3", "F"], P::Everywhere, "transport of each pair", None),
    row(A::Logs, "logs", &["4", "l"], P::Everywhere, "logs", None),
    row(
        A::Diagnosis,
        "diagnosis",
        &["5", "d"],
        P::Everywhere,
        "what is wrong, with the lines that prove it",
        None,
    ),
    row(A::OpenLogs, "open-logs", &["o"], P::Everywhere, "open a file or a folder of logs", None),
    row(A::New, "new", &["6", "n"], P::Everywhere, "new job", None),
    row(A::Up, "up", &["up", "k"], P::Moving, "up", None),
    row(A::Down, "down", &["down", "j"], P::Moving, "down", None),
    row(A::PageUp, "page-up", &["pageup", "ctrl-u"], P::Moving, "page up", None),
    row(A::PageDown, "page-down", &["pagedown", "ctrl-d"], P::Moving, "page down", None),
    row(A::Top, "top", &["home", "g"], P::Moving, "beginning", None),
    row(A::Bottom, "bottom", &["end", "G"], P::Moving, "end", None),
    row(A::Left, "left", &["left", "h"], P::Moving, "left", None),
    row(A::Right, "right", &["right"], P::Moving, "right", None),
    row(A::Next, "next", &["tab"], P::Moving, "next pane or field", None),
    row(A::Previous, "previous", &["shift-tab"], P::Moving, "pane or field before", None),
    row(A::Open, "open", &["enter"], P::Jobs, "open the job", Some("open")),
    row(A::New, "new-job", &["n"], P::Jobs, "new job", Some("new")),
    row(A::OpenLogs, "open-log-files", &["o"], P::Jobs, "open a file or a folder of logs", Some("open logs")),
    row(A::Demo, "demo", &["D"], P::Jobs, "start the demo on this machine", Some("demo")),
    row(A::Logs, "show-logs", &["l"], P::Job, "its logs", Some("logs")),
    row(A::Fabric, "show-fabric", &["F"], P::Job, "its transport map", Some("fabric")),
    row(A::Diagnosis, "show-diagnosis", &["d"], P::Job, "its diagnosis", Some("diagnose")),
    row(A::Cancel, "cancel", &["x"], P::Job, "cancel the job (with confirmation)", Some("cancel")),
    row(A::Delete, "delete", &["X"], P::Job, "delete the job and its record (with confirmation)", None),
    row(A::Suspend, "suspend", &["S"], P::Job, "suspend or resume the job (with confirmation)", None),
    row(A::Requeue, "requeue", &["R"], P::Job, "stop the job and queue it again (with confirmation)", None),
    row(
        A::Verify,
        "verify",
        &["V"],
        P::Job,
        "measure the bandwidth of nodes like its own (with confirmation)",
        None,
    ),
    row(A::Health, "query-health", &["H"], P::Job, "query NCCL's RAS service inside the running job", None),
    row(A::Again, "again", &["N"], P::Job, "new job like this one", None),
    row(A::Filter, "filter-jobs", &["/"], P::Jobs, "show only jobs with this text", Some("filter")),
    row(A::Sort, "sort-jobs", &["s"], P::Jobs, "sort by the next column", None),
    row(A::Copy, "copy-handle", &["y"], P::Jobs, "copy the handle", None),
    row(A::Open, "open-rank", &["enter"], P::Overview, "log of the rank", Some("log of rank")),
    row(A::Sort, "sort-ranks", &["s"], P::Overview, "sort ranks by the next column", Some("sort")),
    row(A::Pin, "pin-rank", &["K"], P::Overview, "keep the rank's last lines in sight in the logs", None),
    row(A::Communicator, "communicator", &["c"], P::Overview, "next communicator", None),
    row(A::Zoom, "zoom-overview", &["z"], P::Overview, "nodes or ranks", Some("zoom")),
    row(A::Open, "open-cell", &["enter"], P::Fabric, "channels of the pair", Some("channels")),
    row(A::Zoom, "zoom", &["z"], P::Fabric, "nodes or ranks", Some("zoom")),
    row(
        A::Communicator,
        "next-communicator",
        &["c"],
        P::Fabric,
        "all communicators, or the next one",
        Some("comm"),
    ),
    row(A::FindNext, "next-wrong", &["n"], P::Fabric, "next pair that is wrong", Some("next !")),
    row(A::FindPrevious, "previous-wrong", &["N"], P::Fabric, "previous pair that is wrong", None),
    row(
        A::Form,
        "matrix-form",
        &["v"],
        P::Fabric,
        "matrix: letters in 3, 2 or 1 columns, heat map",
        Some("form"),
    ),
    row(A::Copy, "copy-pair", &["y"], P::Fabric, "copy the pair", None),
    row(A::Export, "export-map", &["e"], P::Fabric, "save the pairs as a table", None),
    row(A::Follow, "follow", &["f"], P::Logs, "follow or pause", Some("follow")),
    row(A::Find, "find", &["/"], P::Logs, "find; hides nothing", Some("find")),
    row(A::FindNext, "find-next", &["n"], P::Logs, "next place found", None),
    row(A::FindPrevious, "find-previous", &["N"], P::Logs, "place found before", None),
    row(A::GoTo, "go-to", &["#"], P::Logs, "go to a line or a time", None),
    row(A::Filter, "filter", &["&"], P::Logs, "filter; hides the rest", Some("filter")),
    row(A::Ranks, "ranks", &["r"], P::Logs, "only these ranks", Some("ranks")),
    row(A::Level, "level", &["v"], P::Logs, "least severity", Some("level")),
    row(A::Times, "times", &["t"], P::Logs, "times: none, clock, since start", Some("time")),
    row(A::Wrap, "wrap", &["w"], P::Logs, "wrap long lines", Some("wrap")),
    row(A::Fold, "fold", &["="], P::Logs, "lines that say the same once, or each", Some("fold")),
    row(
        A::Pin,
        "pin",
        &["K"],
        P::Logs,
        "keep the last lines of this rank in sight, up to four ranks",
        Some("pin"),
    ),
    row(A::RankColours, "rank-colours", &["C"], P::Logs, "a colour for each rank, or none", None),
    row(A::Open, "whole-line", &["enter"], P::Logs, "the whole line", None),
    row(A::Copy, "copy-line", &["y"], P::Logs, "copy the line", None),
    row(A::Export, "export", &["s"], P::Logs, "save what is shown", None),
    row(A::Bookmark, "bookmark", &["b"], P::Logs, "set or remove a bookmark", None),
    row(A::NextBookmark, "next-bookmark", &["B"], P::Logs, "next bookmark", None),
    row(A::Attempt, "attempt", &["p"], P::Logs, "the attempt before, or the present one", None),
    row(A::Open, "evidence", &["enter"], P::Diagnosis, "the lines that prove it", Some("evidence")),
    row(
        A::Evidence,
        "show-evidence",
        &["e"],
        P::Diagnosis,
        "go to the first of these lines in the log",
        Some("in the log"),
    ),
    row(A::Fix, "fix", &["A"], P::Diagnosis, "put the fix into a new job", Some("apply fix")),
    row(A::Copy, "copy-finding", &["y"], P::Diagnosis, "copy the finding", None),
    row(A::Submit, "submit", &["ctrl-s"], P::Submit, "submit (with confirmation)", Some("submit")),
    row(A::Next, "next-field", &["tab"], P::Submit, "next field", Some("next")),
    row(A::Toggle, "toggle", &["space"], P::Submit, "rule of this change off or on", Some("off/on")),
    row(A::UndoRules, "undo-rules", &["u"], P::Submit, "all rules on again", None),
    row(A::Diff, "diff", &["ctrl-d"], P::Submit, "changes, diff, side by side", Some("diff")),
    row(
        A::Pick,
        "pick",
        &["ctrl-p"],
        P::Submit,
        "pick target, profile or instance type from a list",
        Some("pick"),
    ),
    row(A::File, "file", &["ctrl-o"], P::Submit, "take a job file", Some("file")),
    row(A::Blank, "blank-job", &["ctrl-n"], P::Submit, "begin a blank job", None),
    row(A::SaveJob, "save-job", &["ctrl-g"], P::Submit, "save the job as a file", None),
    row(A::Edit, "edit", &["ctrl-e"], P::Submit, "open in $EDITOR", Some("edit")),
    row(A::Check, "check", &["ctrl-r"], P::Submit, "ask the cluster whether it would take it", None),
    row(A::Copy, "copy-command", &["ctrl-y"], P::Submit, "copy the equal command", Some("copy cmd")),
];
