//! Checks that every dependency's licence is compatible with Apache-2.0 OR MIT.
//!
//! Advisories are not checked: their database is on no package registry, and the check must
//! run offline.

use crate::metadata::{metadata, platform};
use serde_json::Value;
use spdx::Expression;
use std::error::Error;

/// Permissive licences whose terms a static binary under Apache-2.0 OR MIT can meet.
const ACCEPTED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks the licence expression of every locked package.
pub fn check() -> Result<String, Box<dyn Error>> {
    let metadata = metadata(&platform())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let refused: Vec<String> = packages.iter().filter_map(refusal).collect();
    if refused.is_empty() {
        Ok(format!("{} packages, all under accepted licences", packages.len()))
    } else {
        Err(refused.join("\n").into())
    }
}

/// Returns why a package is rejected.
fn refusal(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    let Some(licence) = package["license"].as_str() else {
        return Some(format!("{name}: names no licence"));
    };
    let Ok(expression) = Expression::parse_mode(licence, spdx::ParseMode::LAX) else {
        return Some(format!("{name}: cannot read the licence {licence}"));
    };
    let accepted =
        expression.evaluate(|requirement| ACCEPTED.contains(&requirement.to_string().as_str()));
    (!accepted).then(|| format!("{name}: {licence} is not accepted"))
}
