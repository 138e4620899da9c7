//! What a data set is called.

use tenure_core::domain::ids::MAX_TEXT_BYTES;
use tenure_core::error::clean_text;

use super::payload::Payload;

/// The data set's name: the one that was asked for, or the file's without its extensions.
pub(super) fn dataset_name(payload: &Payload, file_name: &str) -> String {
    const EXTENSIONS: [&str; 7] = [".csv", ".tsv", ".tab", ".txt", ".gz", ".gzip", ".zip"];
    if let Some(name) = &payload.dataset {
        return name.trim().to_owned();
    }
    let name = file_name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = clean_text(name, MAX_TEXT_BYTES).replace(['\n', '\t'], " ");
    let mut name = name.trim();
    while let Some(at) = name
        .rfind('.')
        .filter(|at| *at > 0 && EXTENSIONS.contains(&name[*at..].to_ascii_lowercase().as_str()))
    {
        name = name[..at].trim_end();
    }
    let name = name[..name.floor_char_boundary(MAX_TEXT_BYTES)].trim_end();
    if name.is_empty() { "import" } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::domain::ids::FileId;

    use super::*;

    #[test]
    fn a_data_set_has_the_files_name_unless_it_was_named() {
        let name = |file: &str, dataset: Option<&str>| {
            let payload = json!({"file_id": FileId::new(), "dataset": dataset});
            let payload = Payload::parse(payload.to_string().as_bytes()).expect("a payload");
            dataset_name(&payload, file)
        };
        for (file, expected) in [
            ("airports.csv", "airports"),
            ("Airports 2024.CSV.gz", "Airports 2024"),
            ("a.b.csv", "a.b"),
            ("folder/x\\y.tsv", "y"),
            (".csv", ".csv"),
            ("  .zip ", ".zip"),
            ("a\u{1}b\nc.csv", "a\u{fffd}b c"),
            ("\n", "import"),
            ("no extension", "no extension"),
        ] {
            assert_eq!(name(file, None), expected, "{file:?}");
        }
        assert_eq!(name("a.csv", Some(" my set ")), "my set");
        let long = name(&"é".repeat(200), None);
        assert_eq!((long.len(), long.chars().count()), (254, 127));
    }
}
