//! A database in a container keeps its syncs, whatever is built beside it. The rig that both
//! use counts the flushes.

use crate::engines::daemonless::{PODMAN, Podman};
use crate::engines::{Given, HOLD, SHORT, Site, prepare, report};
use std::path::PathBuf;
use synconce_testkit::harness::{Need, postgresql};
use synconce_testkit::harness::{Place, eventually, finish, limit};
use synconce_testkit::process::{Finished, Group};
use synconce_testkit::rig::Rig;

pub const NEEDS: [Need; 4] =
    [PODMAN[0], PODMAN[1], PODMAN[2], Need::File("/usr/lib/postgresql", "postgresql")];

/// Makes the root of an image from the machine's own server and the libraries that it loads.
pub const ROOT: &str = r#"
umask 022
bin=$1 home=${1%/bin}
mkdir -p root/tmp root/etc
echo 'postgres:x:1000:1000::/:/bin/sh' >root/etc/passwd
{
    printf '%s\n' $bin/postgres $bin/initdb /bin/sh /usr/share/zoneinfo/UTC
    printf '%s\n' $home/lib/dict_snowball.so $home/lib/plpgsql.so /usr/share/postgresql/${home##*/}
    ldd $bin/postgres $bin/initdb /bin/sh | grep --only-matching '/[^ :]*' | grep '\.so'
} | sort --unique | xargs cp --recursive --dereference --parents --target-directory=root
chmod --recursive a+rX root
tar --create --file=root.tar --directory=root .
"#;

/// The user of the server, in the container and on the disk.
const USER: &str = "1000:1000";

/// How many rows are inserted, each in a transaction of its own.
const COMMITS: u64 = 200;

struct BuildDatabase<'a> {
    podman: Podman<'a>,
    rig: &'a Rig,
    programs: PathBuf,
}

impl<'a> BuildDatabase<'a> {
    /// Makes a new cluster on the disk `rig`.
    fn new(site: &'a Site<'a>, rig: &'a Rig) -> Self {
        let programs = postgresql();
        let made = finish(site.command("sh").args(["-ec", ROOT, "sh"]).arg(&programs));
        assert!(made.status.success(), "{made:?}");
        let database = Self { podman: Podman(site), rig, programs };
        for directory in [rig.path().join("data"), PathBuf::from(SHORT).join("database")] {
            std::fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::chown(&directory, Some(1000), Some(1000)).unwrap();
        }
        let imported = finish(database.podman.command().args(["import", "root.tar", "server"]));
        assert!(imported.status.success(), "{imported:?}");
        let initdb = database.container(&[], "initdb", "-A trust -E UTF8 --locale=C -U postgres");
        assert!(initdb.status.success(), "{initdb:?}");
        database
    }

    /// Runs `program` in a container of the server's image.
    fn container(&self, options: &[&str], program: &str, words: &str) -> Finished {
        let data = format!("{}:/data", self.rig.path().join("data").display());
        let socket = format!("{SHORT}/database:/socket");
        let own = ["--user", USER, "--env", "TZ=UTC", "--volume", &data, "--volume", &socket];
        let mut command = self.podman.command();
        command.args(self.podman.running(&[&own, options].concat())).arg("server");
        command.arg(self.programs.join(program)).args(["-D", "/data/base"]);
        finish(command.args(words.split_whitespace()))
    }

    /// Starts the server; `options` are Podman's.
    fn start(&self, options: &[&str]) {
        let options = [&["--detach", "--name", "server"], options].concat();
        let words = "-c listen_addresses= -c unix_socket_directories=/socket";
        let started = self.container(&options, "postgres", words);
        assert!(started.status.success(), "{started:?}");
        eventually("the server answers", || self.sql("select 1").status.success());
    }

    fn stop(&self) {
        let stopped = finish(self.podman.command().args(["stop", "--time", "60", "server"]));
        assert!(stopped.status.success(), "{stopped:?}");
        let exists = || finish(self.podman.command().args(["container", "exists", "server"]));
        eventually("the server is gone", || !exists().status.success());
    }

    fn sql(&self, text: &str) -> Finished {
        let file = self.podman.0.place.write("text.sql", text);
        let mut command = self.podman.0.command(self.programs.join("psql").to_str().unwrap());
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]);
        finish(command.arg(format!("{SHORT}/database")).arg("-f").arg(file))
    }

    /// Returns the flushes of the disk while rows are inserted one by one.
    fn flushes_of_commits(&self) -> u64 {
        let flushes = || self.rig.disk().stats().unwrap().flushes;
        let inserts: Vec<_> =
            (0..COMMITS).map(|n| format!("insert into t values ({n});")).collect();
        let before = flushes();
        let inserted = self.sql(&inserts.join("\n"));
        let flushes = flushes() - before;
        assert!(inserted.status.success(), "{inserted:?}");
        flushes
    }
}

/// A build whose step syncs until the file `/told/stop` exists, and prints how often it
/// synced.
struct Build<'a> {
    place: &'a Place,
    group: Group,
}

impl<'a> Build<'a> {
    fn start(podman: &Podman<'a>) -> Self {
        let place = podman.0.place;
        let run = "RUN [\"/step\", \"until\", \"/synced\", \"/told/stop\"]";
        place.write("context/Dockerfile", &format!("FROM scratch\nCOPY step /\n{run}\n"));
        std::fs::create_dir_all(place.path("told")).unwrap();
        // Read-only: a step that can write to the host would not be held.
        let volume = format!("{}:/told:ro", place.text("told"));
        let mut command = podman.command();
        let group = Group::spawn(command.args(podman.building(&["--volume", &volume]))).unwrap();
        let build = Self { place, group };
        eventually("the step syncs", || build.output().contains("begun\n"));
        build
    }

    fn output(&self) -> String {
        self.group.stdout().unwrap() + &self.group.stderr().unwrap()
    }

    /// Stops the step; returns how often it has synced.
    fn stop(self) -> u64 {
        self.place.write("told/stop", "");
        let ended = self.group.wait(limit()).unwrap();
        let output = self.output();
        assert!(ended.is_some_and(|status| status.success()), "{output}");
        let count = output.lines().find_map(|line| line.strip_prefix("synced ")?.parse().ok());
        count.unwrap_or_else(|| panic!("no count: {output}"))
    }
}

pub fn commits_are_flushed_beside_a_build_that_is_held(place: &Place) {
    prepare(place);
    let rig = Rig::builder().size(4 << 30).up().unwrap();
    {
        let site = Site::with(place, Given::Us, &rig.path().join("podman"));
        let database = BuildDatabase::new(&site, &rig);
        database.start(&[]);
        assert!(database.sql("create table t (n int)").status.success());

        let build = Build::start(&database.podman);
        let real = database.flushes_of_commits();
        let synced = build.stop();
        assert!(real >= COMMITS, "{real} flushes of {COMMITS} commits");
        assert!(synced > 10 * real, "{real} flushes, {synced} syncs of the step");

        let rows = database.sql("select count(*) from t").stdout;
        assert_eq!(rows, format!("{COMMITS}\n"));
        database.stop();

        database.start(&["--annotation", HOLD]);
        let held = database.flushes_of_commits();
        assert!(held < COMMITS / 4, "{held} flushes of {COMMITS} commits that asked to be held");
        database.stop();
        report(&format!(
            "PostgreSQL: {real} flushes, {COMMITS} commits beside {synced} syncs; held {held}"
        ));
    }
    rig.down().unwrap();
}
