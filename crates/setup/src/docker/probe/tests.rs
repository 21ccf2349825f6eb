//! Tests of the probe containers in dockerd.

use super::removal::STAYS;
use super::*;
use crate::probe::requests::Removed;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

#[test]
fn a_build_that_failed_by_its_sync_was_not_held() {
    let status = "{\"id\":\"moby.buildkit.trace\",\"aux\":\"CkR\"}\n";
    let failed = |error: &str| format!("{status}{{\"error\":\"{error}\"}}\n");
    assert_eq!(is_held(status), Ok(true));
    assert_eq!(is_held(&failed("executor failed running [/probe 7]: exit code: 9")), Ok(false));
    assert_eq!(is_held(&failed("'/probe' returned a non-zero code: 9")), Ok(false));
    let other = is_held(&failed("no space left on device")).unwrap_err();
    assert_eq!(other, "cannot build an image: no space left on device");
}

#[test]
fn the_store_of_containerd_is_known() {
    let pair = r#"["driver-type","io.containerd.snapshotter.v1"]"#;
    assert!(stores_in_containerd(&format!(r#"{{"DriverStatus":[{pair}]}}"#)));
    assert!(!stores_in_containerd(r#"{"DriverStatus":[["Backing Filesystem","extfs"]]}"#));
    assert!(!stores_in_containerd(r#"{"Driver":"vfs","DriverStatus":null}"#));
}

/// A word of a request; the status and the body of the answer.
type Answer = (&'static str, u16, &'static str);

/// Returns what `probe` of a fake dockerd returns, and the requests. The dockerd answers a request
/// with the first of `answers` whose word is in the request, or with 404. An answer whose word
/// another answer has, too, is given once.
fn asked<'a, T>(
    answers: &'static [Answer],
    is_cancelled: &'a dyn Fn() -> bool,
    probe: impl FnOnce(&DockerProbe<'a>) -> T,
) -> (T, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (mut answers, mut requests) = (answers.to_vec(), Vec::new());
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut read = [0; 4096];
            let length = stream.read(&mut read).unwrap();
            if length == 0 {
                break;
            }
            let request = String::from_utf8_lossy(&read[..length]).into_owned();
            let request = request.lines().next().unwrap().replace(" HTTP/1.0", "");
            let at = answers.iter().position(|(word, ..)| request.contains(word));
            let (word, status, body) = at.map_or(("", 404, "{}"), |at| answers[at]);
            if answers.iter().filter(|(other, ..)| *other == word).count() > 1 {
                answers.remove(at.unwrap());
            }
            requests.push(request);
            // After a cancellation nothing reads it.
            let _ = write!(stream, "HTTP/1.0 {status} X\r\n\r\n{body}");
        }
        requests
    });
    let name = "00c0ffee00c0ffee".to_owned();
    let (socket_of_probe, requests) = (socket.clone(), Requests::new(is_cancelled));
    let store = ImageStore::OfDockerd;
    let made = DockerProbe { socket: socket_of_probe, name, begin: now(), requests, store };
    let returned = probe(&made);
    drop(UnixStream::connect(&socket).unwrap());
    (returned, server.join().unwrap())
}

const VERSION: Answer = ("GET /version", 200, r#"{"ApiVersion":"1.60"}"#);
const EMPTY: &str = r#"{"BuildCache":null}"#;
const STEP: &str = r#"{"BuildCache":[{"ID":"ab12","Description":"exec 00c0ffee00c0ffee"}]}"#;
const PRUNE: &str = "POST /build/prune?all=1&filters=%7B%22id%22%3A%5B%22ab12%22%5D%7D";
const DF: &str = "GET /v1.51/system/df?type=build-cache";

#[test]
fn everything_is_removed_and_what_is_not_there_is_not_left() {
    let (left, requests) = asked(&[VERSION, (DF, 200, EMPTY)], &|| false, DockerProbe::remove);
    assert_eq!(left, Removed::default());
    let things = [
        "DELETE /containers/synconce-check-00c0ffee00c0ffee?force=1&v=1",
        "DELETE /images/synconce-check:00c0ffee00c0ffee-step",
        "DELETE /images/synconce-check:00c0ffee00c0ffee",
        "GET /version",
        DF,
    ];
    assert_eq!(requests, things);
}

#[test]
fn each_failed_removal_is_named_with_a_command() {
    const BUSY: &str = r#"{"message":"it is in use"}"#;
    const ANSWERS: &[Answer] = &[
        VERSION,
        ("/containers/", 500, BUSY),
        ("-step", 204, ""),
        ("/images/", 409, BUSY),
        ("/system/df", 200, STEP),
        (PRUNE, 500, BUSY),
    ];
    let (Removed { left, .. }, requests) = asked(ANSWERS, &|| false, DockerProbe::remove);
    assert_eq!(requests.len(), 6, "{requests:?}");
    let ends = [
        "docker rm --force synconce-check-00c0ffee00c0ffee",
        "docker image rm synconce-check:00c0ffee00c0ffee",
        "docker builder prune --all --filter id=ab12",
    ];
    assert_eq!(left.len(), ends.len(), "{left:?}");
    for (left, end) in left.iter().zip(ends) {
        assert!(left.ends_with(&format!(": it is in use; remove it: {end}")), "{left}");
    }
    let answers = &[VERSION, ("/system/df", 200, "{}")];
    let (Removed { left, .. }, _) = asked(answers, &|| false, DockerProbe::remove);
    assert!(left[0].contains("df?type=build-cache lists no build cache: missing"), "{left:?}");
    assert!(left[0].ends_with(STAYS) && left.len() == 1, "{left:?}");
}

#[test]
fn after_a_signal_nothing_more_is_made_and_everything_is_removed() {
    let (imported, requests) = asked(&[], &|| true, DockerProbe::import);
    assert_eq!((imported, requests.len()), (Err("interrupted by a signal".to_owned()), 0));
    let (_, requests) = asked(&[VERSION], &|| true, DockerProbe::remove);
    assert_eq!(requests.len(), 5, "{requests:?}");
}

/// Returns what is left by a probe whose import of an image was cut, and the requests.
fn cut(answers: &'static [Answer]) -> (Vec<String>, Vec<String>) {
    let looks = Cell::new(0);
    // The signal arrives after the request is sent.
    let is_cancelled = || looks.replace(looks.get() + 1) > 0;
    asked(answers, &is_cancelled, |probe| {
        assert_eq!(probe.import().unwrap_err(), cut_by_signal(&probe.socket));
        probe.remove().left
    })
}

fn cut_by_signal(socket: &Path) -> String {
    format!("cannot ask {}: interrupted by a signal", socket.display())
}

#[test]
fn what_a_cut_request_makes_later_is_removed() {
    const IMAGE: &str = "DELETE /images/synconce-check:00c0ffee00c0ffee";
    const ANSWERS: &[Answer] =
        &[VERSION, (DF, 200, EMPTY), ("-step", 404, "{}"), (IMAGE, 404, "{}"), (IMAGE, 200, "[]")];
    let (left, requests) = cut(ANSWERS);
    assert_eq!(left, [""; 0]);
    let removals = |name: &str| requests.iter().filter(|it| it.ends_with(name)).count();
    assert_eq!((removals(":00c0ffee00c0ffee"), removals("-step")), (2, 1), "{requests:?}");
}

#[test]
fn what_a_cut_request_may_make_later_is_named() {
    let (left, _) = cut(&[VERSION, (DF, 200, EMPTY)]);
    let image = "synconce-check:00c0ffee00c0ffee";
    let named = format!(
        "dockerd may still make {image}: its request was cut; remove it: docker image rm {image}"
    );
    assert_eq!(left, [named]);
}

#[test]
fn a_record_in_use_is_named() {
    const SKIPPED: &str = r#"{"CachesDeleted":null,"SpaceReclaimed":0}"#;
    const PRUNED: &str = r#"{"CachesDeleted":["ab12"],"SpaceReclaimed":0}"#;
    let remove = |answers| asked(answers, &|| false, DockerProbe::remove).0;
    let removed = remove(&[VERSION, (DF, 200, STEP), (PRUNE, 200, SKIPPED), (PRUNE, 200, PRUNED)]);
    assert_eq!(removed, Removed::default());
    let removed = remove(&[VERSION, (DF, 200, STEP), (PRUNE, 200, SKIPPED)]);
    let named = "the record ab12 of the build cache is in use; \
                 remove it: docker builder prune --all --filter id=ab12";
    assert_eq!(removed, Removed { left: vec![named.to_owned()], notes: Vec::new() });
    // Another prune has removed it.
    let removed = remove(&[VERSION, (DF, 200, STEP), (DF, 200, EMPTY), (PRUNE, 200, SKIPPED)]);
    assert_eq!(removed, Removed::default());
}

#[test]
fn another_build_beside_the_probe_is_no_fault() {
    let record = |id: &str| {
        let time = synconce_durable::record::now();
        let url = "http url http://build-context-ab";
        json!({"ID": id, "Description": url, "Size": 72, "CreatedAt": time})
    };
    let list = json!({"BuildCache": [record("ours"), record("theirs")]}).to_string();
    let answers = vec![VERSION, (DF, 200, &*list.leak())].leak();
    let (Removed { left, notes }, _) = asked(answers, &|| false, |probe| {
        assert_eq!(probe.dockerfile().len(), 72);
        probe.remove()
    });
    assert_eq!((left.len(), notes.len()), (0, 1), "{left:?} {notes:?}");
    assert!(notes[0].starts_with("another build ran beside the probe; "), "{notes:?}");
}
