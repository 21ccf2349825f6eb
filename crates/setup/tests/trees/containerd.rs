//! containerd: versions of its configuration file, and where the runtime is added.

use super::support::{RUNTIME, TestSystem, refusal, there_and_back};
use synconce_setup::Engine;
use toml_edit::{DocumentMut, Item};

const CONFIG: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/synconce.toml";
const SECOND: &str = "io.containerd.grpc.v1.cri";
const THIRD: &str = "io.containerd.cri.v1.runtime";
const FIRST_SERIES: &str =
    "containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da";
const SECOND_SERIES: &str = "containerd github.com/containerd/containerd/v2 v2.1.3 c787fb98";

fn tree() -> TestSystem {
    TestSystem::new().program("/usr/bin/containerd")
}

fn runtimes(text: &str, plugin: &str) -> Item {
    let document: DocumentMut = text.parse().unwrap();
    document["plugins"][plugin]["containerd"]["runtimes"].clone()
}

fn assert_ours(item: &Item) {
    let ours = &item["synconce"];
    assert_eq!(ours["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
    assert_eq!(ours["options"]["BinaryName"].as_str(), Some(RUNTIME));
    assert_eq!(ours["pod_annotations"][0].as_str(), Some("io.synconce.*"));
}

#[test]
fn a_file_that_is_made_is_of_the_version_that_containerd_reads() {
    for (printed, version, plugin) in
        [(FIRST_SERIES, 2, SECOND), (SECOND_SERIES, 3, THIRD), ("", 2, SECOND)]
    {
        let tree = tree();
        there_and_back(&tree, Engine::Containerd, printed);
        tree.set_up(Engine::Containerd, printed).unwrap();
        let text = tree.read(CONFIG);
        assert_eq!(text.parse::<DocumentMut>().unwrap()["version"].as_integer(), Some(version));
        assert_ours(&runtimes(&text, plugin));
    }
}

#[test]
fn a_set_up_says_which_one_reaches_pods_and_which_builds() {
    let tree = tree();
    let notes = tree.plan(Engine::Containerd, FIRST_SERIES).unwrap().notes.join("\n");
    for command in ["`synconce setup kubernetes`", "`synconce setup buildkit`"] {
        assert!(notes.contains(command), "{notes}");
    }
    tree.set_up(Engine::Containerd, FIRST_SERIES).unwrap();
    let again = tree.plan(Engine::Containerd, FIRST_SERIES).unwrap().notes;
    assert!(again.is_empty(), "nothing is to be done: {again:?}");
}

#[test]
fn a_file_of_version_2_that_names_no_runtime_keeps_runc() {
    let tree = tree().with(CONFIG, "version = 2\n");
    there_and_back(&tree, Engine::Containerd, FIRST_SERIES);
    tree.set_up(Engine::Containerd, FIRST_SERIES).unwrap();
    let found = runtimes(&tree.read(CONFIG), SECOND);
    assert_ours(&found);
    assert_eq!(found["runc"]["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
}

#[test]
fn a_byte_order_mark_stays_and_is_undone() {
    for content in ["\u{feff}version = 2\n", "\u{feff}version = 3\r\n"] {
        let tree = tree().with(CONFIG, content);
        there_and_back(&tree, Engine::Containerd, SECOND_SERIES);
        tree.set_up(Engine::Containerd, SECOND_SERIES).unwrap();
        let text = tree.read(CONFIG);
        assert!(text.starts_with(content), "{text:?}");
        let plugin = if content.contains('3') { THIRD } else { SECOND };
        assert_ours(&runtimes(text.trim_start_matches('\u{feff}'), plugin));
    }
}

#[test]
fn the_driver_of_cgroups_is_runcs() {
    for (version, plugin) in [(2, SECOND), (3, THIRD), (4, THIRD)] {
        for driver in [true, false] {
            let content = format!(
                "version = {version}\n[plugins.'{plugin}'.containerd.runtimes.runc]\n\
                 runtime_type = 'io.containerd.runc.v2'\n\
                 options = {{ SystemdCgroup = {driver} }}\n"
            );
            let tree = tree().with(CONFIG, &content);
            there_and_back(&tree, Engine::Containerd, "");
            tree.set_up(Engine::Containerd, "").unwrap();
            let found = runtimes(&tree.read(CONFIG), plugin);
            assert_ours(&found);
            assert_eq!(found["synconce"]["options"]["SystemdCgroup"].as_bool(), Some(driver));
        }
    }
}

#[test]
fn a_directory_that_is_imported_gets_a_file_of_the_same_version() {
    for import in ["/etc/containerd/conf.d/*.toml", "conf.d/*.toml"] {
        for version in [3, 4] {
            let content = format!("version = {version}\nimports = [\"{import}\"]\n");
            let cgroups = format!(
                "version = {version}\n[plugins.'{THIRD}'.containerd.runtimes.runc.options]\n\
                 SystemdCgroup = true\n"
            );
            let tree =
                tree().with(CONFIG, &content).with("/etc/containerd/conf.d/k.toml", &cgroups);
            there_and_back(&tree, Engine::Containerd, "");
            tree.set_up(Engine::Containerd, "").unwrap();
            assert_eq!(tree.read(CONFIG), content);
            let text = tree.read(DROP_IN);
            let found = runtimes(&text, THIRD);
            assert_ours(&found);
            assert_eq!(found["synconce"]["options"]["SystemdCgroup"].as_bool(), Some(true));
            let wanted = Some(version);
            assert_eq!(text.parse::<DocumentMut>().unwrap()["version"].as_integer(), wanted);
        }
    }
}

#[test]
fn a_file_of_version_2_is_edited_itself_whatever_it_imports() {
    let content = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let tree = tree().with(CONFIG, content).with("/etc/containerd/conf.d/a.toml", "version = 2\n");
    there_and_back(&tree, Engine::Containerd, FIRST_SERIES);
    tree.set_up(Engine::Containerd, FIRST_SERIES).unwrap();
    assert_ours(&runtimes(&tree.read(CONFIG), SECOND));
    assert!(!tree.real(DROP_IN).exists());
}

#[test]
fn what_containerd_would_not_read_is_refused_with_the_line() {
    let cri = format!("version = 2\n\n[plugins.\"{SECOND}\".cni]\nbin_dir = \"/x\"\n");
    for (content, part) in [
        ("disabled_plugins = [\"cri\"]\n", "line 1: disables the plugin cri"),
        ("version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]", "line 2: disables"),
        ("root = \"/x\"\n", "is of version 1"),
        ("root = \"/x\"\nversion = 1\n", "line 2: is of version 1"),
        ("version = 5\n", "line 1: is of a version that is not known"),
        (
            "version = 2\nimports = [\"a.toml\"]\n",
            "a.toml, line 3: has a section of the CRI plugin",
        ),
        ("version = 3\nimports = [\"/etc/*/a.toml\"]\n", "imports /etc/*/a.toml"),
        ("version = 3\nplugins = 1\n", "plugins is no table"),
    ] {
        let tree = tree().with(CONFIG, content).with("/etc/containerd/a.toml", &cri);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(Engine::Containerd, ""));
        assert!(printed.contains(part), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
}

/// containerd 2 takes the later version for the whole configuration, or leaves the file out.
#[test]
fn a_file_of_a_later_version_than_the_one_that_imports_it_is_refused() {
    let content = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let later = format!("# of a GPU\nversion = 3\n[plugins.\"{THIRD}\".containerd]\n");
    let tree = tree().with(CONFIG, content).with("/etc/containerd/conf.d/99-gpu.toml", &later);
    let before = tree.snapshot();
    let printed = refusal(tree.set_up(Engine::Containerd, ""));
    let part =
        "99-gpu.toml, line 2: is of version 3, later than version 2 of the file that imports it";
    assert!(printed.contains(part), "{printed}");
    assert_eq!(before, tree.snapshot());
}

#[test]
fn a_runtime_with_the_name_synconce_is_kept_or_refused() {
    let content = |binary: &str| {
        format!(
            "version = 2\n[plugins.\"{SECOND}\".containerd.runtimes.synconce]\n\
             runtime_type = \"io.containerd.runc.v2\"\noptions.BinaryName = \"{binary}\"\n"
        )
    };
    let kept = tree().with(CONFIG, &content(RUNTIME));
    assert_eq!(kept.set_up(Engine::Containerd, "").unwrap(), 0);
    let other = tree().with(CONFIG, &content("/usr/bin/crun"));
    let printed = refusal(other.set_up(Engine::Containerd, ""));
    assert!(printed.contains("line 2: has a runtime synconce that is not"), "{printed}");
}

#[test]
fn the_new_runtime_has_every_setting_of_runc_but_the_binary() {
    for (version, plugin) in [(2, SECOND), (3, THIRD), (4, THIRD)] {
        let main = format!(
            "version = {version}\n[plugins.'{plugin}'.containerd.runtimes.runc]\n\
             runtime_type = 'io.containerd.runc.v2'\n\
             base_runtime_spec = \"/etc/containerd/base.json\" # ulimits\n\
             privileged_without_host_devices = true\n\
             cni_max_conf_num = 2\n\
             pod_annotations = [\n  \"a.*\", # first\n]\n\
             [plugins.'{plugin}'.containerd.runtimes.runc.options]\n\
             SystemdCgroup = true\nBinaryName = '/usr/bin/crun'\nRoot = '/run/x'\n"
        );
        for content in [main.clone(), main.replace('\n', "\r\n")] {
            let tree = tree().program("/usr/bin/crun").with(CONFIG, &content);
            there_and_back(&tree, Engine::Containerd, "");
            tree.set_up(Engine::Containerd, "").unwrap();
            let found = runtimes(&tree.read(CONFIG), plugin);
            let ours = &found["synconce"];
            assert_eq!(ours["options"]["BinaryName"].as_str(), Some(RUNTIME));
            assert_eq!(ours["options"]["SystemdCgroup"].as_bool(), Some(true));
            assert_eq!(ours["options"]["Root"].as_str(), Some("/run/x"));
            assert_eq!(ours["base_runtime_spec"].as_str(), Some("/etc/containerd/base.json"));
            assert_eq!(ours["privileged_without_host_devices"].as_bool(), Some(true));
            assert_eq!(ours["cni_max_conf_num"].as_integer(), Some(2));
            let annotations = ours["pod_annotations"].as_array().unwrap().iter();
            let texts: Vec<_> = annotations.filter_map(|one| one.as_str()).collect();
            assert_eq!(texts, ["a.*", "io.synconce.*"]);
            assert_eq!(found["runc"]["options"]["BinaryName"].as_str(), Some("/usr/bin/crun"));
        }
    }
}

#[test]
fn settings_of_runc_in_a_later_file_are_copied_into_the_new_file() {
    let table = format!("[plugins.'{THIRD}'.containerd.runtimes.runc]\n");
    let main = format!(
        "version = 3\nimports = ['conf.d/*.toml']\n{table}base_runtime_spec = '/a'\n\
         options = {{ SystemdCgroup = false, NoPivotRoot = true }}\n"
    );
    let later = format!("version = 3\n{table}options.SystemdCgroup = true\n");
    let tree = tree().with(CONFIG, &main).with("/etc/containerd/conf.d/k.toml", &later);
    there_and_back(&tree, Engine::Containerd, "");
    tree.set_up(Engine::Containerd, "").unwrap();
    let found = runtimes(&tree.read(DROP_IN), THIRD);
    assert_ours(&found);
    let ours = &found["synconce"];
    assert_eq!(ours["base_runtime_spec"].as_str(), Some("/a"));
    assert_eq!(ours["options"]["SystemdCgroup"].as_bool(), Some(true));
    assert_eq!(ours["options"]["NoPivotRoot"].as_bool(), Some(true));
}

#[test]
fn a_binary_that_synconce_oci_would_not_execute_is_refused_with_its_line() {
    let content = |binary: &str| {
        format!(
            "version = 2\n[plugins.\"{SECOND}\".containerd.runtimes.runc]\n\
             runtime_type = \"io.containerd.runc.v2\"\noptions.BinaryName = \"{binary}\"\n"
        )
    };
    let with = |binary: &str| tree().program("/usr/sbin/runc").with(CONFIG, &content(binary));
    for fine in ["", "runc", "/usr/sbin/runc"] {
        there_and_back(&with(fine), Engine::Containerd, "");
    }
    for binary in ["/opt/runc/runc", "/usr/bin/crun", "youki"] {
        let tree = with(binary).program("/opt/runc/runc").program("/usr/bin/crun");
        let before = tree.snapshot();
        let error = tree.set_up(Engine::Containerd, "").unwrap_err();
        let printed = error.to_string();
        assert!(printed.contains("config.toml, line 4: has containerd use"), "{printed}");
        assert!(printed.contains("would execute /usr/sbin/runc"), "{printed}");
        let settings = tree.real("/etc/synconce/oci.toml");
        let settings = settings.display();
        let remedy = match binary {
            "youki" => format!("name its path there, and as runtime in {settings}"),
            path => format!("runtime = \"{path}\" in {settings}"),
        };
        assert!(error.remedy().unwrap().contains(&remedy));
        assert_eq!(before, tree.snapshot());
    }
    let chosen = with("/opt/runc/runc").program("/opt/runc/runc");
    let chosen = chosen.with("/etc/synconce/oci.toml", "runtime = \"/opt/runc/runc\"\n");
    there_and_back(&chosen, Engine::Containerd, "");
}
