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

    /// Returns the message that `kind` chooses. Each of [`Parts::messages`] can be chosen.
    fn message(&self) -> Message {
        let mut all = self.messages();
        let chosen = usize::from(self.kind) % all.len();
        all.swap_remove(chosen)
    }

    fn messages(&self) -> Vec<Message> {
        let (number, dirty) = (self.number, self.long);
        let own = [
            Message::Started { pid: number.cast_unsigned() },
            Message::Marked { path: self.paths().pop().map(Into::into) },
            Message::Stopped(number),
            Message::Ended(Ending::Exited(number)),
            Message::Ended(Ending::Killed(number)),
            Message::Progress { waiting: self.paths(), dirty },
        ];
        let notices = self.notices().into_iter().map(Message::Notice);
        let failed = self.errors().into_iter().map(Message::Failed);
        let real = self.errors().into_iter().map(|it| Message::Notice(Notice::RealSyncs(it)));
        let ends = self.errors().into_iter().map(Some).chain([None]);
        let ends = ends.map(|error| Message::Done(Box::new(self.summary(error))));
        own.into_iter().chain(notices).chain(failed).chain(real).chain(ends).collect()
    }

    fn notices(&self) -> Vec<Notice> {
        let (places, has_ended) = (self.paths(), self.number > 0);
        vec![
            Notice::ForeignListener,
            Notice::NoPrivilegesGained(self.path()),
            Notice::PrivilegedProgramOpened(self.path()),
            Notice::OwnFilter(OwnFilter::Tracer, self.text()),
            Notice::SealedSurvivors(self.texts()),
            Notice::Survivors(self.texts()),
            Notice::UnsyncedDescriptors(self.texts()),
            Notice::UnfinishedCalls(self.texts()),
            Notice::MarkerInMemory(self.path()),
            Notice::MarkerDiskWaits { places, has_ended },
            Notice::CommitStandsStill(self.paths()),
            Notice::FuseNotCommitted(self.paths()),
            Notice::IoUringPassed,
            Notice::UnseenPassed,
            Notice::EarlierInterrupted,
            Notice::CheckpointFailed(self.report()),
        ]
    }

    fn errors(&self) -> Vec<RunError> {
        let act = || FailedAct { act: self.text(), path: self.path(), errno: self.number };
        vec![
            RunError::SetUp(self.text(), self.number),
            RunError::Exec { command: self.text(), errno: self.number },
            RunError::MarkerUnwritable(act()),
            RunError::RootUnwritable(act()),
            RunError::Marker(act()),
            RunError::RootMarker(act()),
            RunError::Clear(act()),
        ]
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

    fn summary(&self, error: Option<RunError>) -> Summary {
        let mut summary = Summary {
            commit: Some(self.report()),
            error,
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
