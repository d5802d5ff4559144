//! The report while trials are still missing: made anew between them, so that the first picture does not wait
//! for the last trial.

use anyhow::Result;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Writes the page of the trials that ended so far; says where it is as soon as it has a picture.
pub type MakePage<'a> = dyn Fn() -> Result<Option<PathBuf>> + 'a;

/// The share of a run's time that writing pages may take: one part in this number.
const ONE_IN: u32 = 20;

/// The page of a run that goes on.
pub struct Growing<'a> {
    make: Option<&'a MakePage<'a>>,
    began: Instant,
    /// When the page was there last, and how long it had taken.
    last: Option<(Instant, Duration)>,
    announced: bool,
}

impl<'a> Growing<'a> {
    /// By `make`; without it there is no page before the end.
    pub fn new(make: Option<&'a MakePage<'a>>) -> Self {
        Growing { make, began: Instant::now(), last: None, announced: false }
    }

    /// Nothing is measured just now: the page may be made anew. The first picture is announced.
    pub fn between_trials(&mut self, say: impl Fn(&str)) {
        let Some(make) = self.make else { return };
        if self.last.is_some_and(|(at, took)| at.elapsed() < took * ONE_IN) {
            return;
        }
        let began = Instant::now();
        match make() {
            Ok(Some(path)) if !self.announced => {
                self.announced = true;
                say(&format!(
                    "first picture after {:.0} s, and it grows: {}",
                    self.began.elapsed().as_secs_f64(),
                    path.display()
                ));
            }
            Ok(_) => {}
            // The run is worth more than its page, which is tried once more when all is measured.
            Err(error) => {
                self.make = None;
                say(&format!("there is no page before the end of the run: {error:#}"));
            }
        }
        self.last = Some((Instant::now(), began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn the_first_picture_is_announced_once_and_pages_take_a_small_part_of_the_time() {
        let made = Cell::new(0_u32);
        let took = Duration::from_millis(20);
        let make = || {
            made.set(made.get() + 1);
            std::thread::sleep(took);
            // Of the first trials there is no picture yet.
            Ok((made.get() > 1).then(|| PathBuf::from("there/report.html")))
        };
        let said = RefCell::new(Vec::new());
        let mut growing = Growing::new(Some(&make));
        let began = Instant::now();
        while made.get() < 3 {
            growing.between_trials(|line| said.borrow_mut().push(line.to_string()));
        }
        assert!(began.elapsed() >= 2 * ONE_IN * took, "pages were made one after the other");
        let said = said.into_inner();
        assert!(said.len() == 1 && said[0].ends_with("it grows: there/report.html"), "{said:?}");
    }

    #[test]
    fn a_page_that_cannot_be_made_is_said_once_and_ends_no_run() {
        let make = || Err(anyhow::anyhow!("the disk is full"));
        let said = RefCell::new(Vec::new());
        let mut growing = Growing::new(Some(&make));
        for _ in 0..3 {
            growing.between_trials(|line| said.borrow_mut().push(line.to_string()));
        }
        assert!(matches!(said.into_inner().as_slice(), [line] if line.ends_with("the disk is full")));
    }
}
