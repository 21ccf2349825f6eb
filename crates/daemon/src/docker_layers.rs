//! Layers of dockerd's overlay2 driver that nothing refers to.
//!
//! BuildKit in dockerd keeps its snapshots in the driver's directory, and the references to
//! them in databases of its own. After these databases are set aside, dockerd never finds or
//! removes the snapshots. What dockerd itself refers to is in its layer database, a directory
//! of small files; all else is unreferenced.
//!
//! If anything in that database cannot be understood, no layer counts as unreferenced.

mod daemon;
mod layer_db;

use self::layer_db::LayerDb;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use synconce_sys::reason;

/// The storage driver whose layers can be found, and the name of its directory.
const DRIVER: &str = "overlay2";
/// The directory with a link of a short name to each layer's content.
const LINKS: &str = "l";

/// Why it is not known which layers are unreferenced. No layer may be removed then.
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

/// Layers that nothing refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unreferenced {
    /// The number of layers.
    pub layers: usize,
    /// The directories of the layers, the links that lead to them, and the entries of the
    /// layer database that only BuildKit referred to.
    pub paths: Vec<PathBuf>,
}

/// Returns the unreferenced layers of the dockerd whose data directory is `root`. Reads only.
///
/// # Errors
/// dockerd uses another driver; it runs, or a layer is mounted; BuildKit's databases are still
/// there; or something cannot be read or understood. In words for the operator.
pub fn unreferenced(root: &Path) -> Result<Unreferenced, Unsure> {
    let root = root.canonicalize().at("cannot look at", root)?;
    check_driver(&root)?;
    daemon::check_stopped(&root)?;
    check_no_databases(&root.join("buildkit"))?;
    let layers = root.join(DRIVER);
    let ids = ids(&layers)?;
    let links = links(&layers.join(LINKS))?;
    let (mut referenced, entries) = LayerDb::read(&root, DRIVER)?.references();
    add_lower(&layers, &ids, &links, &mut referenced)?;
    let left: BTreeSet<_> = ids.difference(&referenced).collect();
    let directories = left.iter().map(|id| layers.join(id));
    let links = links.iter().filter(|(_, id)| left.contains(id));
    let links = links.map(|(name, _)| layers.join(LINKS).join(name));
    let paths = directories.chain(links).chain(entries).collect();
    Ok(Unreferenced { layers: left.len(), paths })
}

fn check_driver(root: &Path) -> Result<(), Unsure> {
    if root.join(DRIVER).is_dir() {
        return Ok(());
    }
    let others = names(&root.join("image")).unwrap_or_default();
    let others: Vec<_> = others.iter().map(|name| name.to_string_lossy()).collect();
    let others = match others.is_empty() {
        true => "another storage driver".to_owned(),
        false => format!("the storage driver {}", others.join(", ")),
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

/// Returns the names of the layers' directories.
fn ids(layers: &Path) -> Result<BTreeSet<OsString>, Unsure> {
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(layers).at("cannot read", layers)? {
        let entry = entry.at("cannot read", layers)?;
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type().at("cannot look at", &entry.path())?;
        if kind.is_dir() && !is_hidden && name != LINKS {
            ids.insert(name);
        }
    }
    Ok(ids)
}

/// Returns the layer to which each link leads, by the name of the link.
fn links(directory: &Path) -> Result<BTreeMap<OsString, OsString>, Unsure> {
    let mut links = BTreeMap::new();
    for name in names(directory).at("cannot read", directory)? {
        let path = directory.join(&name);
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let target = fs::read_link(&path).at("cannot read", &path)?;
        let parts: Vec<_> = target.components().collect();
        match parts[..] {
            [Component::ParentDir, Component::Normal(id), Component::Normal(last)]
                if last == "diff" =>
            {
                links.insert(name, id.to_owned());
            }
            _ => return unsure(&path, format_args!("it leads to {}", target.display())),
        }
    }
    Ok(links)
}

/// Adds the layers below those in `referenced`, by the driver's own list: a layer of an image
/// may be over a layer that only BuildKit knew by name.
fn add_lower(
    layers: &Path,
    ids: &BTreeSet<OsString>,
    links: &BTreeMap<OsString, OsString>,
    referenced: &mut BTreeSet<OsString>,
) -> Result<(), Unsure> {
    let mut open: Vec<_> = referenced.iter().cloned().collect();
    while let Some(id) = open.pop() {
        if !ids.contains(&id) {
            continue;
        }
        let path = layers.join(&id).join("lower");
        let text = match fs::read_to_string(&path) {
            // The lowest layer has no list.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text.at("cannot read", &path)?,
        };
        for link in text.trim_end().split(':') {
            let name = link.strip_prefix("l/").map(OsStr::new);
            let Some(lower) = name.and_then(|name| links.get(name)) else {
                return unsure(&path, format_args!("no layer is at {link:?}"));
            };
            if referenced.insert(lower.clone()) {
                open.push(lower.clone());
            }
        }
    }
    Ok(())
}
