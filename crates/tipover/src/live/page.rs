//! The page of a run that goes on.

use super::state::{Ended, State};
use crate::report::{Block, Columns, Number, Page, Provenance, Section, budgets_so_far, of_recent};
use tipover_core::study::timeline::Recent;
use tipover_core::units::{Tick, significant, span};

/// The page of `state`; `since` is when the run began, as RFC 3339.
pub fn page(state: &State, since: &str) -> Page {
    let nothing = ("Nothing is measured yet".to_string(), Recent::new(1, Tick(0)));
    let (trial, recent) = state.recent.as_ref().unwrap_or(&nothing);
    let panels = of_recent("now", if trial.is_empty() { &state.name } else { trial }, recent);
    let ended: Vec<&Ended> = state.ended.iter().collect();
    let table = Columns::new()
        .words("trial", |ended: &&Ended| ended.trial.clone())
        .words("came to", |ended| ended.outcome.clone())
        .numbers("took", "s", |ended, unit| Number::new(ended.took.as_secs_f64(), unit))
        .table("Trials of this run, the last one first", &ended, "The report judges them together.");
    let over = match ended.is_empty() {
        true => Block::Prose("No trial has ended yet.".into()),
        false => Block::Table(table),
    };
    let section =
        |id: &str, title: &str, block| Section { id: id.into(), title: title.into(), blocks: vec![block] };
    Page {
        title: format!("{}, live", state.name),
        question: "What is it doing now?".into(),
        headline: headline(state),
        sections: vec![
            section("course", "Now", Block::Panels(Box::new(panels))),
            budgets_so_far(recent),
            section("ended", "Ended", over),
        ],
        made_by: Provenance {
            command: state.command.clone(),
            commit: env!("TIPOVER_COMMIT").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            when: format!("followed since {since}"),
            facts: vec![],
        },
        claims: vec![],
    }
}

fn headline(state: &State) -> Vec<String> {
    let mut sentences = Vec::new();
    let share =
        state.share.map_or(String::new(), |share| format!(", {:.0} %", 100.0 * share.clamp(0.0, 1.0)));
    let note = if state.note.is_empty() { String::new() } else { format!(" ({})", state.note) };
    sentences.push(match &state.over {
        Some(over) => over.clone(),
        None => {
            let doing = [&state.trial, &state.phase].map(String::as_str);
            let doing: Vec<&str> = doing.into_iter().filter(|part| !part.is_empty()).collect();
            format!("{}{share}{note}", doing.join(": "))
        }
    });
    if let Some(last) = state.timeline().and_then(|timeline| timeline.steps.last()) {
        let offered = last
            .offered_ops_per_s
            .map_or(String::new(), |offered| format!(" of {}/s offered", significant(offered, 3)));
        let waited = last.residence.as_ref().map_or(String::new(), |waited| {
            let ms = |ms| significant(ms, 3);
            format!("; residence {} ms median, {} ms p99", ms(waited.ms_p50), ms(waited.ms_p99))
        });
        let failed = match last.failed_ops_per_s {
            failed if failed > 0.0 => format!(", {}/s failed", significant(failed, 3)),
            _ => String::new(),
        };
        let backlog =
            last.backlog.filter(|n| *n > 0).map_or(String::new(), |n| format!("; {n} due and not sent"));
        let done = significant(last.done_ops_per_s, 3);
        sentences.push(format!("Last interval: {done} operations/s{offered}{failed}{waited}{backlog}."));
    }
    if let Some((all, over)) = state.trials {
        let left = state.left.filter(|_| state.over.is_none());
        let left = left.map_or(String::new(), |left| format!(", about {} left", span::rounded(left)));
        sentences.push(format!("{over} of {all} trials are over{left}."));
    }
    match state.in_force() {
        0 => {}
        1 => sentences.push("A fault is in force.".into()),
        n => sentences.push(format!("{n} faults are in force.")),
    }
    sentences
}
