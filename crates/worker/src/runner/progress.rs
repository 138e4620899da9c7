//! What a handler says of its progress, made fit to be shown: it goes forward only, never
//! beyond its total, and is whole only when the job has succeeded.

/// Units done, units in all (0: not known), and what it is doing.
pub(super) type Progress = (i64, i64, String);

/// The progress that follows on what was told before. Another total begins anew.
pub(super) fn forward(before: Option<&Progress>, done: i64, total: i64, message: &str) -> Progress {
    let total = total.max(0);
    let most = if total > 0 { total } else { i64::MAX };
    let done = done.clamp(0, most);
    let done = match before {
        Some((was, of, _)) if *of == total => done.max(*was),
        _ => done,
    };
    (done, total, message.to_owned())
}

/// The progress of a run that has not succeeded: what is left to do may be small, but it
/// is not nothing.
pub(super) fn unfinished(progress: Progress) -> Progress {
    match progress {
        (done, total, message) if total > 0 && done >= total => (total - 1, total, message),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_forward_within_its_total() {
        let mut now = None;
        let told: Vec<_> = [
            (-5, 100),
            (40, 100),
            (30, 100),
            (400, 100),
            (7, 0),
            (3, 0),
            (1, 10),
        ]
        .into_iter()
        .map(|(done, total)| {
            let next = forward(now.as_ref(), done, total, "m");
            now = Some(next.clone());
            (next.0, next.1)
        })
        .collect();
        let expected = [
            (0, 100),
            (40, 100),
            (40, 100),
            (100, 100),
            (7, 0),
            (7, 0),
            (1, 10),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn only_success_is_whole() {
        for (done, total, shown) in [
            (100, 100, 99),
            (99, 100, 99),
            (1, 1, 0),
            (5, 0, 5),
            (0, 0, 0),
        ] {
            assert_eq!(unfinished((done, total, String::new())).0, shown);
        }
    }
}
