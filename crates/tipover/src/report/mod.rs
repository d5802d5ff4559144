//! From a [`Page`] of pure data to what people read: one HTML file, text in the terminal, or JSON.
//!
//! The three say the same. Everything right of the page is a pure function of it; only
//! [`Terminal::detect`] looks at the outside world.

mod audit;
mod beside;
mod comparison;
mod experiment;
mod html;
mod number;
mod page;
mod sample;
mod table;
mod text;
mod tipping;

pub use audit::of_audit;
pub use beside::beside;
pub use comparison::{of_comparison, of_history};
pub use experiment::{Course, backlogs, of_experiment};
pub use html::html;
pub use number::Number;
pub use page::*;
pub use sample::sample;
pub use text::{Terminal, text};
pub use tipping::of_searches;

#[cfg(test)]
mod tests;
