//! Reads dockerd's records of a container: only they distinguish the classic builder's
//! containers from others, and only they contain labels.
//!
//! `<data-root>/containers/<ID>/{hostconfig,config.v2}.json` are written before a container
//! starts (dockerd 20.10 to 28). A container's `config.json` is the same for `docker run` and
//! a step of a classic build.

use crate::bundle::{Facts, folded};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// dockerd's records of one container.
#[derive(Debug)]
pub(crate) struct Records {
    host: HostConfig,
    container: DockerContainer,
    directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    log_config: LogConfig,
    binds: Option<Vec<String>>,
    mounts: Option<Vec<Value>>,
    volumes_from: Option<Vec<String>>,
    port_bindings: Option<HashMap<String, Value>>,
    devices: Option<Vec<Value>>,
    /// The docker command always sets this list, even if it is empty.
    dns: Option<Vec<String>>,
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
struct DockerContainer {
    config: Config,
    image: String,
    /// Volumes, including those that the image declares.
    mount_points: Option<HashMap<String, Value>>,
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

impl Records {
    /// Finds the records of container `id` by the files that dockerd mounts into it. Returns
    /// `None` when there are none, or when another user owns them.
    pub(crate) fn find(facts: &Facts, id: &str) -> Option<Self> {
        let files = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
        files.iter().filter_map(|file| facts.source(file)).find_map(|source| {
            // With --network container:OTHER the files are those of the other container.
            let containers = source.parent()?.parent()?;
            (containers.file_name()? == "containers").then(|| Self::read(&containers.join(id)))?
        })
    }

    fn read(directory: &Path) -> Option<Self> {
        let owner = directory.metadata().ok()?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return None;
        }
        let parse = |name: &str| std::fs::read(directory.join(name)).ok();
        Some(Self {
            host: serde_json::from_slice(&parse("hostconfig.json")?).ok()?,
            container: serde_json::from_slice(&parse("config.v2.json")?).ok()?,
            directory: directory.to_owned(),
        })
    }

    /// Returns whether the container is a step of the classic builder. The builder starts a step by
    /// an image's id, without a log, a health check or an entry point, and without anything of
    /// the host (builder/dockerfile of dockerd). The docker command cannot request all of
    /// that. A client of dockerd's API can, so a build must be under way. Such a container has no
    /// volume.
    pub(crate) fn is_classic_build(&self) -> bool {
        self.is_made_as_by_builder() && self.is_building()
    }

    fn is_made_as_by_builder(&self) -> bool {
        let (host, config) = (&self.host, &self.container.config);
        let empty = [
            host.binds.as_ref().is_none_or(Vec::is_empty),
            host.mounts.as_ref().is_none_or(Vec::is_empty),
            host.volumes_from.as_ref().is_none_or(Vec::is_empty),
            host.port_bindings.as_ref().is_none_or(HashMap::is_empty),
            host.devices.as_ref().is_none_or(Vec::is_empty),
            config.entrypoint.as_ref().is_none_or(Vec::is_empty),
            self.container.mount_points.as_ref().is_none_or(HashMap::is_empty),
            host.dns.is_none(),
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

    /// Returns whether dockerd's classic builder works: it has the context of each build under way
    /// in `<data-root>/tmp/docker-builder<NUMBER>` (builder/remotecontext/archive.go).
    fn is_building(&self) -> bool {
        let tmp = self.directory.ancestors().nth(2).map(|root| root.join("tmp"));
        let entries = tmp.and_then(|tmp| std::fs::read_dir(tmp).ok());
        entries
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("docker-builder"))
    }

    /// Returns the id of the container's image.
    pub(crate) fn image_id(&self) -> &str {
        &self.container.image
    }

    /// Returns the value of a label, set by the container or by its image.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.container.config.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of a label that the container has and its image lacks: an image's
    /// author must not decide about the durability of its users' data.
    pub(crate) fn own_label(&self, key: &str) -> Option<&str> {
        let value = self.label(key)?;
        (!brings(&self.image()?, key)?).then_some(value)
    }

    /// Returns the image's configuration, for any storage driver. containerd's image store has
    /// it elsewhere, and then the result is `None`.
    fn image(&self) -> Option<Value> {
        let root = self.directory.parent()?.parent()?;
        let (kind, digest) = self.container.image.split_once(':')?;
        let drivers = std::fs::read_dir(root.join("image")).ok()?;
        drivers.flatten().find_map(|driver| {
            let path = driver.path().join("imagedb/content").join(kind).join(digest);
            serde_json::from_slice(&std::fs::read(path).ok()?).ok()
        })
    }
}

/// Returns whether an image's configuration has a label, or `None` when the section for labels
/// is missing. dockerd ignores the case of keys.
fn brings(image: &Value, label: &str) -> Option<bool> {
    let sections: Vec<_> = fields(image, "config").collect();
    let mut labels = sections.iter().flat_map(|section| fields(section, "labels"));
    (!sections.is_empty()).then(|| labels.any(|labels| labels.get(label).is_some()))
}

fn fields<'a>(object: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let named = object.as_object().into_iter().flatten();
    named.filter(move |(key, _)| folded(key) == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::BundleMount;
    use serde_json::json;

    const ID: &str = "3f4e";

    /// Makes a data root with one container, whose files `change` edits.
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
        std::fs::create_dir_all(root.path().join("tmp/docker-builder3")).unwrap();
        root
    }

    fn found(root: &tempfile::TempDir) -> Option<Records> {
        let source = Some(root.path().join("containers/3f4e/hosts"));
        let mount =
            BundleMount { destination: "/etc/hosts".into(), source, ..BundleMount::default() };
        Records::find(&Facts { mounts: vec![mount], ..Facts::default() }, ID)
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
    fn what_keeps_data_or_serves_clients_is_no_step_of_a_build() {
        let hosts: [(&str, Value); 9] = [
            ("Dns", json!([])),
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
    fn a_container_with_a_volume_is_no_step_of_a_build() {
        let volume = json!({"/var/lib/db": {"Name": "ab"}});
        assert!(!is_build(|_, container| container["MountPoints"] = volume));
    }

    #[test]
    fn without_a_build_under_way_a_container_is_no_step() {
        let root = root(|_, _, _| ());
        let is_step = || found(&root).unwrap().is_classic_build();
        assert!(is_step());
        let tmp = root.path().join("tmp");
        std::fs::rename(tmp.join("docker-builder3"), tmp.join("GetImageBlob12")).unwrap();
        assert!(!is_step());
        std::fs::remove_dir_all(tmp).unwrap();
        assert!(!is_step());
    }

    #[test]
    fn an_image_brings_a_label_in_whatever_capitals() {
        let image = |text: &str| brings(&serde_json::from_str(text).unwrap(), "l");
        for text in [
            r#"{"config":{"Labels":{"l":"true"}}}"#,
            r#"{"Config":{"LABELS":{"l":"true"}}}"#,
            r#"{"config":{},"CONFIG":{"label\u017f":{"l":"true"}}}"#,
        ] {
            assert_eq!(image(text), Some(true), "{text}");
        }
        assert_eq!(image(r#"{"config":{"Labels":null}}"#), Some(false));
        assert_eq!(image("{}"), None, "who knows");
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
