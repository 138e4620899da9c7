//! Known names, and the nearest one to a name that is not.
use super::SECTIONS;

/// The names of all sections.
pub(super) fn section_names() -> Vec<&'static str> {
    SECTIONS.iter().map(|section| section.name).collect()
}

/// What is wrong with the name of a section, if it is.
pub(super) fn unknown_section(name: &str) -> Option<String> {
    let names = section_names();
    if names.contains(&name) {
        return None;
    }
    Some(match nearest(name, &names) {
        Some(near) => format!("unknown section `{name}`; did you mean `{near}`?"),
        None => format!(
            "unknown section `{name}`; the sections are {}",
            names.join(", ")
        ),
    })
}

/// What is wrong with the name of a key, if it is.
pub(super) fn unknown(section: &str, key: &str) -> Option<String> {
    let Some(known) = SECTIONS.iter().find(|s| s.name == section) else {
        return unknown_section(section);
    };
    let keys: Vec<&str> = known.keys.iter().map(|k| k.name).collect();
    if keys.contains(&key) {
        return None;
    }
    Some(match nearest(key, &keys) {
        Some(near) => format!("unknown key `{section}.{key}`; did you mean `{section}.{near}`?"),
        None => format!(
            "unknown key `{section}.{key}`; the keys are {}",
            keys.join(", ")
        ),
    })
}

/// The name that differs least, if it is near enough to be meant.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    names
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}

/// How many characters have to be put in, taken out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_one_that_could_be_meant() {
        assert_eq!(nearest("slot", &["slots", "lease"]), Some("slots"));
        assert_eq!(nearest("elephant", &["slots", "lease"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
    }
}
