//! The configuration file that an engine reads according to its unit, and units for which it
//! cannot be determined.

use super::support::{RUNTIME, TestSystem, refusal, there_and_back};
use synconce_setup::Engine;

struct UnitCase {
    engine: Engine,
    /// The possible names of the engine's unit.
    units: &'static [&'static str],
    program: &'static str,
    /// The flags that give the engine a file.
    flags: &'static [&'static str],
    /// The file that the engine reads by default.
    usual: &'static str,
}

const KINDS: [UnitCase; 3] = [
    UnitCase {
        engine: Engine::Docker,
        units: &["docker"],
        program: "dockerd",
        flags: &["--config-file"],
        usual: "/etc/docker/daemon.json",
    },
    UnitCase {
        engine: Engine::Buildkit,
        units: &["buildkit", "buildkitd"],
        program: "buildkitd",
        flags: &["--config", "-config"],
        usual: "/etc/buildkit/buildkitd.toml",
    },
    UnitCase {
        engine: Engine::Containerd,
        units: &["containerd"],
        program: "containerd",
        flags: &["--config", "-config", "-c"],
        usual: "/etc/containerd/config.toml",
    },
];

fn tree(unit: &str, command: &str) -> TestSystem {
    let path = format!("/etc/systemd/system/{unit}.service");
    TestSystem::new().with(&path, &format!("[Service]\nExecStart={command}\n"))
}

#[test]
fn the_file_that_a_unit_gives_is_edited_and_not_the_usual_one() {
    for UnitCase { engine, units, program, flags, usual } in KINDS {
        for unit in units {
            for given in flags.iter().flat_map(|flag| ["=", " "].map(|by| format!("{flag}{by}"))) {
                let tree = tree(unit, &format!("/usr/bin/{program} {given}/srv/own"));
                there_and_back(&tree, engine, "");
                tree.set_up(engine, "").unwrap();
                assert!(tree.read("/srv/own").contains(RUNTIME), "{program} {given}");
                assert!(!tree.real(usual).exists(), "{program} {given}");
            }
        }
    }
}

#[test]
fn a_file_whose_path_only_systemd_can_expand_is_refused_with_its_line() {
    for UnitCase { engine, units, program, flags, .. } in KINDS {
        for place in ["own", "$OWN", "/srv/%i", "${OWN}"] {
            let tree = tree(units[0], &format!("/usr/bin/{program} {}={place}", flags[0]));
            let before = tree.snapshot();
            let printed = refusal(tree.set_up(engine, ""));
            let line = format!("{}.service, line 2: gives the configuration as {place},", units[0]);
            assert!(printed.contains(&line), "{printed}");
            assert_eq!(before, tree.snapshot());
        }
    }
}

#[test]
fn a_unit_that_starts_an_engine_by_something_else_is_refused_with_its_line() {
    for UnitCase { engine, units, program, .. } in KINDS {
        for unit in units {
            let tree = tree(unit, &format!("/bin/sh -c \"exec {program} --config /srv/own\""));
            let before = tree.snapshot();
            let printed = refusal(tree.set_up(engine, ""));
            let line = format!("{unit}.service, line 2: starts /bin/sh, not {program} itself");
            assert!(printed.contains(&line), "{printed}");
            assert_eq!(before, tree.snapshot());
        }
    }
}
