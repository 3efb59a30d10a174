//! Colour and stroke of each arm: the same in every picture of a page, by its place among all arms
//! of the result.
//! With more arms than colours the stroke tells those of one colour apart.

use super::svg::{Anchor, LETTER, LINE, Svg, WIDTH};

/// Colours in the style.
pub(super) const COLOURS: usize = 8;

/// Letters of a name in the key.
const NAME: usize = 30;

/// Of a line: its colour, and its stroke.
pub(super) fn class_of(arm: usize) -> String {
    format!("c{} d{}", arm % COLOURS, arm / COLOURS % 3)
}

/// Of an area.
pub(super) fn fill(arm: usize) -> String {
    format!("f{}", arm % COLOURS)
}

pub(super) fn height(names: usize) -> f64 {
    names.div_ceil(columns()) as f64 * LINE + 6.0
}

fn columns() -> usize {
    (WIDTH / ((NAME as f64 + 5.0) * LETTER)) as usize
}

/// Writes names with their strokes, below `top`; each with its place among the arms.
pub(super) fn write<'a>(svg: &mut Svg, top: f64, names: impl Iterator<Item = (usize, &'a str)>) {
    let columns = columns();
    let width = WIDTH / columns as f64;
    for (number, (arm, name)) in names.enumerate() {
        let x = (number % columns) as f64 * width + 8.0;
        let y = top + ((number / columns) as f64 + 0.5) * LINE;
        svg.line(&format!("curve {}", class_of(arm)), [x, y], [x + 3.0 * LETTER, y]);
        svg.name([x + 4.0 * LETTER, y + 4.0], Anchor::Start, name, NAME);
    }
}
