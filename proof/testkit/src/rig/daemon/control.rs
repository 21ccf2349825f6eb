//! The control socket: one line per request, one line per response.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::store::BareDisk;
use super::{DaemonState, Transfers};
use crate::rig::protocol::{DiskRequest, Response, VERSION};
use crate::rig::{Cut, Fault, Limits, Requests, Stats, disk};

pub(super) fn serve(listener: &UnixListener, shared: &Arc<DaemonState>) {
    for stream in listener.incoming().flatten() {
        // A client that disconnects in the middle of a request does not affect the disk.
        let _ = converse(&stream, shared);
    }
}

fn converse(stream: &UnixStream, shared: &Arc<DaemonState>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let response = match serde_json::from_str(&line) {
        Ok(request) => shared.obey(request),
        Err(error) => {
            Response::Refused(format!("the daemon does not understand {line:?}: {error}"))
        }
    };
    let mut stream = stream;
    stream.write_all(format!("{}\n", serde_json::to_string(&response)?).as_bytes())
}

impl DaemonState {
    fn obey(self: &Arc<Self>, request: DiskRequest) -> Response {
        match request {
            DiskRequest::Mark(name) => return self.mark(&name),
            DiskRequest::Cut(cut) => return self.cut(&cut),
            DiskRequest::Settle => self.settle(),
            DiskRequest::Hello => {
                return Response::Hello { version: VERSION, passthrough: self.bypassed() };
            }
            DiskRequest::Stats => return Response::Stats(self.stats()),
            DiskRequest::Fail(fault) if self.bypassed() && fault.requests != Requests::Flushes => {
                return refuse("writes bypass the daemon: set the rig up without passthrough");
            }
            DiskRequest::Fail(fault) => self.fail(fault),
            DiskRequest::Recover(requests) => {
                self.faults.end(requests);
                self.faults.release();
            }
            DiskRequest::SetLimits(limits) if self.bypassed() && limits != Limits::NONE => {
                return refuse("data bypasses the daemon: set the rig up without passthrough");
            }
            DiskRequest::SetLimits(limits) => self.pace.set(limits),
            DiskRequest::SetLatency(latency) => self.flushes.set_latency(latency),
            DiskRequest::StallFlushes(stall) => self.flushes.stall(stall),
        }
        Response::Done
    }

    fn fail(self: &Arc<Self>, fault: Fault) {
        let hangs_for = fault.lasting.filter(|_| fault.hangs);
        self.faults.add(fault);
        // A fault with a time limit has no other thread that would end its hanging requests.
        if let Some(time) = hangs_for {
            let shared = self.clone();
            thread::spawn(move || {
                thread::sleep(time);
                shared.faults.release();
            });
        }
    }

    fn settle(&self) {
        if let BareDisk::Replayed(disk) = &self.store {
            disk.settle();
        }
    }

    fn mark(&self, name: &str) -> Response {
        let Some(mut log) = self.store.log() else {
            return refuse("the rig was set up without recording");
        };
        match log.mark(name).map(usize::try_from) {
            Ok(place) => Response::Place(place.unwrap_or(usize::MAX)),
            Err(error) => Response::Refused(format!("cannot write the mark: {error}")),
        }
    }

    fn cut(&self, cut: &Cut) -> Response {
        let BareDisk::Replayed(disk) = &self.store else {
            return refuse("only a replay can be cut");
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
            planned_flush_nanos: counts.planned,
            hanging: self.faults.hanging(),
            transfers: (!self.bypassed()).then(|| self.transfers.read(self.pace.planned())),
        }
    }
}

impl Transfers {
    fn read(&self, planned: Duration) -> disk::Transfers {
        disk::Transfers {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            planned_nanos: u64::try_from(planned.as_nanos()).unwrap_or(u64::MAX),
            failed_reads: self.failed_reads.load(Relaxed),
            failed_writes: self.failed_writes.load(Relaxed),
        }
    }
}

fn refuse(reason: &str) -> Response {
    Response::Refused(reason.to_owned())
}
