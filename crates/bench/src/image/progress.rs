//! Parses BuildKit's progress output (`--progress plain`): `#7 [3/3] RUN ...` names a step,
//! and `#7 DONE 43.2s` ends it.

use crate::scenario::SamplePart;
use std::collections::HashMap;

/// Milliseconds per second.
const MS: f64 = 1e3;

/// The parts of a build, in the order of the report.
const PARTS: [&str; 4] = ["load", "copy", "run", "export"];

/// Returns how long the parts of a build took by BuildKit's own clock. Times of steps of one
/// part are added, although some steps run in parallel; steps of no part are left out.
pub(super) fn parts(log: &str) -> Vec<SamplePart> {
    let mut names: HashMap<&str, &'static str> = HashMap::new();
    let mut sums: HashMap<&str, f64> = HashMap::new();
    for line in log.lines() {
        let Some((step, said)) = line.strip_prefix('#').and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        if let Some(seconds) = duration(said) {
            if let Some(part) = names.get(step) {
                *sums.entry(part).or_default() += seconds * MS;
            }
        } else if let Some(part) = part(said) {
            names.entry(step).or_insert(part);
        }
    }
    let found = |name: &&str| Some(SamplePart::new(name, *sums.get(name)?));
    PARTS.iter().filter_map(found).collect()
}

fn duration(said: &str) -> Option<f64> {
    said.strip_prefix("DONE ")?.strip_suffix('s')?.parse().ok()
}

/// Returns the part to which a step belongs, by its title.
fn part(title: &str) -> Option<&'static str> {
    if title.starts_with("exporting ") {
        return Some("export");
    }
    let (stage, instruction) = title.strip_prefix('[')?.split_once("] ")?;
    match instruction.split(' ').next()? {
        "load" if stage == "internal" => Some("load"),
        "COPY" | "ADD" => Some("copy"),
        "RUN" => Some("run"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
#2 [internal] load .dockerignore
#2 transferring context: 2B done
#2 DONE 0.3s

#5 [internal] load build context
#5 transferring context: 11.74MB 0.4s done
#5 DONE 0.8s

#4 [1/3] FROM docker.io/library/default
#4 DONE 0.4s

#6 [2/3] COPY . /src
#6 DONE 0.9s

#7 [3/3] RUN apt-get install
#7 0.500 #9 [1/2] RUN in a step's own words
#7 15.64 DONE 99.0s
#7 DONE 43.2s

#8 exporting to image
#8 exporting layers 2.6s done
#8 DONE 2.7s
";

    #[test]
    fn the_parts_are_told_apart_and_a_steps_own_words_are_not_believed() {
        let parts: Vec<(String, i64)> =
            parts(LOG).into_iter().map(|part| (part.name, part.ms.round() as i64)).collect();
        let expected = [("load", 1100), ("copy", 900), ("run", 43200), ("export", 2700)];
        assert_eq!(parts, expected.map(|(name, ms)| (name.to_owned(), ms)));
    }

    #[test]
    fn a_log_of_another_kind_has_no_parts() {
        assert_eq!(parts("Step 1/2 : FROM x\n#\n# \n#1\n#1 DONE s\n"), []);
    }
}
