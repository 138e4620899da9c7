//! Processor time of processes, from /proc.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The length of a clock tick: Linux has told user space 100 a second on every platform.
const TICK: Duration = Duration::from_millis(10);

/// One line of /proc/PID/stat.
struct Stat {
    parent: u32,
    own: u64,
    /// Of children that have ended.
    ended: u64,
}

fn read(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&text)
}

fn parse(text: &str) -> Option<Stat> {
    // The name in parentheses may hold blanks. Behind it: state, parent, …; fields 14 to
    // 17 of the line are the times.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        ended: number(13)? + number(14)?,
    })
}

/// What a process and all its descendants have used, those that have ended included.
pub(crate) fn tree(root: u32) -> Result<Duration> {
    let mut stats = HashMap::new();
    for entry in Path::new("/proc").read_dir().context("/proc")? {
        let name = entry.context("/proc")?.file_name();
        if let Some(pid) = name.to_str().and_then(|text| text.parse::<u32>().ok())
            && let Some(stat) = read(pid)
        {
            stats.insert(pid, stat);
        }
    }
    let mut ticks = 0;
    let mut open = vec![root];
    stats
        .get(&root)
        .with_context(|| format!("process {root} is not there"))?;
    while let Some(pid) = open.pop() {
        if let Some(stat) = stats.get(&pid) {
            ticks += stat.own + stat.ended;
        }
        open.extend(
            stats
                .iter()
                .filter(|(_, stat)| stat.parent == pid)
                .map(|(pid, _)| *pid),
        );
    }
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// The process id in a file that an environment variable names.
pub(crate) fn pid_of(variable: &str) -> Result<u32> {
    let path = std::env::var(variable)
        .with_context(|| format!("{variable} is not set: run `make bench`"))?;
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let first = text.split_whitespace().next().unwrap_or_default();
    first
        .parse()
        .with_context(|| format!("{path} does not begin with a process id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_no_obstacle() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 1 0 5 6 7 18446744073709551615";
        let stat = parse(line).expect("a stat");
        assert_eq!((stat.parent, stat.own, stat.ended), (7, 120, 34));
        assert!(parse("").is_none());
    }

    #[test]
    fn work_of_ended_children_is_counted() {
        let before = tree(std::process::id()).expect("a time");
        // A child that computes for a while and ends.
        let status = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .status()
            .expect("sh");
        assert!(status.success());
        assert!(tree(std::process::id()).expect("a time") > before);
    }
}
