//! When the power is cut, and which part of the disk's cache is then on the medium.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which of the writes survive that no flush has made durable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Survivors {
    /// None: a disk that writes its cache back only when it must.
    None,
    /// All: a disk without a cache.
    All,
    /// Each piece with this probability. The same seed chooses the same pieces at every cut of
    /// a log, so use a different seed for each cut.
    Share {
        /// Seed of the choice.
        seed: u64,
        /// Probability, from 0 to 1.
        share: f64,
    },
}

/// The unit that survives or is lost as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Granularity {
    /// A request, up to 1 MiB: more than any disk guarantees.
    Request,
    /// 4 KiB, the physical sector of today's disks, which is written completely or not at all.
    #[default]
    Block,
    /// 512 bytes. On a disk of 4 KiB sectors this is a torn sector, which no file system here
    /// promises to survive: some superblocks do not.
    Sector,
}

/// A power cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Cut {
    pub(in crate::rig) at: usize,
    pub(in crate::rig) survivors: Survivors,
    pub(in crate::rig) granularity: Granularity,
}

/// The effect of a cut on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Loss {
    /// Number of events before the cut.
    pub at: usize,
    /// Number of them that were durable.
    pub durable: usize,
    /// Pieces of the other events that survived.
    pub kept: u64,
    /// Pieces that were lost.
    pub lost: u64,
    /// Bytes in the pieces that survived.
    pub kept_bytes: u64,
    /// Bytes in the pieces that were lost.
    pub lost_bytes: u64,
}

impl Cut {
    /// Cuts after the first `at` events of the log; nothing survives that is not durable then.
    pub fn at(at: usize) -> Self {
        Self { at, survivors: Survivors::None, granularity: Granularity::default() }
    }

    /// Sets which of the other writes survive; the default is none.
    pub fn survivors(mut self, survivors: Survivors) -> Self {
        self.survivors = survivors;
        self
    }

    /// Sets the unit that survives; the default is 4 KiB.
    pub fn granularity(mut self, granularity: Granularity) -> Self {
        self.granularity = granularity;
        self
    }

    /// Returns the surviving pieces of an event's range, and adds all pieces to the account.
    pub(in crate::rig) fn surviving(
        &self,
        event: usize,
        range: Range<u64>,
        loss: &mut Loss,
    ) -> Vec<Range<u64>> {
        // Seeded by event, so that the fate of an event's pieces does not depend on the events
        // before.
        let mut random = match self.survivors {
            Survivors::Share { seed, .. } => {
                fastrand::Rng::with_seed(seed ^ (event as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            }
            _ => fastrand::Rng::with_seed(0),
        };
        let mut survives = || match self.survivors {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Share { share, .. } => random.f64() < share,
        };
        let mut kept = Vec::new();
        for piece in self.granularity.pieces(range) {
            let bytes = piece.end - piece.start;
            if survives() {
                loss.kept += 1;
                loss.kept_bytes += bytes;
                kept.push(piece);
            } else {
                loss.lost += 1;
                loss.lost_bytes += bytes;
            }
        }
        kept
    }
}

/// Maximum number of pieces of a range, for instance of a discard of the whole disk.
const MOST_PIECES: u64 = 4096;

impl Granularity {
    /// Splits a range at the boundaries of the disk's units, not relative to its own start.
    fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let length = range.end - range.start;
        let grain = match self {
            Self::Request => u64::MAX,
            Self::Block => 4096,
            Self::Sector => 512,
        };
        let many = length / grain > MOST_PIECES;
        let grain = if many { (length / MOST_PIECES).next_multiple_of(4096) } else { grain };
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = at;
            at = (start / grain).saturating_add(1).saturating_mul(grain).min(range.end);
            (start < range.end).then_some(start..at)
        })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, durable, kept, lost, kept_bytes, lost_bytes } = self;
        write!(
            f,
            "cut after event {at}, {durable} durable; of the rest {kept} pieces ({kept_bytes} bytes) \
             survive, {lost} ({lost_bytes} bytes) are lost"
        )
    }
}

impl FromStr for Survivors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = |text: &str| {
            let (seed, share) = text.split_once(':')?;
            let (seed, share) = (seed.parse().ok()?, share.parse().ok()?);
            (0.0..=1.0).contains(&share).then_some(Self::Share { seed, share })
        };
        match text {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            _ => share(text)
                .ok_or_else(|| format!("{text}: say none, all or SEED:SHARE, such as 7:0.5")),
        }
    }
}

impl FromStr for Granularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "request" => Ok(Self::Request),
            "block" | "4096" => Ok(Self::Block),
            "sector" | "512" => Ok(Self::Sector),
            _ => Err(format!("{text}: say request, block (4096) or sector (512)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surviving(cut: Cut, event: usize, range: Range<u64>) -> (Vec<Range<u64>>, Loss) {
        let mut loss = Loss::default();
        (cut.surviving(event, range, &mut loss), loss)
    }

    #[test]
    fn pieces_end_at_the_boundaries_of_the_disk() {
        let pieces = |grain: Granularity| grain.pieces(3584..9000).collect::<Vec<_>>();
        assert_eq!(pieces(Granularity::Request).len(), 1);
        assert_eq!(pieces(Granularity::Block), [3584..4096, 4096..8192, 8192..9000]);
        assert_eq!(pieces(Granularity::Sector).len(), 11);
        assert!(Granularity::Block.pieces(0..1 << 40).count() <= MOST_PIECES as usize + 1);
    }

    #[test]
    fn a_share_is_chosen_by_seed_and_event_alone() {
        let cut = |seed| Cut::at(9).survivors(Survivors::Share { seed, share: 0.5 });
        let (first, loss) = surviving(cut(1), 5, 0..1 << 22);
        assert_eq!(loss.kept + loss.lost, 1024);
        assert!((400..624).contains(&loss.kept), "{loss:?}");
        assert_eq!(surviving(cut(1), 5, 0..1 << 22).0, first);
        assert_ne!(surviving(cut(2), 5, 0..1 << 22).0, first);
        assert_ne!(surviving(cut(1), 6, 0..1 << 22).0, first);
    }

    #[test]
    fn none_loses_all_and_all_loses_none() {
        assert_eq!(surviving(Cut::at(1), 0, 0..8192).1.lost_bytes, 8192);
        let all = Cut::at(1).survivors(Survivors::All);
        assert_eq!(surviving(all, 0, 0..8192).0, [0..4096, 4096..8192]);
    }

    #[test]
    fn survivors_are_parsed_from_their_written_form() {
        assert_eq!("none".parse(), Ok(Survivors::None));
        assert_eq!("7:0.25".parse(), Ok(Survivors::Share { seed: 7, share: 0.25 }));
        assert!("7:2".parse::<Survivors>().is_err());
        assert!("half".parse::<Survivors>().is_err());
        assert_eq!("512".parse(), Ok(Granularity::Sector));
    }
}
