//! How fast dockerd loads an image, as by `docker load`: an image of one layer, which is removed.

use crate::engine::DockerApi;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::{Observer, check};
use crate::place::{ExaminedPlace, Space};
use crate::upload::Upload;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::{self, BufWriter, Read, Write};
use std::time::{Duration, Instant};
use synconce_probe::architecture::architecture_of_images;
use synconce_sys::reason;
use tar::{Builder, Header};

/// Bytes of the only file of the layer. They are random, so that no file system compresses them.
const FILE: usize = 64 << 20;
/// Bytes of a block of an archive.
const BLOCK: u64 = 512;
/// Bytes of zeros at the end of an archive.
const END: u64 = 2 * BLOCK;
/// Bytes of the layer: the header of the file, the file, and the end.
const LAYER: u64 = BLOCK + FILE as u64 + END;
/// Bytes that are sent at once.
const PART: usize = 1 << 20;
/// The time for sending the image.
const TIME: Duration = Duration::from_secs(10);
const WHAT: &str = "load of an image";

/// A load of an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Bytes of its layer, which is not compressed.
    pub bytes: u64,
    /// The bytes divided by the time until dockerd had the image.
    pub bytes_per_second: f64,
}

/// Lets dockerd load an image, and removes the image. The layers are at `place`. Returns `None`
/// where dockerd loads none, and adds why.
///
/// # Errors
/// A signal has arrived.
pub(crate) fn measure(
    api: &DockerApi,
    place: &ExaminedPlace,
    observer: &mut dyn Observer,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<Load>, Error> {
    // dockerd keeps the archive until it has the layer.
    let written = 2 * FILE as u64;
    if place.space_for(written) != Space::Enough {
        let why = "the file system has too little free space for its layer";
        not_measured.push(NotMeasured::new(WHAT, why));
        return Ok(None);
    }
    observer.will_write(written, &place.path);
    observer.begins(WHAT);
    let observer = &*observer;
    let image = LoadedImage::random();
    let loaded = image.and_then(|image| {
        let loaded = load(api, &image, observer);
        let removed = remove(api, &image.name);
        removed.and(loaded)
    });
    check(observer)?;
    Ok(loaded.map_err(|error| not_measured.push(NotMeasured::new(WHAT, reason(&error)))).ok())
}

/// Lets dockerd load `image`. If the image is not sent whole, dockerd removes what it has of the
/// image.
fn load(api: &DockerApi, image: &LoadedImage, observer: &dyn Observer) -> io::Result<Load> {
    let (began, length) = (Instant::now(), image.length());
    let headers = format!("Content-Type: application/x-tar\r\nContent-Length: {length}\r\n");
    let is_interrupted = || observer.interrupted().is_some();
    let request = "POST /images/load?quiet=1 HTTP/1.0";
    let mut upload = Upload::start(&api.socket, request, &headers, TIME, is_interrupted)?;
    if let Err(error) = image.write(BufWriter::with_capacity(PART, &mut upload)) {
        return Err(upload.cut(error));
    }
    let answer = upload.answer().map_err(|error| {
        let later = format!("then type `docker image rm {}`", image.name);
        io::Error::new(error.kind(), format!("{}; {later}", reason(&error)))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    if answer.status != 200 || !answer.text.contains(&image.name) {
        return Err(io::Error::other("dockerd refuses the image"));
    }
    Ok(Load { bytes: LAYER, bytes_per_second: LAYER as f64 / seconds })
}

/// Removes the image `name`, if dockerd has it.
fn remove(api: &DockerApi, name: &str) -> io::Result<()> {
    let request = format!("DELETE /images/{name}?force=1 HTTP/1.0");
    let answer =
        Upload::start(&api.socket, &request, "", TIME, || false).and_then(Upload::answer)?;
    match answer.status {
        200 | 404 => Ok(()),
        status => {
            let why = format!("dockerd answers {status} to `docker image rm {name}`");
            Err(io::Error::other(why))
        }
    }
}

/// An image of one layer, in the format of `docker save`. Only the file of the layer is in memory,
/// and not the archives around it.
struct LoadedImage {
    name: String,
    config: String,
    manifest: String,
    /// The header of the file.
    header: Header,
    file: Vec<u8>,
}

impl LoadedImage {
    fn random() -> io::Result<Self> {
        let name = format!("synconce-doctor:{:016x}", fastrand::u64(..));
        let mut file = vec![0; FILE];
        fastrand::fill(&mut file);
        let mut header = header(FILE as u64);
        header.set_path("random")?;
        header.set_cksum();
        let hash = Sha256::new().chain_update(header.as_bytes()).chain_update(&file);
        let digest = hash.chain_update([0; END as usize]).finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = json!({
            "architecture": architecture_of_images(), "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let manifest =
            json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
        let [config, manifest] = [config, manifest].map(|value| value.to_string());
        Ok(Self { name, config, manifest, header, file })
    }

    /// Returns the length of the archive.
    fn length(&self) -> u64 {
        let texts = [&self.config, &self.manifest].map(|text| text.len() as u64);
        let entry = |length: u64| BLOCK + length.next_multiple_of(BLOCK);
        texts.map(entry).iter().sum::<u64>() + entry(LAYER) + END
    }

    /// Writes the archive.
    fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for (path, text) in [("manifest.json", &self.manifest), ("config.json", &self.config)] {
            archive.append_data(&mut header(text.len() as u64), path, text.as_bytes())?;
        }
        let layer = self.header.as_bytes().chain(&*self.file).chain(io::repeat(0).take(END));
        archive.append_data(&mut header(LAYER), "layer.tar", layer)?;
        archive.into_inner()?.flush()
    }
}

/// Returns the header of a file of so many `bytes`, without a name.
fn header(bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(bytes);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::SilentObserver;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::channel;

    /// Answers requests by `answers`. Returns the outcome of a measurement with `available` bytes,
    /// and the first lines of the requests.
    fn measured(
        answers: &'static [&'static str],
        available: u64,
        signal: Option<i32>,
    ) -> (Result<Option<Load>, Error>, Vec<String>, Vec<NotMeasured>) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (first, name) = request(&mut stream);
                sender.send(first).unwrap();
                if *answer == LOADED {
                    std::thread::sleep(DELAY);
                }
                let _ = stream.write_all(answer.replace("NAME", &name).as_bytes());
            }
        });
        let api = DockerApi { socket, root: directory.path().to_owned() };
        let place = crate::place::look(directory.path()).unwrap();
        let place = ExaminedPlace { size: 1 << 40, available, available_files: None, ..place };
        let mut why = Vec::new();
        let load = measure(&api, &place, &mut SilentObserver(signal), &mut why);
        (load, requests.iter().collect(), why)
    }

    /// Reads a request to the end of its body. Returns its first line, and the name of the image in
    /// it.
    fn request(stream: &mut UnixStream) -> (String, String) {
        let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            let count = stream.read(&mut part).unwrap();
            bytes.extend_from_slice(&part[..count]);
            let head = bytes.windows(4).position(|it| it == b"\r\n\r\n");
            let Some(head) = head else { continue };
            let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
            let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length = length.map_or(0, |it| it.parse::<usize>().unwrap());
            if count == 0 || bytes.len() >= head + 4 + length {
                let at = bytes.windows(PREFIX.len()).position(|it| it == PREFIX.as_bytes());
                let name = at.map_or(&[][..], |at| &bytes[at..][..PREFIX.len() + 16]);
                let first = text.lines().next().unwrap().to_owned();
                return (first, String::from_utf8_lossy(name).into_owned());
            }
        }
    }

    const PREFIX: &str = "synconce-doctor:";
    const DELAY: Duration = Duration::from_millis(300);
    /// Is sent after [`DELAY`].
    const LOADED: &str = "HTTP/1.0 200 OK\r\n\r\n{\"stream\": \"Loaded image: NAME\"}";
    const REFUSED: &str = "HTTP/1.0 200 OK\r\n\r\n{\"error\": \"no\"}";
    const GONE: &str = "HTTP/1.0 404 Not Found\r\n\r\n";

    #[test]
    fn a_disk_that_a_load_could_fill_is_left_alone() {
        let (load, requests, why) = measured(&[], 200 << 20, None);
        assert_eq!((load.unwrap(), requests.len()), (None, 0));
        assert!(why[0].why.contains("too little free space"), "{why:?}");
    }

    #[test]
    fn the_rate_is_that_until_dockerd_has_the_image() {
        let began = Instant::now();
        let (load, requests, why) = measured(&[LOADED, GONE], 1 << 40, None);
        let Load { bytes, bytes_per_second } = load.unwrap().unwrap_or_else(|| panic!("{why:?}"));
        assert_eq!(bytes, LAYER);
        assert!(bytes_per_second <= bytes as f64 / DELAY.as_secs_f64(), "{bytes_per_second}");
        assert!(bytes_per_second >= bytes as f64 / began.elapsed().as_secs_f64());
        assert!(requests[1].starts_with("DELETE /images/synconce-doctor:"), "{requests:?}");
    }

    #[test]
    fn an_image_that_is_refused_has_no_rate_and_is_removed_all_the_same() {
        let (load, requests, why) = measured(&[REFUSED, GONE], 1 << 40, None);
        assert_eq!(load.unwrap(), None);
        assert_eq!(why[0].why, "dockerd refuses the image");
        assert!(requests[1].starts_with("DELETE /images/synconce-doctor:"), "{requests:?}");
    }

    #[test]
    fn an_image_that_stays_is_named() {
        let (_, _, why) = measured(&[GONE, "HTTP/1.0 409 Conflict\r\n\r\n"], 1 << 40, None);
        let wanted = "dockerd answers 409 to `docker image rm synconce-doctor:";
        assert!(why[0].why.starts_with(wanted), "{why:?}");
    }

    #[test]
    fn a_signal_ends_the_load_and_the_image_is_removed() {
        let (load, requests, _) = measured(&["", GONE], 1 << 40, Some(2));
        assert!(matches!(load, Err(Error::Interrupted(2))), "{load:?}");
        assert!(requests[1].starts_with("DELETE /images/synconce-doctor:"), "{requests:?}");
    }
}
