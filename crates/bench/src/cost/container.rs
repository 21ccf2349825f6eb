//! Measures what `synconce-oci` adds to the start of a container, with `true` as the runtime.
//! One container is a BuildKit step, whose profile is changed; the other is an ordinary
//! container, whose bundle is only read.

use crate::scenario::{Need, Promise, Variant};
use crate::{Error, files};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use syscalls::Sysno;

/// An id with the form and length of BuildKit's ids.
const ID: &str = "b0a1c2d3e4f5g6h7i8j9k0l1m";
/// Number of entries in an ordinary environment and mount table.
const MOUNTS: usize = 12;

/// The ABIs of a profile on this machine.
const ARCHITECTURES: &[&str] = if cfg!(target_arch = "aarch64") {
    &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]
} else {
    &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
};

/// The variants: name, program, and directory of the bundle.
const STARTS: [(&str, &str, &str); 3] = [
    ("bare", "/bin/true", "executor"),
    ("build-step", "{containers}/synconce-oci", "executor"),
    ("ordinary", "{containers}/synconce-oci", "shim"),
];

/// Returns all variants of the group.
pub(super) fn variants(synconce: &Path) -> Vec<Variant> {
    let variant = |(name, program, dir): (&str, &str, &str)| {
        let log = format!("{{containers}}/{dir}/runc-log.json");
        let bundle = format!("{{containers}}/{dir}/{ID}");
        // Keeps these steps out of the counts of the machine, which `synconce status` shows.
        let words = ["env", "SYNCONCE_OCI_FILE={containers}/oci.toml"];
        let words = words.into_iter().chain(["SYNCONCE_RUNTIME_DIR={containers}/run", program]);
        let words = words.chain(["--log", &log, "--log-format", "json", "run", "--bundle"]);
        Variant {
            about: format!("start of a container, {name}"),
            promise: Promise::Nothing,
            against: "container/bare".to_owned(),
            needs: vec![Need::new(&synconce.display().to_string(), "synconce")],
            ..Variant::new(&format!("container/{name}"), words.chain([bundle.as_str(), ID]))
        }
    };
    STARTS.map(variant).to_vec()
}

/// Makes both bundles anew, because the wrapper changes one of them.
pub(super) fn make_bundles(containers: &Path, synconce: &Path) -> Result<(), Error> {
    for dir in ["executor", "shim"] {
        let bundle = containers.join(dir).join(ID);
        fs::create_dir_all(bundle.join("rootfs")).map_err(Error::io("create", &bundle))?;
        files::write(bundle.join("config.json"), config().to_string())?;
    }
    files::write(containers.join("oci.toml"), "runtime = \"/bin/true\"\n")?;
    let link = containers.join("synconce-oci");
    if !link.exists() {
        symlink(synconce, &link).map_err(Error::io("link", &link))?;
    }
    Ok(())
}

/// Returns a configuration as large as those of engines. Most of it is the seccomp profile,
/// which allows nearly every call by name.
fn config() -> Value {
    let names: Vec<&str> = Sysno::iter().map(|call| call.name()).collect();
    // Read-only, as BuildKit's: a step that can write to data of the host is not held.
    let mount = |number| json!({"destination": format!("/mnt/{number}"), "type": "bind", "source": "/etc/hosts", "options": ["rbind", "ro"]});
    let rule = |name: &str, value: u64| {
        let args = [json!({"index": 0, "value": value, "op": "SCMP_CMP_EQ"})];
        json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": args})
    };
    json!({
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh", "-c", "true"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "hostname": "buildkitsandbox",
        "mounts": (0..MOUNTS).map(mount).collect::<Vec<_>>(),
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}], "seccomp": {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ARCHITECTURES,
            "syscalls": [
                {"names": names, "action": "SCMP_ACT_ALLOW"},
                rule("personality", 0),
                rule("personality", 8),
                rule("socket", 40),
            ],
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_writes_to_no_data_that_outlive_it_so_it_is_held() {
        let mounts = config()["mounts"].as_array().cloned().unwrap();
        assert_eq!(mounts.len(), MOUNTS);
        for mount in mounts {
            assert!(mount["options"].as_array().is_some_and(|it| it.contains(&"ro".into())));
        }
    }
}
