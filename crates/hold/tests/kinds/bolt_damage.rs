//! Damaged databases: what bbolt reports is reported, and what is reported beyond that is one
//! of the named problems.

use crate::go::Bbolt;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_hold::bolt::{Problem, check};
use synconce_testkit::harness::Place;

const CASES: usize = 2_400;
/// Larger databases only make the test slow.
const LARGEST: usize = 1 << 20;
/// The length of the header of a page, and of an element.
const HEADER: usize = 16;

/// A database and an older state of it.
struct Sample {
    path: PathBuf,
    page: usize,
    now: Vec<u8>,
    old: Option<Vec<u8>>,
}

impl Sample {
    fn read(path: &Path) -> Option<Self> {
        let now = fs::read(path).expect("a database");
        let page = u32::from_ne_bytes(now[24..28].try_into().expect("4 bytes")) as usize;
        let old = fs::read(path.with_extension("db.old")).ok();
        let is_wanted = path.extension().is_some_and(|name| name == "db") && now.len() <= LARGEST;
        is_wanted.then_some(Self { path: path.to_owned(), page, now, old })
    }

    /// Returns the database after a random damage.
    fn damaged(&self, random: &mut Rng) -> Vec<u8> {
        let (page, mut bytes) = (self.page, self.now.clone());
        let pages = bytes.len() / page;
        let pick = |random: &mut Rng| random.usize(..pages) * page;
        let (one, two) = (pick(random), pick(random));
        match random.u8(..10) {
            0 => flip(&mut bytes, random),
            // Where headers and elements are.
            1 | 2 => flip(&mut bytes[one..one + HEADER], random),
            3 => flip(&mut bytes[one + HEADER..one + 16 * HEADER], random),
            4 => bytes[one + random.usize(..page)..][..1].fill(random.u8(..)),
            5 => bytes[one..one + page].fill(0),
            6 => bytes.copy_within(one..one + page, two),
            7 => {
                let first = bytes[one..one + page].to_vec();
                bytes.copy_within(two..two + page, one);
                bytes[two..two + page].copy_from_slice(&first);
            }
            8 => bytes.truncate(random.usize(..bytes.len())),
            _ => self.lose_writes(&mut bytes, random),
        }
        // Almost no change of a meta page has the right checksum.
        if random.bool() {
            mend(&mut bytes, 0);
            mend(&mut bytes, page);
        }
        bytes
    }

    /// Makes some pages those of the older state, as a crash without syncs does.
    fn lose_writes(&self, bytes: &mut [u8], random: &mut Rng) {
        let Some(old) = &self.old else { return flip(bytes, random) };
        let share = random.u8(1..100);
        for (new, old) in bytes.chunks_exact_mut(self.page).zip(old.chunks_exact(self.page)) {
            if random.u8(..100) < share {
                new.copy_from_slice(old);
            }
        }
    }
}

fn flip(bytes: &mut [u8], random: &mut Rng) {
    let at = random.usize(..bytes.len());
    bytes[at] ^= 1 << random.u8(..8);
}

/// Writes the right checksum into the meta page at `at`: FNV-1a of the 56 bytes before.
fn mend(bytes: &mut [u8], at: usize) {
    let Some(meta) = bytes.get_mut(at + HEADER..at + HEADER + 64) else { return };
    let sum = meta[..56].iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    });
    meta[56..].copy_from_slice(&sum.to_ne_bytes());
}

/// Whether bbolt's check may find no error where this problem is: see `Problem`.
fn is_stricter(problem: Problem) -> bool {
    matches!(
        problem,
        Problem::Unsummed
            | Problem::Short(_)
            | Problem::Id(_)
            | Problem::Flags(_)
            | Problem::Overflow(_)
            | Problem::Elements
            | Problem::Inline
            | Problem::Data(_)
            | Problem::ElementFlags(..)
            | Problem::BucketValue(_)
            | Problem::EmptyKey(_)
            | Problem::LongKey(..)
            | Problem::Order(_)
            | Problem::BelowParent
            | Problem::AboveParent
            | Problem::FreeRange(_)
            | Problem::FreeUsed
    )
}

/// Takes long: bbolt itself is built, and checks each of the damaged databases.
pub fn what_bbolt_reports_is_damage(place: &Place) {
    let bbolt = Bbolt::new(place);
    let samples: Vec<_> = bbolt.databases().iter().filter_map(|path| Sample::read(path)).collect();
    let mut random = Rng::with_seed(0xB017);
    let mut stricter = BTreeMap::<String, usize>::new();
    let (mut agreed, mut whole) = (0, 0);
    let (mut missed, mut unexplained) = (Vec::new(), Vec::new());
    let path = place.path("damaged");
    for case in 0..CASES {
        let sample = &samples[case % samples.len()];
        let name = sample.path.display();
        fs::write(&path, sample.damaged(&mut random)).expect("a file");
        let accepted = bbolt.accepts(&path);
        match check(&path).expect("a readable file") {
            Ok(_) if accepted => whole += 1,
            Ok(summary) => missed.push(format!("case {case}: {name}: {summary:?}")),
            Err(_) if !accepted => agreed += 1,
            Err(damage) => {
                if !is_stricter(damage.problem) {
                    unexplained.push(format!("case {case}: {name}: {damage}"));
                }
                let words = format!("{:?}", damage.problem);
                let kind = words.split('(').next().unwrap_or_default();
                *stricter.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }
    println!(
        "{CASES} cases: {agreed} damaged for both, {whole} whole for both; only we: {stricter:?}"
    );
    assert!(missed.is_empty(), "bbolt alone finds an error: {missed:#?}");
    assert!(unexplained.is_empty(), "only we find damage: {unexplained:#?}");
    assert!(agreed > CASES / 4 && whole > CASES / 20, "{agreed} damaged, {whole} whole");
}
