//! Remedies as they are typed.

use super::*;
use std::fs;
use std::process::Command;

/// Runs `line` by sh, with the file of the settings in `directory`.
fn sh(line: &Action, directory: &Path) {
    let Action::Command(line) = line else { panic!("no command: {line:?}") };
    let line = line.replace("/etc/synconce", directory.to_str().unwrap());
    let ended = Command::new("sh").args(["-ec", &line]).status().unwrap();
    assert!(ended.success(), "{line}");
}

#[test]
fn the_remedy_of_copy_ups_is_typed_with_any_file_of_settings() {
    let set_up = Some(SetUp { is_made: true, is_in_force: true, lines: Vec::new() });
    let held = ContainerEngine { set_up, ..engine("overlay2") };
    let (found, _) = of_measured(&held, &slow_layers());
    let place = tempfile::tempdir().unwrap();
    let (directory, file) = (place.path().join("synconce"), place.path().join("synconce/oci.toml"));
    let rule = "[[rule]]\nimage = \"*\"\n";
    let older = format!("step-root = \"as-mounted\"\n{rule}");
    let indented = format!("\t \"step-root\" = \"as-mounted\"\n{rule}");
    let literal = format!("'step-root' = 'as-mounted'\n# step-root\n{rule}");
    let commented = format!("# step-root\n{rule}");
    fs::create_dir(&directory).unwrap();
    for (old, left) in [
        ("step-root = \"as-mounted\"\n", ""),
        (&older, rule),
        (&indented, rule),
        (&literal, &commented),
    ] {
        fs::write(&file, old).unwrap();
        sh(&found[0].remedy, &directory);
        assert_eq!(fs::read_to_string(&file).unwrap(), left);
        sh(&found[0].undo, &directory);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("step-root = \"as-mounted\"\n{left}"));
        assert!(!directory.join("oci.toml.new").exists());
    }
}

#[test]
fn a_preloaded_library_is_taken_out_whatever_stands_beside_it() {
    let library = "/usr/lib/x/libeatmydata.so";
    let found =
        InForce { preload: Some(library.to_owned()), ..skipping(Skipping::OfDynamicPrograms) };
    let finding = preloaded(&found);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("preload");
    let type_line = |line: &Action| {
        let line = line.text().replace("/etc/ld.so.preload", file.to_str().unwrap());
        let line = line.strip_suffix(" && synconce run -- COMMAND").unwrap_or(&line);
        assert!(Command::new("sh").args(["-ec", line]).status().unwrap().success(), "{line}");
        fs::read_to_string(&file).unwrap()
    };
    fs::write(&file, format!("/lib/m.so:{library}\tlibz.so\n/opt/libeatmydata.so.1 # x\n"))
        .unwrap();
    assert_eq!(type_line(&finding.remedy), "/lib/m.so:\tlibz.so\n # x\n");
    assert!(type_line(&finding.undo).ends_with("\n/usr/lib/x/libeatmydata.so\n"));
}

#[test]
fn an_engine_on_an_overlay_is_not_told_to_use_the_overlay() {
    let overlay = Overlay { upper: None, volatile: false, metacopy: false };
    let on_overlay = ExaminedPlace { overlay: Some(overlay), ..place() };
    let host = host("6.1.0");
    for driver in ["vfs", "fuse-overlayfs"] {
        let mount_program = (driver != "vfs").then(|| driver.to_owned());
        let engine = ContainerEngine { mount_program, ..engine(driver) };
        let remedy = |place: &ExaminedPlace| {
            let engine = Some(&engine);
            let facts = Facts { place, host: &host, limits: &[], space: Space::Enough, engine };
            let found = derive(&facts, &[], &Measured::default());
            found.into_iter().find(|found| found.name == driver).unwrap().remedy.text().to_owned()
        };
        assert!(remedy(&place()).contains("\"overlay2\" in /etc/docker/daemon.json"));
        let wanted = "put /srv on another file system, such as a volume: ";
        assert!(remedy(&on_overlay).starts_with(wanted), "{}", remedy(&on_overlay));
    }
}
