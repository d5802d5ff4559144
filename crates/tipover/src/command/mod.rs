//! The verbs, one file each.

pub mod audit;
pub mod breaking;
pub mod compare;
pub mod disk;
pub mod doctor;
pub mod explain;
pub mod find;
pub mod lab;
pub mod list;
pub mod plan;
pub mod report;
pub mod run;
pub mod self_test;
pub mod ycsb;

/// What the user gave cannot be used; ends the program with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// How a command ended, when nothing stopped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Everything held.
    Held,
    /// Something did not hold, or a trial failed.
    NotHeld,
}

/// NAME=VALUE, as a flag takes it.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::pair;

    #[test]
    fn a_pair_is_a_name_and_a_value() {
        assert_eq!(pair("a = b=c"), Ok(("a".into(), "b=c".into())));
        for wrong in ["a", "=b", " =b", ""] {
            assert!(pair(wrong).unwrap_err().contains("is not NAME=VALUE"), "{wrong}");
        }
    }
}
