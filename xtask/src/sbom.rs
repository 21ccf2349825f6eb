//! The SBOM of the shipped binaries, in CycloneDX 1.5. The same `Cargo.lock` makes the same text:
//! it has neither a time nor a serial number nor a path.

use crate::metadata::{metadata, shipped};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

/// Returns the SBOM of a target as JSON.
pub fn make(target: &str) -> Result<String, Box<dyn Error>> {
    let metadata = metadata(target)?;
    let shipped = shipped(target)?;
    let sums = checksums()?;
    let list = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let list = list.iter().filter(|package| shipped.contains(&label(package)));
    let mut list: Vec<&Value> = list.collect();
    list.sort_by_key(|package| label(package));
    let urls: HashMap<&str, String> =
        list.iter().filter_map(|package| Some((package["id"].as_str()?, url(package)))).collect();
    let is_ours = |package: &&&Value| package["name"] == "synconce";
    let ours = list.iter().find(is_ours).ok_or("there is no package synconce")?;
    let libraries = list.iter().filter(|package| !is_ours(package));
    let libraries: Vec<_> = libraries.map(|one| component(one, "library", &sums)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or("cargo metadata has no graph")?;
    let mut graph: Vec<_> = nodes.iter().filter_map(|node| depends_on(node, &urls)).collect();
    graph.sort_by_key(|node| node["ref"].to_string());
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(ours, "application", &sums)},
        "components": libraries,
        "dependencies": graph,
    });
    Ok(serde_json::to_string_pretty(&bom)?)
}

/// Returns `NAME vVERSION`, as `cargo tree` writes it.
fn label(package: &Value) -> String {
    format!("{} v{}", text(package, "name"), text(package, "version"))
}

fn url(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

fn component(package: &Value, kind: &str, sums: &HashMap<String, String>) -> Value {
    // Cargo accepts the slash of old manifests; SPDX does not.
    let licence = text(package, "license").replace('/', " OR ");
    let mut component = json!({
        "type": kind,
        "bom-ref": url(package),
        "name": package["name"],
        "version": package["version"],
        "purl": url(package),
        "licenses": [{"expression": licence}],
    });
    if let Some(sum) = sums.get(&label(package)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// Returns the dependencies of `node` that are shipped, if the node itself is shipped.
fn depends_on(node: &Value, urls: &HashMap<&str, String>) -> Option<Value> {
    let name = urls.get(node["id"].as_str()?)?;
    let is_normal = |kinds: &Value| {
        kinds.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let all = node["deps"].as_array()?.iter().filter(|one| is_normal(&one["dep_kinds"]));
    let mut all: Vec<_> = all.filter_map(|one| urls.get(one["pkg"].as_str()?)).collect();
    all.sort();
    Some(json!({"ref": name, "dependsOn": all}))
}

/// Returns the checksums in `Cargo.lock`, by label.
fn checksums() -> Result<HashMap<String, String>, Box<dyn Error>> {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.lock");
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(lock)?)?;
    let packages = lock["package"].as_array().ok_or("Cargo.lock names no packages")?;
    let sums = packages.iter().filter_map(|one| {
        let label = format!("{} v{}", one["name"].as_str()?, one["version"].as_str()?);
        Some((label, one.get("checksum")?.as_str()?.to_owned()))
    });
    Ok(sums.collect())
}
