//! What dockerd keeps of a container: the only place that tells the classic
//! builder's containers from others, and the only one that has labels.
//!
//! `<data-root>/containers/<ID>/{hostconfig,config.v2}.json` are written before a
//! container starts (dockerd 20.10 to 28). Nothing in a container's
//! `config.json` differs between `docker run` and a step of a classic build.

use crate::bundle::Facts;
use serde::Deserialize;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// dockerd's records of one container.
#[derive(Debug)]
pub struct Records {
    host: HostConfig,
    container: Container,
    directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    log_config: LogConfig,
    binds: Option<Vec<String>>,
    mounts: Option<Vec<serde_json::Value>>,
    volumes_from: Option<Vec<String>>,
    port_bindings: Option<HashMap<String, serde_json::Value>>,
    devices: Option<Vec<serde_json::Value>>,
    privileged: bool,
    auto_remove: bool,
    publish_all_ports: bool,
    restart_policy: RestartPolicy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct LogConfig {
    r#type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RestartPolicy {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Container {
    config: Config,
    image: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    image: String,
    entrypoint: Option<Vec<String>>,
    healthcheck: Option<Healthcheck>,
    labels: Option<HashMap<String, String>>,
    tty: bool,
    open_stdin: bool,
    attach_stdin: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Healthcheck {
    test: Option<Vec<String>>,
}

/// An image's own configuration.
#[derive(Debug, Default, Deserialize)]
struct Image {
    #[serde(default)]
    config: Config,
}

impl Records {
    /// The records of container `id`, found by the files that dockerd mounts into
    /// it; `None` when there are none that only we could have written.
    pub fn find(facts: &Facts, id: &str) -> Option<Self> {
        let files = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
        files.iter().filter_map(|file| facts.mounts.get(Path::new(file))).find_map(|source| {
            // With --network container:OTHER they are the other's.
            let containers = source.parent()?.parent()?;
            (containers.file_name()? == "containers").then(|| Self::read(&containers.join(id)))?
        })
    }

    fn read(directory: &Path) -> Option<Self> {
        let owner = directory.metadata().ok()?.uid();
        let ours = owner == rustix::process::geteuid().as_raw();
        let parse = |name: &str| std::fs::read(directory.join(name)).ok().filter(|_| ours);
        Some(Self {
            host: serde_json::from_slice(&parse("hostconfig.json")?).ok()?,
            container: serde_json::from_slice(&parse("config.v2.json")?).ok()?,
            directory: directory.to_owned(),
        })
    }

    /// Whether the classic builder made it. It starts a step by an image's id,
    /// without a log, a health check or an entry point, and with nothing of the
    /// host (builder/dockerfile of dockerd). Whoever asks for all of that by
    /// `docker run` has a container that keeps nothing either.
    pub fn is_classic_build(&self) -> bool {
        let (host, config) = (&self.host, &self.container.config);
        let empty = [
            host.binds.as_ref().is_none_or(Vec::is_empty),
            host.mounts.as_ref().is_none_or(Vec::is_empty),
            host.volumes_from.as_ref().is_none_or(Vec::is_empty),
            host.port_bindings.as_ref().is_none_or(HashMap::is_empty),
            host.devices.as_ref().is_none_or(Vec::is_empty),
            config.entrypoint.as_ref().is_none_or(Vec::is_empty),
        ];
        let set = [
            host.privileged,
            host.auto_remove,
            host.publish_all_ports,
            config.tty,
            config.open_stdin,
            config.attach_stdin,
        ];
        let unchecked = config.healthcheck.as_ref().and_then(|check| check.test.as_deref());
        host.log_config.r#type == "none"
            && matches!(host.restart_policy.name.as_str(), "" | "no")
            && config.image.starts_with("sha256:")
            && unchecked.is_some_and(|test| test == ["NONE"])
            && empty.iter().all(|empty| *empty)
            && !set.iter().any(|set| *set)
    }

    /// The value of a label that the container has and its image has not: who
    /// makes an image shall not take durability from those who run it.
    pub fn own_label(&self, key: &str) -> Option<&str> {
        let value = self.container.config.labels.as_ref()?.get(key)?;
        let image = self.image()?;
        let brought = image.config.labels.is_some_and(|labels| labels.contains_key(key));
        (!brought).then_some(value)
    }

    /// The image's configuration, of whichever storage driver.
    fn image(&self) -> Option<Image> {
        let root = self.directory.parent()?.parent()?;
        let (kind, digest) = self.container.image.split_once(':')?;
        let drivers = std::fs::read_dir(root.join("image")).ok()?;
        drivers.flatten().find_map(|driver| {
            let path = driver.path().join("imagedb/content").join(kind).join(digest);
            serde_json::from_slice(&std::fs::read(path).ok()?).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ID: &str = "3f4e";

    /// A data root with one container, whose files are changed by `change`.
    fn root(change: impl FnOnce(&mut Value, &mut Value, &mut Value)) -> tempfile::TempDir {
        let mut host = json!({
            "Binds": null, "NetworkMode": "default", "PortBindings": {}, "Privileged": false,
            "LogConfig": {"Type": "none", "Config": {}}, "RestartPolicy": {"Name": "no"},
        });
        let mut container = json!({
            "ID": ID, "Image": "sha256:ab12",
            "Config": {
                "Image": "sha256:ab12", "Cmd": ["/bin/sh", "-c", "true"], "Entrypoint": [],
                "Healthcheck": {"Test": ["NONE"]}, "Tty": false, "Labels": null,
            },
        });
        let mut image = json!({"config": {"Labels": null}});
        change(&mut host, &mut container, &mut image);
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, value: &Value| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        };
        write("containers/3f4e/hostconfig.json", &host);
        write("containers/3f4e/config.v2.json", &container);
        write("image/overlay2/imagedb/content/sha256/ab12", &image);
        root
    }

    fn found(root: &tempfile::TempDir) -> Option<Records> {
        let source = root.path().join("containers/3f4e/hosts");
        let mounts = [("/etc/hosts".into(), source)].into_iter().collect();
        Records::find(&Facts { mounts, ..Facts::default() }, ID)
    }

    fn is_build(change: impl FnOnce(&mut Value, &mut Value)) -> bool {
        let root = root(|host, container, _| change(host, container));
        found(&root).unwrap().is_classic_build()
    }

    #[test]
    fn a_step_of_the_classic_builder_is_known() {
        assert!(is_build(|_, _| ()));
        assert!(
            is_build(|host, _| host["RestartPolicy"] = json!({})),
            "dockerd 20.10 leaves it empty"
        );
    }

    #[test]
    fn whatever_keeps_data_or_serves_somebody_is_no_step_of_a_build() {
        let hosts: [(&str, Value); 8] = [
            ("LogConfig", json!({"Type": "json-file"})),
            ("Binds", json!(["/srv:/srv"])),
            ("Mounts", json!([{"Type": "volume"}])),
            ("VolumesFrom", json!(["other"])),
            ("PortBindings", json!({"5432/tcp": [{}]})),
            ("RestartPolicy", json!({"Name": "always"})),
            ("Privileged", json!(true)),
            ("PublishAllPorts", json!(true)),
        ];
        for (key, value) in hosts {
            assert!(!is_build(|host, _| host[key] = value.clone()), "{key}");
        }
        let configs: [(&str, Value); 4] = [
            ("Image", json!("postgres:15")),
            ("Healthcheck", json!(null)),
            ("Entrypoint", json!(["/entry"])),
            ("OpenStdin", json!(true)),
        ];
        for (key, value) in configs {
            assert!(!is_build(|_, container| container["Config"][key] = value.clone()), "{key}");
        }
    }

    #[test]
    fn a_label_counts_only_where_the_image_does_not_bring_it() {
        let label = json!({"io.synconce.hold": "true"});
        let own = root(|_, container, _| container["Config"]["Labels"] = label.clone());
        assert_eq!(found(&own).unwrap().own_label("io.synconce.hold"), Some("true"));
        let brought = root(|_, container, image| {
            container["Config"]["Labels"] = label.clone();
            image["config"]["Labels"] = label.clone();
        });
        assert_eq!(found(&brought).unwrap().own_label("io.synconce.hold"), None);
        std::fs::remove_dir_all(own.path().join("image")).unwrap();
        assert_eq!(found(&own).unwrap().own_label("io.synconce.hold"), None, "who knows");
    }

    #[test]
    fn without_records_there_is_nothing_to_know() {
        assert!(Records::find(&Facts::default(), ID).is_none());
        let root = root(|_, _, _| ());
        std::fs::write(root.path().join("containers/3f4e/hostconfig.json"), "{").unwrap();
        assert!(found(&root).is_none());
    }
}
