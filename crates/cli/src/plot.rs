//! Plots as SVG inside a page, for people. Colours are classes that the page's style sheet explains.

mod chart;
mod markup;
mod scale;

pub use chart::Chart;
pub use markup::Markup;
pub use scale::Axis;
