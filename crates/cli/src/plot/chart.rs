//! One plot: two axes, and what is drawn between them.

use std::fmt::{Display, Formatter, Result, Write};

use super::markup::Attributes;
use super::{Axis, Markup};

const TOP: f64 = 14.0;
/// Right of the last mark of the horizontal axis.
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Left of the widest mark of the vertical axis: its title.
const LEFT: f64 = 34.0;
/// Room that a character of a mark needs.
const MARK_ROOM: f64 = 7.0;

/// A coordinate: a tenth of a pixel is enough.
#[derive(Clone, Copy)]
struct Px(f64);

impl Display for Px {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let tenths = (self.0 * 10.0).round();
        if tenths % 10.0 == 0.0 {
            write!(f, "{:.0}", tenths / 10.0)
        } else {
            write!(f, "{:.1}", tenths / 10.0)
        }
    }
}

/// A plot while it is drawn.
pub struct Chart {
    x: Axis,
    y: Axis,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    body: Markup,
}

impl Chart {
    /// Nothing between two axes.
    pub fn new(x: Axis, y: Axis, width: u32, height: u32) -> Chart {
        let marks = y.ticks.iter().map(|(_, words)| words.chars().count());
        let left = LEFT + marks.max().unwrap_or(0) as f64 * MARK_ROOM;
        // The last mark is written around its place, which may be the end.
        let last = x.ticks.last().map_or(0, |(_, words)| words.chars().count());
        let right = (last as f64 * MARK_ROOM / 2.0).max(RIGHT);
        Chart {
            x,
            y,
            width: width.into(),
            height: height.into(),
            left,
            right,
            body: Markup::default(),
        }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let across = self.width - self.left - self.right;
        let down = self.height - TOP - BOTTOM;
        (
            self.left + self.x.place(x) * across,
            TOP + (1.0 - self.y.place(y)) * down,
        )
    }

    /// A line through points.
    pub fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let path = self.path(points.iter().copied());
        let class = format!("line {class}");
        self.body.empty("path", &[("class", &class), ("d", &path)]);
    }

    /// The area between two lines over the same values: each `(x, low, high)`.
    pub fn area(&mut self, points: &[(f64, f64, f64)], class: &str, title: &str) {
        let above = points.iter().map(|(x, _, high)| (*x, *high));
        let below = points.iter().rev().map(|(x, low, _)| (*x, *low));
        let path = self.path(above.chain(below)) + "Z";
        let class = format!("area {class}");
        self.body
            .element("path", &[("class", &class), ("d", &path)], |inside| {
                inside.words("title", &[], title);
            });
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (n, (x, y)) in points.enumerate() {
            let (x, y) = self.at(x, y);
            let to = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{to}{} {}", Px(x), Px(y));
        }
        path
    }

    /// A rectangle between two values of each axis.
    pub fn bar(&mut self, x: (f64, f64), y: (f64, f64), class: &str, title: &str) {
        let (left, top) = self.at(x.0, y.1);
        let (right, bottom) = self.at(x.1, y.0);
        let class = format!("bar {class}");
        let (width, height) = (Px(right - left), Px((bottom - top).max(0.0)));
        let place: Attributes<'_> = &[
            ("class", &class),
            ("x", &Px(left)),
            ("y", &Px(top)),
            ("width", &width),
            ("height", &height),
        ];
        self.body.element("rect", place, |inside| {
            inside.words("title", &[], title);
        });
    }

    /// Shows when it is pointed at.
    pub fn dot(&mut self, x: f64, y: f64, class: &str, title: &str) {
        let (x, y) = self.at(x, y);
        let class = format!("dot {class}");
        let place: Attributes<'_> = &[("class", &class), ("cx", &Px(x)), ("cy", &Px(y)), ("r", &5)];
        self.body.element("circle", place, |inside| {
            inside.words("title", &[], title);
        });
    }

    /// A line all across at a value, dashed, with words on it.
    pub fn level(&mut self, y: f64, class: &str, words: &str) {
        let left = self.left;
        let (_, y) = self.at(0.0, y);
        let right = self.width - self.right;
        let class = format!("line dashed {class}");
        let path = format!("M{left} {}H{}", Px(y), Px(right));
        self.body
            .element("path", &[("class", &class), ("d", &path)], |inside| {
                inside.words("title", &[], words);
            });
    }

    /// Up to here, something else: shaded, with words at the top.
    pub fn shade(&mut self, until: f64, words: &str) {
        let (x, _) = self.at(until, 0.0);
        if x <= self.left + 1.0 {
            return;
        }
        let (width, height) = (Px(x - self.left), Px(self.height - TOP - BOTTOM));
        self.body.empty(
            "rect",
            &[
                ("class", &"shade"),
                ("x", &self.left),
                ("y", &TOP),
                ("width", &width),
                ("height", &height),
            ],
        );
        let place: Attributes<'_> = &[
            ("class", &"note"),
            ("x", &Px(self.left + 6.0)),
            ("y", &Px(TOP + 14.0)),
        ];
        self.body.words("text", place, words);
    }

    /// The whole, named for those who do not see it.
    pub fn into_svg(self, name: &str) -> Markup {
        let mut svg = Markup::default();
        let view = format!("0 0 {} {}", self.width, self.height);
        svg.element(
            "svg",
            &[("viewBox", &view), ("role", &"img"), ("aria-label", &name)],
            |svg| {
                self.axes(svg);
                svg.add(&self.body);
                self.frame(svg);
            },
        );
        svg
    }

    fn axes(&self, svg: &mut Markup) {
        let left = self.left;
        let (right, bottom) = (self.width - self.right, self.height - BOTTOM);
        for (value, words) in &self.y.ticks {
            let y = TOP + (1.0 - self.y.place(*value)) * (bottom - TOP);
            let path = format!("M{left} {}H{}", Px(y), Px(right));
            svg.empty("path", &[("class", &"grid"), ("d", &path)]);
            let place: Attributes<'_> = &[
                ("class", &"tick end"),
                ("x", &Px(self.left - 8.0)),
                ("y", &Px(y + 4.0)),
            ];
            svg.words("text", place, words);
        }
        let mut free_from = f64::MIN;
        for (value, words) in &self.x.ticks {
            let x = self.left + self.x.place(*value) * (right - self.left);
            let half = words.chars().count() as f64 * MARK_ROOM / 2.0;
            let path = format!("M{} {}v5", Px(x), Px(bottom));
            svg.empty("path", &[("class", &"grid"), ("d", &path)]);
            if x - half < free_from + MARK_ROOM {
                continue;
            }
            free_from = x + half;
            let place: Attributes<'_> = &[
                ("class", &"tick middle"),
                ("x", &Px(x)),
                ("y", &Px(bottom + 18.0)),
            ];
            svg.words("text", place, words);
        }
        let middle = (self.left + right) / 2.0;
        let place: Attributes<'_> = &[
            ("class", &"axis middle"),
            ("x", &Px(middle)),
            ("y", &Px(self.height - 8.0)),
        ];
        svg.words("text", place, &self.x.title);
        let middle = f64::midpoint(TOP, bottom);
        let turn = format!("rotate(-90 14 {})", Px(middle));
        let place: Attributes<'_> = &[
            ("class", &"axis middle"),
            ("x", &14),
            ("y", &Px(middle)),
            ("transform", &turn),
        ];
        svg.words("text", place, &self.y.title);
    }

    fn frame(&self, svg: &mut Markup) {
        let left = self.left;
        let (right, bottom) = (self.width - self.right, self.height - BOTTOM);
        let path = format!("M{left} {TOP}V{}H{}", Px(bottom), Px(right));
        svg.empty("path", &[("class", &"frame"), ("d", &path)]);
    }
}
