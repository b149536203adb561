//! Configuration files: any text is read, or refused with a place and a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let result = router::config::parse("fuzz.toml", text);
    assert_eq!(result, router::config::parse("fuzz.toml", text));
    if let Err(error) = result {
        assert!(!error.issues.is_empty());
        let lines = text.lines().count().max(1) + 1;
        for (line, column) in error.issues.iter().filter_map(|issue| issue.at) {
            assert!((1..=lines).contains(&line) && column > 0, "{line}:{column} of {lines} lines");
        }
        // One line each, whatever the file holds.
        assert_eq!(error.to_string().lines().count(), error.issues.len());
    }
});
