//! Fuzzing of the log: reading must return what happened, or fail because the file is no log.
//! Cuts are judged by the log.

use super::*;
use crate::rig::{Cut, Granularity, Loss, Survivors};
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn any_bytes_are_a_log_that_can_be_cut_anywhere_or_none() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    synconce_fuzz::target("log", 3_000, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(log) = Log::open(&path) else { return };
        assert!(log.len() <= bytes.len() / HEADER as usize);
        for at in 0..=log.len() {
            assert!(log.durable(at) <= at && log.durable(at) <= log.durable(at + 1));
        }
        assert!(log.places(0, usize::MAX).all(|place| (1..=log.len()).contains(&place)));
        log.marks().for_each(|(place, name)| assert!(log.mark(name) <= Some(place)));
        for (number, event) in log.events().iter().enumerate() {
            let (EventKind::Write { offset, length, .. } | EventKind::Discard { offset, length }) =
                event.what
            else {
                continue;
            };
            let cut = Cut::at(number).survivors(Survivors::Share { seed: 7, share: 0.5 });
            let cut = cut.granularity(Granularity::Sector);
            let mut loss = Loss::default();
            cut.surviving(number, offset..offset + length, &mut loss);
            assert_eq!(loss.kept_bytes + loss.lost_bytes, length);
        }
    });
}

#[derive(Debug, Arbitrary)]
enum LogAct {
    Write(u32, Vec<u8>),
    Discard(u64, u32),
    Failed(u64, u32),
    Begin,
    End(u8, bool),
    Mark(String),
}

#[test]
fn every_log_reads_as_it_was_recorded() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    synconce_fuzz::values("logs", 1_000, |acts: Vec<LogAct>| {
        let mut recorder = Recorder::create(&path).unwrap();
        let (mut begins, mut wanted) = (Vec::new(), Vec::new());
        for act in acts {
            wanted.push(match act {
                LogAct::Write(offset, data) => {
                    recorder.write(offset.into(), &data).unwrap();
                    format!("write {} at {offset}", data.len())
                }
                LogAct::Discard(offset, length) => {
                    let offset = offset >> 1;
                    recorder.discard(offset, length.into()).unwrap();
                    format!("discard {length} at {offset}")
                }
                LogAct::Failed(offset, length) => {
                    let offset = offset >> 1;
                    recorder.failed(offset, length.into()).unwrap();
                    format!("failed {length} at {offset}")
                }
                LogAct::End(which, done) if !begins.is_empty() => {
                    let begin = begins[usize::from(which) % begins.len()];
                    let end = if done { FlushEnd::Done } else { FlushEnd::Failed };
                    recorder.flush_end(begin, end).unwrap();
                    format!("flush {begin} {}", if done { "ends" } else { "fails" })
                }
                LogAct::Begin | LogAct::End(..) => {
                    begins.push(recorder.flush_begin().unwrap());
                    "flush begins".to_owned()
                }
                LogAct::Mark(name) => {
                    recorder.mark(&name).unwrap();
                    format!("mark {name}")
                }
            });
        }
        let log = Log::open(&path).unwrap();
        let found: Vec<String> = log.events().iter().map(|event| event.what.to_string()).collect();
        assert_eq!(found, wanted);
    });
}
