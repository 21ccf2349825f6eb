//! The socket: a request a line, an answer a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering::Relaxed;

use super::store::Store;
use super::{Shared, Transfers};
use crate::rig::protocol::{Request, Response, VERSION};
use crate::rig::{Cut, Stats, disk};

pub(super) fn serve(listener: &UnixListener, shared: &Shared) {
    for stream in listener.incoming().flatten() {
        // A client that went away in mid-sentence is no concern of the disk.
        let _ = converse(&stream, shared);
    }
}

fn converse(stream: &UnixStream, shared: &Shared) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let response = match serde_json::from_str(&line) {
        Ok(request) => shared.obey(&request),
        Err(error) => {
            Response::Refused(format!("the daemon does not understand {line:?}: {error}"))
        }
    };
    let mut stream = stream;
    stream.write_all(format!("{}\n", serde_json::to_string(&response)?).as_bytes())
}

impl Shared {
    fn obey(&self, request: &Request) -> Response {
        match *request {
            Request::Mark(ref name) => return self.mark(name),
            Request::Cut(ref cut) => return self.cut(cut),
            Request::Settle => {
                if let Store::Replayed(disk) = &self.store {
                    disk.settle();
                }
            }
            Request::Hello => {
                return Response::Hello { version: VERSION, passthrough: self.bypassed() };
            }
            Request::Stats => return Response::Stats(self.stats()),
            Request::FailWrites(true) if self.bypassed() => {
                return Response::Refused(
                    "writes bypass the daemon: set the rig up without passthrough".into(),
                );
            }
            Request::FailWrites(fail) => self.fail_writes.store(fail, Relaxed),
            Request::SetLatency(latency) => self.flushes.set_time(latency.flush()),
            Request::FailFlushes(count) => self.flushes.fail(count),
            Request::StallFlushes(stall) => self.flushes.stall(stall),
        }
        Response::Done
    }

    fn mark(&self, name: &str) -> Response {
        let Some(mut log) = self.store.log() else {
            return Response::Refused("the rig was set up without recording".into());
        };
        match log.mark(name).map(usize::try_from) {
            Ok(place) => Response::Place(place.unwrap_or(usize::MAX)),
            Err(error) => Response::Refused(format!("cannot write the mark: {error}")),
        }
    }

    fn cut(&self, cut: &Cut) -> Response {
        let Store::Replayed(disk) = &self.store else {
            return Response::Refused("only a replay can be cut".into());
        };
        match disk.cut(cut) {
            Ok(loss) => Response::Cut(loss),
            Err(error) => Response::Refused(error.to_string()),
        }
    }

    fn bypassed(&self) -> bool {
        self.passthrough.get().copied().unwrap_or(false)
    }

    fn stats(&self) -> Stats {
        let (counts, waiting_flushes) = self.flushes.counts();
        Stats {
            flushes: counts.arrived,
            failed_flushes: counts.failed,
            waiting_flushes,
            flush_nanos: counts.nanos,
            transfers: (!self.bypassed()).then(|| self.transfers.read()),
        }
    }
}

impl Transfers {
    fn read(&self) -> disk::Transfers {
        disk::Transfers {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            failed_writes: self.failed_writes.load(Relaxed),
        }
    }
}
