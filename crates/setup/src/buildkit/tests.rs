use super::*;

const RUNTIME: &str = "/usr/local/bin/synconce-oci";

fn edited(text: &str) -> String {
    edit(text, RUNTIME).unwrap().unwrap()
}

fn refused(text: &str) -> (Option<usize>, String) {
    let fault = edit(text, RUNTIME).unwrap_err();
    (fault.line(), fault.reason().to_owned())
}

#[test]
fn an_empty_file_gets_the_oci_worker_alone() {
    assert_eq!(edited(""), format!("[worker.oci]\nbinary = \"{RUNTIME}\"\n"));
}

#[test]
fn the_binary_goes_to_the_other_keys_of_its_table_with_their_indent() {
    let text = "# a\n[worker.oci] # b\n  gc = true # c\n  # d\n\n[grpc]\n";
    let expected = format!(
        "# a\n[worker.oci] # b\n  gc = true # c\n  binary = \"{RUNTIME}\"\n  # d\n\n[grpc]\n"
    );
    assert_eq!(edited(text), expected);
}

#[test]
fn what_stands_for_the_same_runc_is_replaced_and_its_comment_stays() {
    for own in ["", "runc", "buildkit-runc"] {
        let text = format!("worker.oci.binary = \"{own}\" # which\n");
        assert_eq!(edited(&text), format!("worker.oci.binary = \"{RUNTIME}\" # which\n"));
    }
}

#[test]
fn a_table_in_one_line_stays_in_one_line() {
    let text = "worker = { oci = { gc = true } }\n";
    assert_eq!(
        edited(text),
        format!("worker = {{ oci = {{ gc = true , binary = \"{RUNTIME}\" }} }}\n")
    );
}

#[test]
fn a_containerd_worker_that_is_on_gets_the_binary_in_its_options() {
    let text = "[worker.oci]\nenabled = false\n\n[worker.containerd]\nenabled = true\n";
    let expected = format!(
        "{text}\n[worker.containerd.runtime]\nname = \"io.containerd.runc.v2\"\n\n\
         [worker.containerd.runtime.options]\nBinaryName = \"{RUNTIME}\"\n"
    );
    assert_eq!(edited(text), expected);
    let own = "[worker.oci]\nenabled = false\n[worker.containerd.runtime]\n\
               name = \"io.containerd.runc.v2\"\noptions = { BinaryName = \"runc\" }\n";
    assert_eq!(edited(own), own.replace("\"runc\"", &format!("\"{RUNTIME}\"")));
}

#[test]
fn a_containerd_worker_that_is_off_is_left_alone() {
    let text = "[worker.containerd]\nenabled = false\nnamespace = \"x\"\n";
    assert!(!edited(text).contains("BinaryName"));
}

#[test]
fn a_choice_of_the_operators_is_refused_with_its_line() {
    for (text, line, why) in [
        ("[worker.oci]\n\nbinary = \"crun\"\n", 3, "worker.oci.binary = \"crun\""),
        ("[worker.containerd.runtime]\nname = \"io.containerd.runsc.v1\"\n", 2, "runsc"),
        ("[worker.containerd.runtime]\nname = \"io.containerd.kata.v2\"\n", 2, "kata"),
        ("[worker]\noci = 1\n[worker.containerd]\nenabled = 2\n", 4, "no true or false"),
        ("[worker.oci]\nbinary = 1\n", 2, "no text"),
    ] {
        let (at, reason) = refused(text);
        assert_eq!(at, Some(line), "{text}: {reason}");
        assert!(reason.contains(why), "{text}: {reason}");
    }
    assert!(refused("worker.oci = 1\n").1.contains("worker.oci is no table"));
    let off = "[worker.oci]\nenabled = false\n";
    assert!(refused(off).1.contains("turns both workers off"));
}
