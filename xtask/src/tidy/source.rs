//! Rust source as the checks see it: comments and literals blanked, test code marked, functions found.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};

/// One Rust file.
pub struct Source {
    /// Path from the workspace root.
    pub path: String,
    /// The file.
    pub text: String,
    /// The file with the inside of comments, strings and characters replaced by spaces, byte for byte as long.
    pub code: String,
    tests: Vec<Range<usize>>,
}

/// A function with a body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

impl Source {
    /// Reads every `.rs` file among `files`.
    pub fn read_all(root: &Path, files: &[String]) -> Result<Vec<Source>> {
        files
            .iter()
            .filter(|file| file.ends_with(".rs"))
            .map(|file| {
                let text = std::fs::read_to_string(root.join(file))
                    .with_context(|| format!("reading {file}"))?;
                Ok(Source::new(file.clone(), text))
            })
            .collect()
    }

    /// A file from its text.
    pub fn new(path: String, text: String) -> Source {
        let code = blank(&text);
        let tests = test_regions(&code);
        Source {
            path,
            text,
            code,
            tests,
        }
    }

    /// The name of the crate folder below `crates/`, if it is there.
    pub fn library(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// True for files and places that only tests compile.
    pub fn is_test(&self, offset: usize) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.starts_with("tests/")
            || file == "tests.rs"
            || file.ends_with("_tests.rs")
            || self.tests.iter().any(|region| region.contains(&offset))
    }

    /// The line of an offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.code[..offset].matches('\n').count()
    }

    /// The offset just past the brace that closes the one at `open`.
    pub fn closing_brace(&self, open: usize) -> usize {
        closing_brace(&self.code, open)
    }

    /// Every function with a body, nested ones too.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (start, _) in self.code.match_indices("fn ") {
            let before = self.code[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let name: String = self.code[start + 3..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let body = self.code[start..].find(['{', ';']).map(|at| start + at);
            let Some(open) = body.filter(|at| self.code[*at..].starts_with('{')) else {
                continue;
            };
            if name.is_empty() {
                continue; // A function pointer type.
            }
            let end = closing_brace(&self.code, open);
            functions.push(Function {
                name,
                line: self.line(start),
                lines: 1 + self.code[start..end].matches('\n').count(),
            });
        }
        functions
    }
}

/// The offset just past the brace that closes the one at `open`.
fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The items below `#[cfg(test)]`.
fn test_regions(code: &str) -> Vec<Range<usize>> {
    code.match_indices("#[cfg(test)]")
        .map(|(start, _)| {
            let end = match code[start..].find(['{', ';']).map(|at| start + at) {
                Some(at) if code[at..].starts_with('{') => closing_brace(code, at),
                Some(at) => at,
                None => code.len(),
            };
            start..end
        })
        .collect()
}

/// Replaces what is inside comments and literals by spaces; line breaks stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The end of the comment or literal that starts at `at`; `at` itself where none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let end = if rest.starts_with(b"//") {
        rest.iter().position(|byte| *byte == b'\n')
    } else if rest.starts_with(b"/*") {
        block_comment_end(rest)
    } else if rest[0] == b'"' {
        quoted_end(rest, b'"')
    } else if rest[0] == b'r' && !follows_word(bytes, at) {
        return at + raw_string_end(rest).unwrap_or(0);
    } else if rest[0] == b'\'' {
        return at + character_end(rest).unwrap_or(0);
    } else {
        return at;
    };
    end.map_or(bytes.len(), |end| at + end)
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0
        && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
        && bytes[at - 1] != b'b'
}

fn block_comment_end(rest: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
    None
}

fn quoted_end(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn raw_string_end(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = 2 + hashes;
    let found = rest[body..]
        .windows(close.len())
        .position(|part| part == close);
    Some(found.map_or(rest.len(), |at| body + at + close.len()))
}

/// A character literal; `None` for a lifetime.
fn character_end(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return rest[2..]
            .iter()
            .skip(1)
            .position(|byte| *byte == b'\'')
            .map(|at| at + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let valid = match text {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or_default(),
    };
    let width = valid.chars().next()?.len_utf8();
    (rest.get(1 + width) == Some(&b'\'')).then_some(2 + width)
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/lib.rs".into(), text.into())
    }

    #[test]
    fn comments_and_literals_are_blanked_and_the_rest_stays() {
        let text = "let a = \"}\\\"{\"; // fn x() {\nlet b = '{'; let c: &'a str = r#\"\"{\"#; /* { /* */ { */ end('\\'', b'\\n')";
        let code = source(text).code;
        assert_eq!(code.len(), text.len());
        assert!(!code.contains(['{', '}']), "{code}");
        assert!(code.contains("&'a str") && code.contains("end("));
    }

    #[test]
    fn functions_are_measured_and_tests_are_known() {
        let source = source(
            "fn one() {\n  if x {\n  }\n}\ntrait T { fn none(); }\n#[cfg(test)]\nmod tests {\n fn two() {}\n}\n",
        );
        let functions = source.functions();
        let seen: Vec<(&str, usize, usize)> = functions
            .iter()
            .map(|function| (function.name.as_str(), function.line, function.lines))
            .collect();
        assert_eq!(seen, [("one", 1, 4), ("two", 8, 1)]);
        assert!(source.is_test(source.text.find("two").unwrap()));
        assert!(!source.is_test(source.text.find("one").unwrap()));
    }
}
