//! Markup that is well-formed by construction, as XML and as HTML.

use std::fmt::{Display, Write};

/// Names and values.
pub type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

/// Elements and text, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Markup(String);

impl Markup {
    /// An element with what `body` puts inside.
    pub fn element(
        &mut self,
        name: &str,
        attributes: Attributes<'_>,
        body: impl FnOnce(&mut Markup),
    ) {
        self.start(name, attributes);
        self.0.push('>');
        body(self);
        let _ = write!(self.0, "</{name}>");
    }

    /// An element with text.
    pub fn words(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        self.element(name, attributes, |inside| inside.text(text));
    }

    /// An element with nothing inside: of HTML only those that never have anything, of SVG any.
    pub fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.0.push_str("/>");
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        escape(&mut self.0, text, false);
    }

    /// What was written elsewhere.
    pub fn add(&mut self, other: &Markup) {
        self.0.push_str(&other.0);
    }

    pub fn into_string(self) -> String {
        self.0
    }

    fn start(&mut self, name: &str, attributes: Attributes<'_>) {
        let _ = write!(self.0, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"");
            escape(&mut self.0, &value.to_string(), true);
            self.0.push('"');
        }
    }
}

/// Quotes are left alone but in attributes: in HTML a style sheet knows no escapes.
fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if quotes => out.push_str("&quot;"),
            // No other control character may be in XML, however it is written.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_escaped() {
        let mut markup = Markup::default();
        markup.element("p", &[("title", &"a \"b\" <c>")], |p| {
            p.text("1 < 2 & 3\u{1}");
            p.empty("br", &[]);
        });
        let expected = "<p title=\"a &quot;b&quot; &lt;c&gt;\">1 &lt; 2 &amp; 3\u{fffd}<br/></p>";
        assert_eq!(markup.into_string(), expected);
    }
}
