//! The job of all measurements: a no-op with about 200 bytes of JSON.

use serde_json::json;
use tenure_tests::v1::JobSpec;

/// A no-op job.
pub(crate) fn noop(number: usize) -> JobSpec {
    let text = "the quick brown fox jumps over the lazy dog, and again, ";
    tenure_tests::caller::spec(
        "noop",
        json!({ "number": number, "to": "someone@example.org", "text": text.repeat(3) }),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_about_200_bytes() {
        let bytes = super::noop(12345).payload.len();
        assert!((190..=260).contains(&bytes), "{bytes}");
    }
}
