//! Reading a recipe, and saying on which line it is wrong.

use super::super::mistake::explain;
use super::{BadRecipe, Recipe};
use toml::de::{DeTable, DeValue, Error};

impl Recipe {
    /// Reads a recipe from TOML and checks that it fits together.
    ///
    /// # Errors
    /// The line, the key and the nearest right word.
    pub fn parse(text: &str) -> Result<Recipe, BadRecipe> {
        let recipe: Recipe = toml::from_str(text).map_err(|error| not_read(text, &error))?;
        recipe.check().map_err(|bad| BadRecipe { line: line_of(text, bad.key.as_deref()), ..bad })?;
        Ok(recipe)
    }
}

fn not_read(text: &str, error: &Error) -> BadRecipe {
    // A table that lacks something has no place of its own.
    let place = error.span().filter(|span| !span.is_empty() && !error.message().starts_with("missing"));
    let line = place.map(|span| line_at(text, span.start));
    BadRecipe { key: None, line, words: explain(error.message()) }
}

fn line_at(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|byte| *byte == b'\n').count()
}

/// The line on which a key stands, or the last of the tables above it that do.
fn line_of(text: &str, key: Option<&str>) -> Option<usize> {
    let whole = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = whole.get_ref();
    let mut place = None;
    let mut rest = key?;
    // A key of one table may have dots itself, as `"replSetConfig.members"` in [settings].
    let after = |name: &str, rest: &str| {
        let rest = rest.strip_prefix(name)?;
        if rest.is_empty() { Some(0) } else { rest.starts_with('.').then_some(name.len() + 1) }
    };
    while let Some((name, value)) = table.iter().find(|(name, _)| after(name.get_ref(), rest).is_some()) {
        place = Some(name.span().start);
        let next = after(name.get_ref(), rest).unwrap_or_default();
        let DeValue::Table(inner) = value.get_ref() else { break };
        (rest, table) = (&rest[next..], inner);
    }
    place.map(|position| line_at(text, position))
}
