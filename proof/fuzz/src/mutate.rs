//! Inputs that resemble kept ones, because most purely random inputs are rejected at once.

use fastrand::Rng;

/// Maximum length, the same as libFuzzer's default.
const LONGEST: usize = 4096;

/// Numbers near which code often has boundary cases.
const EDGES: [u64; 10] = [
    0,
    1,
    7,
    0xFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Returns an input that mixes the `kept` ones and random bytes.
pub(crate) fn mutated(kept: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut input = match random.choice(kept) {
        Some(kept) if random.u8(..) < 200 => kept.clone(),
        _ => {
            let longest = [16, 256, LONGEST][random.usize(..3)];
            let length = random.usize(..longest);
            bytes(random, length)
        }
    };
    for _ in 0..random.usize(1..8) {
        edit(&mut input, kept, random);
    }
    input.truncate(LONGEST);
    input
}

fn edit(input: &mut Vec<u8>, kept: &[Vec<u8>], random: &mut Rng) {
    let start = random.usize(..=input.len());
    let end = start + random.usize(..=(input.len() - start).min(32));
    let new = match random.u8(..8) {
        0 => Vec::new(),
        1 => input[start..end].repeat(random.usize(1..4)),
        2 => EDGES[random.usize(..EDGES.len())].to_le_bytes().to_vec(),
        3 => EDGES[random.usize(..EDGES.len())].to_string().into_bytes(),
        4 => random.choice(kept).map(|other| piece(other, random)).unwrap_or_default(),
        5 => input[start..end].iter().map(|byte| byte ^ (1 << random.u8(..8))).collect(),
        6 => input[start..end].iter().rev().copied().collect(),
        _ => bytes(random, end - start),
    };
    input.splice(start..end, new);
}

fn piece(of: &[u8], random: &mut Rng) -> Vec<u8> {
    let start = random.usize(..=of.len());
    of[start..start + random.usize(..=of.len() - start)].to_vec()
}

fn bytes(random: &mut Rng, length: usize) -> Vec<u8> {
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}
