//! Completes a path that is being typed.

use std::path::Path;

/// Most entries of a folder that are looked at.
const MOST: usize = 10_000;
/// Most paths that are named.
const MOST_FOUND: usize = 100;

/// Returns the paths that begin with a text, in order; a folder ends with a slash. A hidden one is named only if its dot
/// is typed.
pub(super) fn beginning_with(typed: &str) -> Vec<String> {
    let (folder, name) = typed.rsplit_once('/').map_or(("", typed), |(folder, name)| (folder, name));
    let before = &typed[..typed.len() - name.len()];
    let place = match (folder, before) {
        ("", "/") => "/".to_owned(),
        ("", _) => ".".to_owned(),
        (folder, _) => match folder.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            Some(rest) => format!("{}{rest}", std::env::var("HOME").unwrap_or_default()),
            None => folder.to_owned(),
        },
    };
    let Ok(entries) = std::fs::read_dir(Path::new(&place)) else { return Vec::new() };
    let found = entries.take(MOST).filter_map(|entry| {
        let entry = entry.ok()?;
        let own = entry.file_name().into_string().ok()?;
        let hidden = own.starts_with('.') && !name.starts_with('.');
        let plain = !own.chars().any(char::is_control);
        (own.starts_with(name) && !hidden && plain).then(|| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("{before}{own}{slash}")
        })
    });
    let mut found: Vec<String> = found.collect();
    found.sort_unstable();
    found.truncate(MOST_FOUND);
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["job-a.toml", "job-b.toml", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("jobs")).unwrap();
        let typed = |name: &str| format!("{}/{name}", folder.path().display());
        let found = |name: &str| super::beginning_with(&typed(name));
        assert_eq!(found("job"), [typed("job-a.toml"), typed("job-b.toml"), typed("jobs/")]);
        assert_eq!(found(".h"), [typed(".hidden")]);
        assert!(found("x").is_empty() && super::beginning_with("/no/such/folder/x").is_empty());
        assert_eq!(found("").len(), 3);
    }
}
