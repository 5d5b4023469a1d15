//! Names, labels and targets of links as they are shown to people: on a terminal, in a log, in a message.
//! Whoever may make a file chooses its name, and whoever lent the medium its label, so either may hold what a
//! terminal obeys, the end of a line that a log takes for another entry, or characters that turn the order of
//! what follows around.

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes as they are shown. Readable UTF-8 is as it is; a quotation mark and a backslash have a backslash before
/// them, ends of lines and tabs are `\n`, `\r` and `\t`, and what else is no visible character (controls, those of
/// the direction of writing among them, separators, format characters) is `\u{...}`. A byte that is not UTF-8 is
/// `\xNN`. Two different texts are never shown as the same.
#[derive(Clone, Copy)]
pub struct Shown<'a>(&'a [u8]);

/// A name, a label or the target of a link, for people.
pub fn shown<T: AsRef<[u8]> + ?Sized>(text: &T) -> Shown<'_> {
    Shown(text.as_ref())
}

/// A path for people.
#[must_use]
pub fn shown_path(path: &Path) -> Shown<'_> {
    Shown(path.as_os_str().as_bytes())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            // An apostrophe is common in names and ends nothing here, so it stays as it is.
            for (number, part) in chunk.valid().split('\'').enumerate() {
                if number > 0 {
                    f.write_char('\'')?;
                }
                write!(f, "{}", part.escape_debug())?;
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Bytes in a document whose strings are UTF-8, as JSON is: the text, where what is no UTF-8 is replaced, and,
/// where something was, the bytes themselves in hexadecimal.
#[must_use]
pub fn as_text(bytes: &[u8]) -> (String, Option<String>) {
    let hexadecimal = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (
            String::from_utf8_lossy(bytes).into_owned(),
            Some(hexadecimal()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names went to terminals and logs as they are: one with ESC in it was obeyed, one with a newline was a line
    /// of its own, and the two names `\xff` and `\xfe` were told as one.
    #[test]
    fn nothing_of_a_name_is_obeyed_or_lost() {
        for (text, expected) in [
            (b"plain.txt".as_slice(), "plain.txt"),
            (
                "Äpfel, 柿 and \u{1f34e}".as_bytes(),
                "Äpfel, 柿 and \u{1f34e}",
            ),
            // An accent of its own, as macOS writes it.
            ("cafe\u{301}".as_bytes(), "cafe\u{301}"),
            (b"it's", "it's"),
            (b"two\nlines\r\t", r"two\nlines\r\t"),
            (b"\x1b[2J\x07\x7f", r"\u{1b}[2J\u{7}\u{7f}"),
            (b"\"quoted\"", r#"\"quoted\""#),
            (br"\n", r"\\n"),
            (br"\'", r"\\'"),
            (b"a\xffb\xc3", r"a\xffb\xc3"),
            (br"a\xff", r"a\\xff"),
            // A control character of two bytes: some terminals take it for ESC [.
            ("\u{9b}2J".as_bytes(), r"\u{9b}2J"),
            ("\u{202e}gpj.exe".as_bytes(), r"\u{202e}gpj.exe"),
            (
                "\u{2066}\u{2069}\u{200f}\u{61c}".as_bytes(),
                r"\u{2066}\u{2069}\u{200f}\u{61c}",
            ),
            ("\u{2028}\u{feff}".as_bytes(), r"\u{2028}\u{feff}"),
            (b"", ""),
        ] {
            assert_eq!(shown(text).to_string(), expected);
        }
        assert_eq!(shown_path(Path::new("/a\nb")).to_string(), r"/a\nb");
    }

    #[test]
    fn every_byte_and_every_character_is_shown_as_itself_alone() {
        let mut seen = std::collections::HashSet::new();
        let characters = (0..=char::MAX as u32).filter_map(char::from_u32);
        for character in characters {
            let text = shown(character.to_string().as_str()).to_string();
            assert!(!text.chars().any(char::is_control), "{text:?}");
            assert!(seen.insert(text), "{character:?}");
        }
        for byte in 0x80..=0xff_u8 {
            assert!(seen.insert(shown(&[byte]).to_string()), "{byte:#x}");
        }
    }

    #[test]
    fn what_is_no_utf8_is_told_whole() {
        assert_eq!(as_text("柿".as_bytes()), ("柿".to_owned(), None));
        let (text, bytes) = as_text(b"a\xff");
        assert_eq!(
            (text.as_str(), bytes.as_deref()),
            ("a\u{fffd}", Some("61ff"))
        );
    }
}
