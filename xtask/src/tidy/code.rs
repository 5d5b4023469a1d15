//! Words that must not stand in the code.

use super::Finding;
use super::source::Source;

struct Rule {
    word: &'static str,
    why: &'static str,
    /// Only in the library crates, where device content and kernel requests arrive.
    libraries_only: bool,
    /// Tests may.
    allowed_in_tests: bool,
}

const RULES: &[Rule] = &[
    Rule {
        word: "to_ne_bytes",
        why: "bytes are little endian: to_le_bytes",
        libraries_only: false,
        allowed_in_tests: false,
    },
    Rule {
        word: "from_ne_bytes",
        why: "bytes are little endian: from_le_bytes",
        libraries_only: false,
        allowed_in_tests: false,
    },
    Rule {
        word: ".unwrap()",
        why: "a typed error instead",
        libraries_only: true,
        allowed_in_tests: true,
    },
    Rule {
        word: ".expect(",
        why: "a typed error instead",
        libraries_only: true,
        allowed_in_tests: true,
    },
    Rule {
        word: "#[ignore",
        why: "a test runs or does not exist",
        libraries_only: false,
        allowed_in_tests: false,
    },
];

pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    for source in sources {
        for rule in RULES {
            // Test equipment: these crates are compiled for tests alone.
            if rule.libraries_only && matches!(source.library(), None | Some("sim" | "fuzzing")) {
                continue;
            }
            for (offset, _) in source.code.match_indices(rule.word) {
                if rule.allowed_in_tests && source.is_test(offset) {
                    continue;
                }
                findings.push(Finding::error(
                    format!("{}:{}", source.path, source.line(offset)),
                    format!("`{}`: {}", rule.word, rule.why),
                ));
            }
        }
    }
}
