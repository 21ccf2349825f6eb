//! Jobs of a CI service: the run is inside an ordinary container of an engine, with the engine's
//! default capabilities and profile. A database of another user is held there.

use crate::database::ROOT;
use crate::engines::daemonless::{PODMAN, Podman};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use synconce_testkit::harness::{Need, Place, binary, finish, postgresql, trial, without_stalls};
use synconce_testkit::process::Finished;

const SERVER: Need = Need::File("/usr/lib/postgresql", "postgresql");
const BUSYBOX: Need = Need::Program("busybox", "busybox-static");

pub fn trials() -> [Trial; 3] {
    let of_docker = [docker::NEEDS[0], docker::NEEDS[1], docker::NEEDS[2], SERVER, BUSYBOX];
    let of_podman = [PODMAN[0], PODMAN[1], PODMAN[2], SERVER, BUSYBOX];
    let of_user =
        [of_podman[0], of_podman[2], SERVER, BUSYBOX, Need::Program("newuidmap", "uidmap")];
    [
        trial(a_server_of_another_user_is_held_in_docker, &of_docker),
        trial(a_server_of_another_user_is_held_in_podman, &of_podman),
        trial(a_server_of_another_user_is_held_in_podman_of_a_user, &of_user),
    ]
}

/// What the supervisor can examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    Seen,
    Unseen,
}

use Callers::{Seen, Unseen};

/// Options of an engine, as a service or a cluster sets them.
type JobRow = (&'static [&'static str], Callers);

const ROWS: [JobRow; 4] = [
    (&[], Unseen),
    (&["--cap-add", "SYS_PTRACE"], Seen),
    // Kubernetes without SeccompDefault.
    (&["--security-opt", "seccomp=unconfined"], Unseen),
    // Kubernetes with allowPrivilegeEscalation: false.
    (&["--security-opt", "no-new-privileges"], Unseen),
];

/// Makes a cluster as the user of the server, and prints its version.
const JOB: &str = "mkdir -p /data && chown 1000:1000 /data && \
    busybox su postgres -c \"$1 -D /data/base -A trust -E UTF8 --locale=C >/tmp/log\" && \
    busybox cat /data/base/PG_VERSION";

/// Makes the archive of an image with a server, busybox and the machine's synconce.
fn image(site: &Site<'_>) {
    let more = "cp /bin/busybox root/bin/; cp \"$2\" root/bin/synconce; chmod 1777 root/tmp
        for name in mkdir chown; do ln -s busybox root/bin/$name; done; rm root.tar
        tar --create --file=root.tar --directory=root .";
    let script = format!("{ROOT}\n{more}");
    let mut command = site.command("sh");
    command.args(["-ec", &script, "sh"]).arg(postgresql()).arg(binary());
    let made = finish(&mut command);
    assert!(made.status.success(), "{made:?}");
    let out = site.place.path("out");
    fs::create_dir_all(&out).unwrap();
    fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).unwrap();
}

/// Runs the job in containers, by `run`: bare, and held with the options of each row.
fn table(place: &Place, rows: &[JobRow], run: impl Fn(&[&str], &[&str]) -> Finished) {
    // A commit of every disk waits for the disks of other tests.
    let _lock = without_stalls();
    let initdb = postgresql().join("initdb");
    let job = ["/bin/sh", "-ec", JOB, "sh", initdb.to_str().unwrap()];
    let volume = format!("{}:/out", place.text("out"));
    let always = ["--env", "TZ=UTC", "--volume", &volume];
    let bare = run(&always, &job);
    assert!(bare.status.success(), "{bare:?}");
    for (options, callers) in rows {
        let options = [&always[..], options].concat();
        let words = ["/bin/synconce", "run", "--json=/out/stats", "--"];
        let held = run(&options, &[&words[..], &job].concat());
        assert_eq!((held.status, &held.stdout), (bare.status, &bare.stdout), "{held:?}");
        let stats: serde_json::Value = serde_json::from_str(&place.read("out/stats")).unwrap();
        let fsync = ["held", "passed", "unseen"].map(|end| stats["calls"]["fsync"][end].as_u64());
        let [Some(held), Some(0), Some(unseen)] = fsync else { panic!("{options:?} {stats}") };
        assert!(held > 100, "{options:?} {stats}");
        assert_eq!(unseen, if *callers == Unseen { held } else { 0 }, "{options:?} {stats}");
        assert_eq!(stats["outcome"], "committed", "{options:?} {stats}");
        fs::remove_file(place.path("out/stats")).unwrap();
    }
}

fn a_server_of_another_user_is_held_in_docker(place: &Place) {
    prepare(place);
    let site = Site::with(place, Given::Runc, &place.path("docker"));
    image(&site);
    let docker = Docker::start(&site);
    docker.import(&place.text("root.tar"), "server");
    table(place, &ROWS, |options, words| docker.run_of("server", options, words));
    docker.stop();
}

fn a_server_of_another_user_is_held_in_podman(place: &Place) {
    prepare(place);
    let site = Site::with(place, Given::Runc, &place.path("podman"));
    image(&site);
    let podman = Podman(&site);
    let imported = finish(podman.command().args(["import", "root.tar", "server"]));
    assert!(imported.status.success(), "{imported:?}");
    table(place, &ROWS[..2], |options, words| {
        finish(podman.command().args(podman.running(options)).arg("server").args(words))
    });
}

/// Makes a user for this mount namespace, with a home in the directory of the test.
const USER: &str = r#"
mkdir home session
for name in passwd group; do
    cp /etc/$name session/$name
    echo "ci:x:4711:4711::$PWD/home:/bin/sh" >>session/$name
done
sed -i 's/^ci:.*/ci:x:4711:/' session/group
echo ci:100000:65536 >session/ids
touch /etc/subuid /etc/subgid
mount --bind session/passwd /etc/passwd
mount --bind session/group /etc/group
mount --bind session/ids /etc/subuid
mount --bind session/ids /etc/subgid
chmod 755 . session
chown -R 4711:4711 home
mkdir -p /run/user/4711
chown 4711:4711 /run/user/4711
"#;

fn a_server_of_another_user_is_held_in_podman_of_a_user(place: &Place) {
    prepare(place);
    let site = Site::with(place, Given::Runc, &place.path("podman"));
    image(&site);
    let made = finish(site.command("sh").args(["-ec", USER]));
    assert!(made.status.success(), "{made:?}");
    let podman = |words: &[&str]| {
        let mut command = site.command("setpriv");
        command.args(["--reuid", "4711", "--regid", "4711", "--init-groups", "podman"]);
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]).args(words);
        command.env("HOME", place.path("home")).env("XDG_RUNTIME_DIR", "/run/user/4711");
        finish(command.env_remove("TMPDIR").current_dir(place.path("home")))
    };
    let imported = podman(&["import", &place.text("root.tar"), "server"]);
    assert!(imported.status.success(), "{imported:?}");
    let own = ["run", "--rm", "--network", "none", "--cgroups", "disabled"];
    let limits = crate::engines::LIMITS;
    table(place, &ROWS[..1], |options, words| {
        podman(&[&own, &limits[..], options, &["server"], words].concat())
    });
}
