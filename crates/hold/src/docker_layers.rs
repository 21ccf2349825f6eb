//! Layers of dockerd's overlay2 driver that nothing refers to, or that a crash damaged.
//!
//! BuildKit in dockerd keeps its snapshots in the driver's directory, and the references to them in
//! databases of its own. After these databases are set aside, dockerd never finds or removes the
//! snapshots. dockerd's own references are in its layer database, a directory of small files. A
//! layer without a reference there is unreferenced.
//!
//! dockerd syncs the files of a layer's entry in that database, and the configuration of an image,
//! but not the layer's directory. After a crash dockerd 20.10 to 28 lists an image whose layer is
//! gone, cannot run it, and does not pull it again, because its configuration is there. So the
//! image is set aside with its layers.
//!
//! If anything in that database cannot be understood, no layer is unreferenced or damaged.

mod daemon;
mod damage;
mod driver;
mod images;
mod layer_db;

use self::damage::Damage;
use self::driver::Driver;
use self::layer_db::LayerDb;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// The storage driver whose layers can be found, and the name of its directory.
const DRIVER: &str = "overlay2";

/// Why it is not known which layers are unreferenced or damaged. None may be removed then.
#[derive(Debug)]
pub struct Unsure(String);

impl fmt::Display for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsure {}

/// Adds the path to the error of a call.
trait At<T> {
    fn at(self, act: &str, path: &Path) -> Result<T, Unsure>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, act: &str, path: &Path) -> Result<T, Unsure> {
        let unsure = |error| Unsure(format!("{act} {}: {}", path.display(), reason(&error)));
        self.map_err(unsure)
    }
}

fn unsure<T>(path: &Path, problem: impl fmt::Display) -> Result<T, Unsure> {
    Err(Unsure(format!("cannot understand {}: {problem}", path.display())))
}

/// What dockerd can no longer use, or no longer refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The number of layers to which nothing refers, without the damaged ones.
    pub unreferenced: usize,
    /// The number of layers of images that are damaged, or above a damaged one.
    pub damaged: usize,
    /// The names of the images that have a damaged layer, sorted, as far as they have names.
    pub images: Vec<String>,
    /// The ids of containers that are over a damaged layer, shortened as dockerd does. Their
    /// layers are left, because their data are not in any image. If there are such containers,
    /// only damaged layers and those above count as unreferenced.
    pub containers: Vec<String>,
    /// The directories of the layers, the links that lead to them, their entries in the layer
    /// database, and the images that have a damaged layer.
    pub paths: Vec<PathBuf>,
}

/// Returns the unreferenced and the damaged layers of the dockerd whose data directory is
/// `root`. Reads only.
///
/// # Errors
/// dockerd uses another driver; it runs, or a layer is mounted; BuildKit's databases are still
/// there; or something cannot be read or understood. In words for the operator.
pub fn find(root: &Path) -> Result<Orphans, Unsure> {
    let root = root.canonicalize().at("cannot look at", root)?;
    check_driver(&root)?;
    daemon::check_stopped(&root)?;
    check_no_databases(&root.join("buildkit"))?;
    let driver = Driver::read(root.join(DRIVER))?;
    let mut db = LayerDb::read(&root, DRIVER)?;
    let Damage { lost, images, containers } = Damage::find(&db, &driver)?;
    // So nothing refers to the damaged layers and to those above them.
    db.images.retain(|image| !images.contains(&image.path));
    let (mut referenced, mut rest) = db.references();
    if containers.is_empty() {
        driver.add_lower(&mut referenced)?;
    } else {
        // Any layer may be below one whose list is damaged.
        rest.retain(|top| db.stack(top).any(|chain| lost.contains(chain)));
        let known = db.ids_of(rest.iter().copied());
        referenced.extend(driver.ids.difference(&known).cloned());
    }
    let damaged = db.ids_of(lost.iter().map(String::as_str));
    let unreferenced: BTreeSet<_> = driver.ids.difference(&referenced).cloned().collect();
    // The directory of a damaged layer may be gone, but not the link that leads there.
    let left = unreferenced.union(&damaged).filter(|id| !referenced.contains(*id));
    let mut paths = driver.paths(&left.cloned().collect());
    paths.extend(rest.iter().filter_map(|chain| Some(db.layers.get(*chain)?.entry.clone())));
    let directory = root.join("image").join(DRIVER);
    paths.extend(images::files(&directory, &images)?);
    Ok(Orphans {
        unreferenced: unreferenced.difference(&damaged).count(),
        damaged: lost.len(),
        images: images::names(&directory, &images),
        containers,
        paths,
    })
}

fn check_driver(root: &Path) -> Result<(), Unsure> {
    if root.join(DRIVER).is_dir() {
        return Ok(());
    }
    let others = names(&root.join("image")).unwrap_or_default();
    let others: Vec<_> = others.iter().map(|name| name.to_string_lossy()).collect();
    let others = if others.is_empty() {
        "another storage driver".to_owned()
    } else {
        format!("the storage driver {}", others.join(", "))
    };
    let root = root.display();
    Err(Unsure(format!("dockerd in {root} uses {others}: only layers of {DRIVER} can be found")))
}

/// Refuses while BuildKit has a database: it refers to layers that dockerd does not know.
fn check_no_databases(buildkit: &Path) -> Result<(), Unsure> {
    let names = match names(buildkit) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        names => names.at("cannot read", buildkit)?,
    };
    match names.iter().find(|name| Path::new(name).extension() == Some(OsStr::new("db"))) {
        None => Ok(()),
        Some(name) => {
            let path = buildkit.join(name);
            Err(Unsure(format!("{} may refer to any layer", path.display())))
        }
    }
}

fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}
