//! What sending of a build context costs: by the classic builder of dockerd, and with compression.
//!
//! dockerd gets the beginning of the context as by `docker build`. The Dockerfile copies a file
//! that is not there, so that the build fails after the context has arrived. dockerd makes no image
//! then, and removes the context.

use super::Amount;
use super::archive::{Archive, Chunked, DOCKERFILE, ProgramInput, Timed};
use super::part::{SendingCost, SentContext};
use crate::engine::DockerApi;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::{Observer, check};
use crate::place::{self, Space};
use crate::program::RunningChild;
use crate::units::seconds;
use crate::upload::{Upload, UploadAnswer};
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use synconce_sys::reason;

/// The time for one way.
const TIME: Duration = Duration::from_secs(10);
/// Bytes that are sent at once.
const PART: usize = 64 << 10;
/// The end of a body in chunks (RFC 9112).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// What the classic builder says then.
const FAILED: &str = "COPY failed";

/// What sending of a context costs. All times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sending {
    /// A look at all entries, as BuildKit does before each build.
    pub look: f64,
    /// Reading and archiving alone.
    pub read: SendingCost,
    /// As by the classic builder.
    pub classic: Option<SendingCost>,
    /// As by the classic builder with `--compress`.
    pub compressed: Option<SendingCost>,
    /// What has no figure.
    pub not_measured: Vec<NotMeasured>,
}

type Way = fn(&DockerApi, &SentContext<'_>, &dyn Observer) -> io::Result<SendingCost>;

/// Measures what sending of `context` costs. A look at all of its entries took `look`.
///
/// # Errors
/// A signal has arrived.
pub(super) fn measure(
    api: &DockerApi,
    context: &SentContext<'_>,
    look: Duration,
    observer: &mut dyn Observer,
) -> Result<Sending, Error> {
    let mut not_measured = Vec::new();
    observer.begins("reading of the build context");
    let sink = Timed { until: Instant::now() + TIME, observer: &*observer, inner: io::sink() };
    let read = Archive::write(context, sink).cost(context);
    check(observer)?;
    let written = context.beginning.on_disk();
    let has_space = place::look(&api.root).is_ok_and(|place| {
        let files = 2 * context.beginning.paths.len() as u64;
        place.space_for(written) == Space::Enough
            && place.available_files.is_none_or(|available| available > files)
    });
    if has_space {
        observer.will_write(written, &api.root);
    }
    let mut by = |what: &'static str, way: Way| -> Result<Option<SendingCost>, Error> {
        if !has_space {
            let why = "the file system of dockerd has too little free space";
            not_measured.push(NotMeasured::new(what, why));
            return Ok(None);
        }
        observer.begins(what);
        let sent = way(api, context, &*observer);
        check(observer)?;
        Ok(sent.map_err(|error| not_measured.push(NotMeasured::new(what, reason(&error)))).ok())
    };
    let classic = by("the classic builder", send)?;
    let compressed = by("--compress", send_compressed)?;
    Ok(Sending { look: look.as_secs_f64(), read, classic, compressed, not_measured })
}

/// Sends the context as the classic client does.
fn send(
    api: &DockerApi,
    context: &SentContext<'_>,
    observer: &dyn Observer,
) -> io::Result<SendingCost> {
    let mut upload = start(api, || observer.interrupted().is_some())?;
    let mut archive = Archive::write(context, BufWriter::with_capacity(PART, Chunked(&mut upload)));
    if let Some((error, time)) = archive.error.take() {
        archive.error = Some((upload.cut(error), time));
        return archive.ended_by_time(context);
    }
    upload.write_all(LAST_CHUNK)?;
    is_refused_as_meant(&upload.answer()?)?;
    Ok(archive.cost(context))
}

/// Sends the context through gzip, as the client does with `--compress`.
fn send_compressed(
    api: &DockerApi,
    context: &SentContext<'_>,
    observer: &dyn Observer,
) -> io::Result<SendingCost> {
    let mut command = Command::new("gzip");
    command.arg("--stdout").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut gzip = RunningChild(command.spawn()?);
    let (Some(input), Some(mut output)) = (gzip.0.stdin.take(), gzip.0.stdout.take()) else {
        return Err(ErrorKind::BrokenPipe.into());
    };
    let has_ended = Arc::new(AtomicBool::new(false));
    let is_ended = has_ended.clone();
    let mut upload = start(api, move || is_ended.load(Relaxed))?;
    // Ends when the archive or gzip ends, and when dockerd reads too slowly.
    let sender = thread::spawn(move || {
        let mut chunks = BufWriter::with_capacity(PART, Chunked(&mut upload));
        let copied = io::copy(&mut output, &mut chunks).and_then(|_| chunks.flush());
        drop(chunks);
        match copied.and_then(|()| upload.write_all(LAST_CHUNK)) {
            Ok(()) => upload.answer(),
            Err(error) => Err(upload.cut(error)),
        }
    });
    let inner = ProgramInput::new(input)?;
    let input = Timed { until: Instant::now() + TIME, observer, inner };
    let archive = Archive::write(context, BufWriter::with_capacity(PART, input));
    if archive.error.is_some() {
        // dockerd removes what it has, as after a build.
        has_ended.store(true, Relaxed);
        drop(gzip);
    }
    let answer = sender.join().map_err(|_| io::Error::from(ErrorKind::Other))?;
    let is_closed = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    let has_gzip_ended = archive.error.as_ref().is_some_and(|(error, _)| is_closed(error));
    match answer {
        // gzip ends when dockerd refuses the context.
        Err(refusal) if has_gzip_ended => Err(refusal),
        _ if archive.error.is_some() => archive.ended_by_time(context),
        answer => {
            is_refused_as_meant(&answer?)?;
            Ok(archive.cost(context))
        }
    }
}

/// Begins a build by the classic builder.
fn start<F: Fn() -> bool>(api: &DockerApi, is_interrupted: F) -> io::Result<Upload<F>> {
    let request = format!("POST /build?version=1&nocache=1&dockerfile={DOCKERFILE} HTTP/1.1");
    let headers = "Content-Type: application/x-tar\r\nTransfer-Encoding: chunked\r\n\
                   Connection: close\r\n";
    Upload::start(&api.socket, &request, headers, TIME, is_interrupted)
}

fn is_refused_as_meant(answer: &UploadAnswer) -> io::Result<()> {
    if answer.status == 200 && answer.text.contains(FAILED) {
        return Ok(());
    }
    Err(io::Error::other(format!("dockerd refuses the context with status {}", answer.refusal())))
}

impl Sending {
    /// Returns a name, the time and a remark for each way.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String, &'static str)> {
        let look = "all entries; BuildKit then sends what changed";
        let mut lines =
            vec![("look", seconds(self.look), look), ("read", self.read.shown(), "reading alone")];
        let of =
            |name, cost: &Option<SendingCost>, note| Some((name, cost.as_ref()?.shown(), note));
        lines.extend(of("classic", &self.classic, "the classic builder, which gets the whole"));
        lines.extend(of("--compress", &self.compressed, "the same through gzip"));
        lines
    }

    /// Returns the cheapest way.
    pub(crate) fn cheapest(&self) -> Option<String> {
        let (plain, compressed) = (self.classic?, self.compressed?);
        let of_classic = if compressed.pace() < plain.pace() { "with" } else { "without" };
        Some(format!(
            "BuildKit, if little has changed since the last build; the classic builder \
             {of_classic} --compress"
        ))
    }

    /// Returns how much was sent, if that is not the whole.
    pub(crate) fn bound(&self, whole: &Amount) -> Option<String> {
        let all = [Some(self.read), self.classic, self.compressed];
        let sent = all.into_iter().flatten().map(|cost| cost.sent).min_by_key(Amount::archived)?;
        (sent.entries < whole.entries || sent.bytes < whole.bytes).then(|| {
            format!(
                "the first {} were sent; the whole at the same pace, by bytes and by entries",
                sent.shown()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::part::Beginning;
    use crate::observer::SilentObserver;
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Sends a file of 8 MiB by `way` to a dockerd that does `serve`.
    fn sent(way: Way, serve: fn(UnixStream)) -> io::Result<SendingCost> {
        const LENGTH: u64 = 8 << 20;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let mut bytes = vec![0; LENGTH as usize];
        fastrand::fill(&mut bytes);
        fs::write(root.join("file"), bytes).unwrap();
        let mut beginning = Beginning::default();
        beginning.add("file", LENGTH);
        let whole = Amount { entries: 1, bytes: LENGTH };
        let api = DockerApi { socket: root.join("socket"), root: root.clone() };
        let listener = UnixListener::bind(&api.socket).unwrap();
        let dockerd = thread::spawn(move || serve(listener.accept().unwrap().0));
        let context = SentContext { root: &root, whole, beginning: &beginning };
        let cost = way(&api, &context, &SilentObserver(None));
        dockerd.join().unwrap();
        cost
    }

    #[test]
    fn the_time_ends_with_the_answer_of_dockerd() {
        const DELAY: Duration = Duration::from_millis(300);
        let serve = |mut stream: UnixStream| {
            let (mut bytes, mut part) = (Vec::new(), vec![0; PART]);
            while !bytes.ends_with(LAST_CHUNK) {
                let count = stream.read(&mut part).unwrap();
                bytes.extend_from_slice(&part[..count]);
            }
            thread::sleep(DELAY);
            let answer = format!("HTTP/1.1 200 OK\r\n\r\n{FAILED}");
            stream.write_all(answer.as_bytes()).unwrap();
        };
        for way in [send as Way, send_compressed] {
            let cost = sent(way, serve).unwrap();
            assert!(cost.seconds >= DELAY.as_secs_f64(), "{cost:?}");
        }
    }

    #[test]
    fn a_refusal_of_dockerd_is_said_in_its_words() {
        let serve = |mut stream: UnixStream| {
            let _ = stream.read(&mut [0; 1024]);
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n{\"message\":\"no\"}";
            stream.write_all(answer).unwrap();
        };
        for way in [send as Way, send_compressed] {
            let refused = sent(way, serve).unwrap_err();
            assert_eq!(refused.to_string(), "dockerd answers 400: no");
        }
    }

    const SMALL: Amount = Amount { entries: 10, bytes: 0 };

    #[test]
    fn the_cheaper_way_of_the_classic_builder_is_named() {
        let cost = |seconds| Some(SendingCost::extrapolated(SMALL, seconds, SMALL));
        let sending = |classic, compressed| Sending {
            look: 0.1,
            read: SendingCost::extrapolated(SMALL, 0.1, SMALL),
            classic: cost(classic),
            compressed: cost(compressed),
            not_measured: Vec::new(),
        };
        assert!(sending(1.0, 2.0).cheapest().unwrap().ends_with("builder without --compress"));
        assert!(sending(2.0, 1.0).cheapest().unwrap().ends_with("builder with --compress"));
        assert_eq!(sending(1.0, 2.0).bound(&SMALL), None);
        let bound = sending(1.0, 2.0).bound(&Amount { entries: 11, bytes: 0 }).unwrap();
        assert!(bound.starts_with("the first 0 B in 10 entries were sent;"), "{bound}");
    }
}
