//! From a [`Page`] of pure data to what people read: one HTML file, text in the terminal, or JSON.
//!
//! The three say the same. Everything right of the page is a pure function of it; only
//! [`Terminal::detect`] looks at the outside world.

mod accesses;
mod audit;
mod beside;
mod bracketed;
mod columns;
mod comparison;
mod experiment;
mod html;
mod number;
mod page;
#[cfg(test)]
mod palette;
mod planned;
mod sample;
mod storage;
mod table;
mod text;
mod tipping;
mod watch;

pub use accesses::{AccessPicture, of_trace};
pub use audit::of_audit;
pub use beside::beside;
pub use bracketed::of_bracketed;
pub use columns::Columns;
pub use comparison::{of_comparison, of_history};
pub use experiment::{Besides, Course, Courses, backlogs, budgets_so_far, of_experiment, of_recent, studied};
pub use html::{following, html, update};
pub use number::Number;
pub use page::*;
pub use planned::of_plan;
pub use sample::sample_of_cells;
pub use storage::{made_by, of_bench, when};
pub use text::{Terminal, summary, text, wrap};
pub use tipping::of_searches;
pub use watch::of_watch;

#[cfg(test)]
mod tests;
