//! sudo and su: setuid programs that change their user.

use crate::comparison::{Comparison, OneSide};
use synconce_testkit::harness::Need;
use synconce_testkit::harness::Place;

pub const NEEDS_SUDO: [Need; 2] = [Need::Program("sudo", "sudo"), Need::Program("perl", "perl")];

/// Defines a program that syncs its standard output as any user: only the shell that opens the
/// file needs access to it.
const PRELUDE: &str = r#"
sync='use IO::Handle; print "uid $> gid ", (split " ", $))[0], "\n"; STDOUT->flush; STDOUT->sync or die $!'
echo "no_new_privs $(sed -n 's/NoNewPrivs:\t//p' /proc/self/status)"
"#;

const SUDO: &str = r#"
sudo -n -u nobody perl -e "$sync" >one
sudo -n -u bin -g games perl -e "$sync" >two
sudo -n env perl -e "$sync" >three
sudo -n -u nobody sh -c 'id; exit 7' || echo "exit code $?"
sudo -n -u nobody sh -c 'kill -TERM $$' || echo "exit code $?"
setpriv --reuid=65534 --regid=65534 --clear-groups sudo -n true 2>&1 || echo "exit code $?"
sudo -n -u nobody sudo -n -u root id 2>&1 || echo "exit code $?"
cat one two three
"#;

const SU: &str = r#"
su nobody -s /bin/sh -c 'perl -e "$0"' -- "$sync" >one
su - nobody -s /bin/sh -c 'id; exit 7' 2>/dev/null || echo "exit code $?"
su nobody -s /bin/sh -c 'kill -TERM $$' 2>&1 || echo "exit code $?"
su root -c 'perl -e "$0"' -- "$sync" >two
setpriv --reuid=65534 --regid=65534 --clear-groups su -c true </dev/null 2>&1 || echo "exit code $?"
su nobody -s /bin/sh -c 'cat /etc/shadow' 2>&1 || echo "exit code $?"
setpriv --reuid=65534 --regid=65534 --clear-groups perl -e "$sync" >three
cat one two three
"#;

fn agrees(place: &Place, script: &str) {
    let script = format!("{PRELUDE}{script}");
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", &script]).succeeds();
    comparison.same("answers", OneSide::out);
    comparison.same_tree("", &["tmp"]);
    assert!(
        comparison.held.finished.stdout.contains("no_new_privs 0"),
        "root's run gains privileges"
    );
    comparison.holds("fsync", 3);
}

pub fn sudo_gives_the_rights_that_it_should(place: &Place) {
    agrees(place, SUDO);
}

pub fn su_gives_the_rights_that_it_should(place: &Place) {
    agrees(place, SU);
}
