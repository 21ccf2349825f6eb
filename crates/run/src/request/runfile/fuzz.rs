//! Fuzzing of the runtime directory, which may belong to any user.

use super::*;
use synconce_durable::record::{Private, VERSION};
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn a_file_that_no_run_wrote_is_passed_over_and_stays() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("x.json");
    synconce_fuzz::target("runfile", 1_000, |bytes| {
        fs::write(&path, bytes).expect("a file");
        let is_ours = serde_json::from_slice::<PublicContent>(bytes).is_ok();
        assert!(read(&path).is_none(), "no process holds the lock");
        assert_eq!(path.exists(), !is_ours);
    });
}

#[derive(Debug, Arbitrary)]
struct Words(Vec<String>, u8);

#[test]
fn a_run_file_is_read_as_it_was_written() {
    let place = tempfile::tempdir().expect("a directory");
    synconce_fuzz::values("runfiles", 300, |Words(command, phase): Words| {
        let record = RunRecord {
            version: VERSION,
            id: "run".to_owned(),
            private: Some(Private {
                command,
                options: None,
                directory: PathBuf::from("/"),
                root: None,
                root_mount: None,
                in_root: false,
            }),
            started: String::new(),
            boot: String::new(),
            user: 0,
            supervisor: std::process::id(),
            sealed: false,
            file_systems: Vec::new(),
        };
        let mut file = RunFile::create(place.path(), &record).expect("a run file");
        let phases = [Phase::Running, Phase::Committing, Phase::Serving];
        let phase = phases[usize::from(phase) % 3];
        file.enter(phase);
        let public = fs::read_to_string(place.path().join("run.json")).expect("a public part");
        assert!(!public.contains("command"), "{public}");
        let live = read(&place.path().join("run.json")).expect("a living run");
        assert_eq!((live.phase, live.record), (phase, record));
        drop(file);
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    });
}
