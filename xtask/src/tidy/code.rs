//! Words that must not stand in the code.

use super::Finding;
use super::source::Source;

struct Rule {
    word: &'static str,
    why: &'static str,
    scope: Scope,
    /// Tests may.
    allowed_in_tests: bool,
}

/// Where a rule holds.
#[derive(Clone, Copy)]
enum Scope {
    Everywhere,
    /// In the library crates, where device content and kernel requests arrive.
    Libraries,
    /// Where names, labels and targets of links go to people: in what is printed, logged or part of an error.
    Telling,
    /// In the command, but for the one layer that everything it says goes through.
    Command,
}

/// The crates whose words reach people.
const TELLING: [&str; 8] = [
    "cli",
    "device",
    "engine",
    "fuse",
    "inspect",
    "persimmon",
    "salvage",
    "vfs",
];

/// The layer that everything goes through which the command says.
const OUTPUT: &str = "crates/cli/src/output.rs";

impl Scope {
    fn holds(self, source: &Source) -> bool {
        let library = source.library();
        match self {
            Scope::Everywhere => true,
            // Test equipment: these crates are compiled for tests alone.
            Scope::Libraries => {
                !matches!(library, None | Some("sim" | "crash" | "lab" | "fuzzing"))
            }
            Scope::Telling => library.is_some_and(|library| TELLING.contains(&library)),
            Scope::Command => library == Some("cli") && source.path != OUTPUT,
        }
    }
}

/// What writes to standard output or standard error, or has them written to.
const SAYS: &str = "through crates/cli/src/output.rs, which passes errors on";
const SHOWN: &str = "names are shown by persimmon_format::shown, and told whole by as_text";

const RULES: &[Rule] = &[
    Rule {
        word: "to_ne_bytes",
        why: "bytes are little endian: to_le_bytes",
        scope: Scope::Everywhere,
        allowed_in_tests: false,
    },
    Rule {
        word: "from_ne_bytes",
        why: "bytes are little endian: from_le_bytes",
        scope: Scope::Everywhere,
        allowed_in_tests: false,
    },
    Rule {
        word: ".unwrap()",
        why: "a typed error instead",
        scope: Scope::Libraries,
        allowed_in_tests: true,
    },
    Rule {
        word: ".expect(",
        why: "a typed error instead",
        scope: Scope::Libraries,
        allowed_in_tests: true,
    },
    Rule {
        word: "#[ignore",
        why: "a test runs or does not exist",
        scope: Scope::Everywhere,
        allowed_in_tests: false,
    },
    Rule {
        word: "println!(",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "print!(",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "eprintln!(",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "eprint!(",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "stdout()",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "stderr().lock()",
        why: SAYS,
        scope: Scope::Command,
        allowed_in_tests: true,
    },
    Rule {
        word: "from_utf8_lossy",
        why: SHOWN,
        scope: Scope::Telling,
        allowed_in_tests: true,
    },
    Rule {
        word: "escape_ascii",
        why: SHOWN,
        scope: Scope::Telling,
        allowed_in_tests: true,
    },
    Rule {
        word: "escape_debug",
        why: SHOWN,
        scope: Scope::Telling,
        allowed_in_tests: true,
    },
    Rule {
        word: "escape_default",
        why: SHOWN,
        scope: Scope::Telling,
        allowed_in_tests: true,
    },
];

pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    for source in sources {
        for rule in RULES {
            if !rule.scope.holds(source) {
                continue;
            }
            for (offset, _) in source.code.match_indices(rule.word) {
                if is_inside_word(&source.code, offset, rule.word) {
                    continue;
                }
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

/// Whether what was found is the end of a longer name: `print!(` in `eprint!(` has a finding of its own.
fn is_inside_word(code: &str, offset: usize, word: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let before = code.get(..offset).and_then(|code| code.chars().next_back());
    word.starts_with(is_of_name) && before.is_some_and(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&[Source::new(path.into(), text.into())], &mut findings);
        findings.len()
    }

    #[test]
    fn the_command_prints_through_its_layer_alone() {
        let text = "fn f() { println!(\"x\"); eprint!(\"y\"); let _ = std::io::stdout(); }";
        assert_eq!(findings("crates/cli/src/info.rs", text), 3);
        assert_eq!(findings(OUTPUT, text), 0);
        assert_eq!(findings("xtask/src/main.rs", text), 0);
        assert_eq!(findings("crates/cli/tests/a.rs", text), 0);
    }

    #[test]
    fn names_are_shown_by_one_function() {
        let text =
            "fn f(name: &[u8]) { log(String::from_utf8_lossy(name)); log(name.escape_ascii()); }";
        assert_eq!(findings("crates/salvage/src/copy.rs", text), 2);
        assert_eq!(findings("crates/format/src/shown.rs", text), 0);
        assert_eq!(findings("crates/crash/src/model.rs", text), 0);
    }
}
