//! How many processors this process may use, and work that all of them share.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::{available_parallelism, scope};

/// How many there are for us; 1 where nobody says.
pub fn count() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Does `act` with a piece of `all` on each processor; what it gives is in the order of `all`.
pub fn share<T: Sync, R: Send>(all: &[T], act: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let (act, piece) = (&act, all.len().div_ceil(count()).max(1));
    scope(|scope| {
        let pieces: Vec<_> = all.chunks(piece).map(|of| scope.spawn(move || act(of))).collect();
        pieces.into_iter().flat_map(|of| of.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_comes_back_in_order_and_a_panic_is_passed_on() {
        let twice = |piece: &[usize]| piece.iter().map(|n| 2 * n).collect::<Vec<_>>();
        for n in [0, 1, 2, 3, 1000] {
            let all: Vec<usize> = (0..n).collect();
            assert_eq!(share(&all, twice), twice(&all), "{n}");
        }
        let culprit = |piece: &[usize]| piece.iter().map(|n| 10 / n).collect::<Vec<_>>();
        assert!(std::panic::catch_unwind(|| share(&[1, 2, 0], culprit)).is_err());
    }
}
