//! `synconce setup apt --undo` keeps what it takes away and did not write.

use super::apt::{place, state};
use std::fs;

#[test]
fn an_undo_keeps_what_others_wrote_in_the_place_of_a_program() {
    let place = place("apt-edited");
    let before = state(&place);
    let mut kept = Vec::new();
    for (words, own) in [(&["apt", "--undo"][..], false), (&["apt", "--undo", "--force"], true)] {
        assert_eq!(place.setup(&["apt"]).code, Some(0));
        let edited =
            if own { "the operator's\n".into() } else { place.read("usr/bin/dpkg") + "# mine\n" };
        place.write("usr/bin/dpkg", &edited);
        let dry = place.setup(&[words, &["--dry-run"]].concat());
        let ended = place.setup(words);
        kept.push(edited);
        let saved = format!("var/lib/synconce/setup/apt/saved-{}-dpkg", kept.len());
        assert!(
            dry.stderr
                .contains(&format!("would be saved as {}", place.root.join(&saved).display()))
        );
        assert!(
            ended.stderr.contains("usr/bin/dpkg as it was until now is saved as "),
            "{ended:?}"
        );
        assert_eq!((ended.code, place.read(&saved)), (Some(0), kept[kept.len() - 1].clone()));
        assert_eq!(before, state(&place));
    }
    let directory = place.root.join("var/lib/synconce/setup/apt");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 2, "unedited wrappers are not kept");
}
