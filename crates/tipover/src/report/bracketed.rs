//! The page of `tipover plan` from searches: candidates between the places that were searched.

use super::planned::{SHOWN, basis, page, verdict};
use super::{Block, Cell, Columns, Emphasis, Number, Page, Section};
use crate::study::bracketed::{Bracketed, Candidate, Searched};
use tipover_core::predict::plan::Outlook;

/// The page.
pub fn of_bracketed(found: &Bracketed, command: &str) -> Page {
    let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
    let sections = vec![
        section("candidates", "Candidates", vec![candidates(found)]),
        section("searched", "What was searched", vec![searched(&found.searched)]),
        basis(&found.left_out, &found.known),
    ];
    let asked = (found.source.as_str(), found.promise.as_str(), found.load_ops_per_s);
    page(asked, &found.headline, sections, command)
}

fn candidates(found: &Bracketed) -> Block {
    let rank = |one: &Candidate| match one.answer {
        Outlook::Holds => 0,
        Outlook::CannotTell => 1,
        Outlook::DoesNotHold => 2,
    };
    let mut rows: Vec<&Candidate> = found.candidates.iter().collect();
    let cost = |one: &Candidate| one.price_per_month.unwrap_or(one.memory_bytes);
    rows.sort_by(|a, b| rank(a).cmp(&rank(b)).then(cost(a).total_cmp(&cost(b))));
    let of = rows.len();
    rows.truncate(SHOWN);
    let load = |end: &Option<(f64, String)>, unit: &str, why: &str| match end {
        Some((load, _)) => Number::exact(*load, unit).into(),
        None => Cell::missing(why),
    };
    let whose = |end: &Option<(f64, String)>| end.as_ref().map_or("–".into(), |(_, name)| name.clone());
    let is_best = |one: &Candidate| found.best.as_ref().is_some_and(|best| best == one);
    Block::Table(
        Columns::new()
            .words("machine", |one: &Candidate| one.machine.clone())
            .words("disk", |one| one.disk.clone())
            .words("promise", |one| verdict(one.answer))
            .words("in a year", |one| one.in_a_year.map_or_else(|| Cell::missing("no growth was given"), verdict))
            .group("it holds")
            .numbers("up to", "/s", move |one, unit| {
                load(&one.bracket.holds, unit, "no place with no more of anything held any load")
            })
            .words("as did", move |one| whose(&one.bracket.holds))
            .group("it fails")
            .numbers("from", "/s", move |one, unit| {
                load(&one.bracket.fails, unit, "no place with no less of anything failed")
            })
            .words("as did ", move |one| whose(&one.bracket.fails))
            .group("")
            .numbers("price a month", "", |one, unit| match one.price_per_month {
                Some(price) => Number::exact(price, unit).into(),
                None => Cell::missing("the catalogue gives no price"),
            })
            .emphasised(
                &format!("{} of {of} candidates, those that hold first", rows.len()),
                rows.iter().copied(),
                "What has at least as much of everything as a place where a load held holds it too, and what has no more \
                 of anything than a place where it failed fails. Between the two nothing is computed.",
                |one| if is_best(one) { Emphasis::Strong } else { Emphasis::Plain },
            )
            .without_empty_columns(),
    )
}

fn searched(searched: &[Searched]) -> Block {
    let end = |end: Option<f64>, unit: &str, why: &str| match end {
        Some(load) => Number::exact(load, unit).into(),
        None => Cell::missing(why),
    };
    Block::Table(
        Columns::new()
            .words("cell", |one: &Searched| one.name.clone())
            .numbers("memory", "MiB", |one, unit| {
                Number::exact((one.memory_bytes / 1_048_576.0).round(), unit)
            })
            .numbers("processors", "", |one, unit| Number::exact(one.cores, unit))
            .numbers("records", "", |one, unit| Number::exact(one.records, unit))
            .words("disk", |one| one.disk.clone())
            .words("promise", |one| one.promise.clone())
            .numbers("holds up to", "/s", move |one, unit| {
                end(one.holds_ops_per_s, unit, "it held at no load tried")
            })
            .numbers("fails from", "/s", move |one, unit| {
                end(one.fails_ops_per_s, unit, "it failed at no load tried")
            })
            .table(
                "Where the searches ended",
                searched,
                "Both ends were repeated; `tipover find` shows how often, and what limits.",
            ),
    )
}
