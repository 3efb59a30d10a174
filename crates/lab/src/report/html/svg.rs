//! A picture: shapes one after the other, in a space of its own units, with a title and a
//! description for who does not see it. Colours are classes of the page's style, so that they
//! follow light and dark.

use std::fmt::Write;

use super::Numbers;
use super::axis::Axis;
use crate::report::run::shortened;

/// Width of a letter of a text: the style's face is of fixed width.
pub(super) const LETTER: f64 = 7.25;

pub(super) const LINE: f64 = 18.0;

/// Pictures are so wide.
pub(super) const WIDTH: f64 = 760.0;

/// Where a text's point is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    height: f64,
}

impl Svg {
    pub(super) fn new(height: f64) -> Self {
        Self { body: String::new(), height }
    }

    pub(super) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    pub(super) fn path(&mut self, class: &str, points: &[[f64; 2]]) {
        if points.is_empty() {
            return;
        }
        let mut d = String::new();
        for (number, [x, y]) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{d}\"/>");
    }

    /// A disc with a tooltip.
    pub(super) fn dot(&mut self, class: &str, [x, y]: [f64; 2], told: &str) {
        let _ = writeln!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escape(told)
        );
    }

    /// A rectangle with a tooltip.
    pub(super) fn rectangle(
        &mut self,
        class: &str,
        [x, y]: [f64; 2],
        [width, height]: [f64; 2],
        told: &str,
    ) {
        let (width, height) = (width.max(0.5), height.max(0.5));
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            escape(told)
        );
    }

    /// A text whose base line is at the point.
    pub(super) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    /// A name, or its ends if it has more letters.
    pub(super) fn name(&mut self, at: [f64; 2], anchor: Anchor, name: &str, most: usize) {
        self.text("name", at, anchor, &shortened(name, most, most / 2));
    }

    /// A text under the whole picture.
    pub(super) fn below(&mut self, y: f64, text: &str) {
        self.text("mark", [WIDTH / 2.0, y], Anchor::Middle, text);
    }

    /// A line down to `bottom` for each mark of an axis, with its value below.
    pub(super) fn marks_across(
        &mut self,
        axis: &Axis,
        marks: Vec<f64>,
        bottom: f64,
        shown: impl Fn(f64) -> String,
    ) {
        for mark in marks {
            let x = axis.place(mark);
            self.line("grid", [x, 4.0], [x, bottom]);
            self.text("mark", [x, bottom + LINE - 3.0], Anchor::Middle, &shown(mark));
        }
    }

    /// A line from `left` to `right` for each mark of an axis, with its value to the left.
    pub(super) fn marks_up(
        &mut self,
        axis: &Axis,
        [left, right]: [f64; 2],
        shown: impl Fn(f64) -> String,
    ) {
        for mark in axis.marks() {
            let y = axis.place(mark);
            self.line("grid", [left, y], [right, y]);
            self.text("mark", [left - LETTER, y + 4.0], Anchor::End, &shown(mark));
        }
    }

    /// The picture with its caption.
    pub(super) fn figure(self, numbers: &mut Numbers, title: &str, description: &str) -> String {
        let number = numbers.next();
        let (title, description) = (escape(title), escape(description));
        let Self { body, height } = self;
        format!(
            "<figure>\n<figcaption>{title}</figcaption>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-labelledby=\"title-{number} about-{number}\">\n\
             <title id=\"title-{number}\">{title}</title>\n<desc id=\"about-{number}\">{description}</desc>\n\
             {body}</svg>\n</figure>\n"
        )
    }
}

/// Text that may stand in a page.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no form for control characters.
            letter if letter < ' ' && !"\n\t".contains(letter) => safe.push('?'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Panels that are beside each other.
pub(super) const ACROSS: usize = 2;

/// The left and the right end of a panel, and its top; in rows of this height.
pub(super) fn panel(number: usize, height: f64) -> [f64; 3] {
    const PANEL: f64 = WIDTH / ACROSS as f64;
    let column = (number % ACROSS) as f64;
    [column * PANEL, (column + 1.0) * PANEL, (number / ACROSS) as f64 * height + LINE]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_harmless_and_short() {
        assert_eq!(escape("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot;?");
        assert_eq!(shortened("kernel-uncached-prealloc", 12, 6), "kern..ealloc");
        assert_eq!(shortened("forebay", 12, 6), "forebay");
    }
}
