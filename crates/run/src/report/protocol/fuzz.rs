//! Fuzzing of the messages on the socket, including paths of arbitrary bytes.

use super::*;
use crate::report::run_error::FailedAct;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use synconce_fuzz::arbitrary::{self, Arbitrary};

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets")
}

#[test]
fn any_bytes_that_arrive_are_a_message_or_an_error() {
    let (ours, theirs) = sockets();
    synconce_fuzz::target("message", 5_000, |bytes| {
        rustix::net::send(&theirs, bytes, SendFlags::NOSIGNAL).expect("room for one message");
        match receive(&ours) {
            Ok(Some(message)) => {
                serde_json::to_vec(&message).expect("a message that was read");
            }
            Ok(None) => assert!(bytes.is_empty()),
            Err(error) => {
                assert!(error.get_ref().is_some_and(|error| error.is::<serde_json::Error>()));
            }
        }
    });
}

/// The parts of a message.
#[derive(Debug, Arbitrary)]
struct Parts {
    kind: u8,
    number: i32,
    long: u64,
    text: Option<String>,
    paths: Vec<Vec<u8>>,
}

impl Parts {
    fn path(&self) -> PathBuf {
        self.paths().into_iter().next().unwrap_or_default()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.paths.iter().map(|bytes| OsString::from_vec(bytes.clone()).into()).collect()
    }

    fn texts(&self) -> Vec<String> {
        self.paths().iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    fn text(&self) -> String {
        self.text.clone().unwrap_or_default()
    }

    fn message(&self) -> Message {
        let (number, dirty) = (self.number, self.long);
        match self.kind % 23 {
            0 => Message::Started { pid: number.cast_unsigned() },
            15 => Message::Marked { path: self.paths().pop() },
            1 => Message::Stopped(number),
            2 => Message::Ended(Ending::Exited(number)),
            3 => Message::Ended(Ending::Killed(number)),
            4 => Message::Progress { waiting: self.paths(), dirty },
            5 => Message::Notice(Notice::NoPrivilegesGained(self.path())),
            20 => Message::Notice(Notice::PrivilegedProgramOpened(self.path())),
            6 => Message::Notice(Notice::MarkerInMemory(self.path())),
            7 => Message::Notice(Notice::SealedSurvivors(self.texts())),
            19 => Message::Notice(Notice::Survivors(self.texts())),
            8 => Message::Notice(Notice::UnsyncedDescriptors(self.texts())),
            21 => Message::Notice(Notice::CommitStandsStill(self.paths())),
            22 => {
                let (places, has_ended) = (self.paths(), self.number > 0);
                Message::Notice(Notice::MarkerDiskWaits { places, has_ended })
            }
            9 => Message::Notice(Notice::IoUringPassed),
            17 => Message::Notice(Notice::OwnFilter(OwnFilter::Tracer, self.text())),
            12 => Message::Notice(Notice::FuseNotCommitted(self.paths())),
            13 => Message::Notice(Notice::EarlierInterrupted),
            16 => Message::Notice(Notice::CheckpointFailed(self.report())),
            14 => Message::Notice(Notice::UnseenPassed),
            18 => Message::Notice(Notice::RealSyncs(RunError::SetUp(self.text(), number))),
            10 => Message::Failed(RunError::SetUp(self.text(), number)),
            11 => Message::Failed(RunError::Exec { command: self.text(), errno: number }),
            _ => Message::Done(Box::new(self.summary())),
        }
    }

    fn report(&self) -> CommitReport {
        let committed = |mount_point| Committed {
            mount_point,
            type_name: self.text(),
            source: self.text(),
            micros: self.text.is_some().then_some(self.long),
            error: self.text.clone(),
        };
        let file_systems = self.paths().into_iter().map(committed).collect();
        let everything =
            self.text.clone().map(|text| CommittedEverything { micros: None, error: Some(text) });
        CommitReport { micros: self.long, file_systems, everything }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary {
            commit: Some(self.report()),
            error: self.text.clone().map(|act| {
                RunError::Marker(FailedAct { act, path: self.path(), errno: self.number })
            }),
            end: Some(Ending::Exited(self.number)),
            stays: self.kind & 1 != 0,
            ..Summary::default()
        };
        for name in self.texts() {
            summary.accounts.count("fsync", Some(&name), crate::report::accounts::End::Held);
        }
        summary
    }
}

#[test]
fn every_message_arrives_as_it_was_sent() {
    let (ours, theirs) = sockets();
    synconce_fuzz::values("messages", 2_000, |parts: Parts| {
        let message = parts.message();
        send(&theirs, &message).expect("a message that can be sent");
        let found = receive(&ours).expect("a message").expect("a sender");
        let text = |message| serde_json::to_string(message).expect("text");
        assert_eq!(text(&found), text(&message));
    });
}
