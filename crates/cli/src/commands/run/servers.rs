//! The host of the database server of a client, as its words and variables name the host.

/// Returns the value of an environment variable.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The host of a daemon or of a database server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DaemonHost {
    /// This machine.
    Here,
    /// Behind this socket, which is not the usual one: a rootless daemon's, or that of a relay.
    Socket(String),
    /// The host of this name.
    Elsewhere(String),
}

/// A kind of database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Postgres,
    MySql,
    Redis,
    Mongo,
}

/// Returns the kind of the server that `program` has write. A dump only reads.
pub(super) fn kind_of_server(program: &str) -> Option<ServerKind> {
    Some(match program {
        "psql" | "clusterdb" | "createdb" | "createuser" | "dropdb" | "dropuser" | "pg_restore"
        | "pgbench" | "reindexdb" | "vacuumdb" => ServerKind::Postgres,
        "mysql" | "mysql_upgrade" | "mysqladmin" | "mysqlcheck" | "mysqlimport" | "mysqlslap"
        | "mariadb" | "mariadb-admin" | "mariadb-check" | "mariadb-import" | "mariadb-slap"
        | "mariadb-upgrade" => ServerKind::MySql,
        "redis-cli" => ServerKind::Redis,
        "mongosh" => ServerKind::Mongo,
        _ => return None,
    })
}

/// Programs that run tests, whatever their words.
const TEST_RUNNERS: [&str; 4] = ["ctest", "prove", "pytest", "tox"];
/// Programs that run tests if a word says so.
const BUILDERS: [&str; 10] =
    ["cargo", "go", "gradle", "make", "meson", "mvn", "ninja", "npm", "rake", "yarn"];
const TESTS: [&str; 7] = ["check", "installcheck", "nextest", "spec", "test", "tests", "verify"];

/// Whether `word` is an option by which make runs no recipe.
fn is_dry_run(word: &str) -> bool {
    let Some(option) = word.strip_prefix('-') else { return false };
    if let Some(option) = option.strip_prefix('-') {
        return ["dry-run", "just-print", "recon", "question", "touch"].contains(&option);
    }
    // Behind these letters the word has a value.
    let flags = option.split(|letter| "CEIOWfjlo".contains(letter)).next();
    flags.is_some_and(|flags| flags.contains(['n', 'q', 't']))
}

/// Returns the host of the database server that the environment names, if `program` with the arguments
/// `words` runs tests: they are clients of that server.
pub(super) fn server_of_tests(
    program: &str,
    words: &[&str],
    variables: Variables<'_>,
) -> Option<DaemonHost> {
    let is_dry_run = || program == "make" && words.iter().any(|word| is_dry_run(word));
    let names_tests = || words.iter().any(|word| TESTS.contains(word)) && !is_dry_run();
    if !(TEST_RUNNERS.contains(&program) || BUILDERS.contains(&program) && names_tests()) {
        return None;
    }
    // A file names the host of a service.
    let is_service = variables("PGSERVICE").is_some();
    let names = ["PGHOSTADDR", "PGHOST", "MYSQL_HOST"];
    let mut hosts = names.into_iter().filter(|name| !is_service || !name.starts_with("PG"));
    hosts.find_map(variables).or_else(|| host_of_url(&variables("DATABASE_URL")?)).map(daemon_host)
}

/// Returns the host in the URL of a database; None of a file, as of SQLite. A library may be named behind
/// the scheme, as in `postgresql+psycopg`.
fn host_of_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.split('+').next()?;
    SCHEMES.contains(&scheme).then(|| host_of_database(rest))
}

/// Returns the host of the database server of `program`. Returns None for a call without a server, and
/// if a file of the client names the host.
pub(super) fn server_of(
    program: &str,
    kind: ServerKind,
    words: &[&str],
    variables: Variables<'_>,
) -> Option<DaemonHost> {
    let has_no_server = |word: &str| {
        matches!(word, "--version" | "--help" | "-V" | "-?")
            || ["--login-path", "--defaults-"].iter().any(|start| word.starts_with(start))
    };
    // Without a database, pg_restore prints a script.
    let names_database = |word: &&str| match word.strip_prefix('-') {
        // Behind the letters of options without a value, as in -Cd.
        Some(letters) if !letters.starts_with('-') => {
            letters.trim_start_matches(|letter| "acCeOsvwWx1".contains(letter)).starts_with('d')
        }
        _ => word.starts_with("--dbname"),
    };
    let is_script = program == "pg_restore" && !words.iter().any(names_database);
    if is_script || words.iter().any(|word| has_no_server(word)) {
        return None;
    }
    let is_postgres = kind == ServerKind::Postgres;
    if is_postgres && variables("PGSERVICE").is_some() {
        return None;
    }
    let values = other_values(program);
    let mut host = None;
    let mut is_value = false;
    for (at, word) in words.iter().enumerate() {
        if std::mem::replace(&mut is_value, values.contains(word)) {
            is_value = false;
            continue;
        }
        let is_host = at > 0 && HOSTS.contains(&words[at - 1]);
        if kind == ServerKind::Redis && !word.starts_with('-') && !is_host {
            // A command of redis: the other words are its data.
            break;
        }
        let place = word.strip_prefix("--dbname=").unwrap_or(word);
        if let Some(found) = host_option(kind, word, words.get(at + 1)) {
            host = Some(found);
        } else if let Some((scheme, rest)) = place.split_once("://") {
            host = SCHEMES.contains(&scheme).then(|| host_of_database(rest)).or(host);
        } else if kind == ServerKind::Mongo && !word.starts_with('-') && word.contains([':', '/']) {
            host = Some(host_of_uri(word));
        } else if is_postgres && place.split_whitespace().all(|setting| setting.contains('=')) {
            let value = |key| setting(place.split_whitespace(), key);
            if value("service").is_some() {
                return None;
            }
            host = value("host").or_else(|| value("hostaddr")).or(host);
        }
    }
    let of_variables = || match kind {
        ServerKind::Postgres => variables("PGHOSTADDR").or_else(|| variables("PGHOST")),
        ServerKind::MySql => variables("MYSQL_HOST"),
        ServerKind::Redis | ServerKind::Mongo => None,
    };
    Some(host.or_else(of_variables).map_or(DaemonHost::Here, daemon_host))
}

/// Options whose value names a host: by itself or in a URI.
const HOSTS: [&str; 3] = ["-h", "--host", "-u"];

/// Returns the options of `program` whose value is the next word, and neither a host nor a database.
fn other_values(program: &str) -> &'static [&'static str] {
    match program {
        "psql" => &[
            "-c",
            "--command",
            "-v",
            "--set",
            "--variable",
            "-P",
            "--pset",
            "-f",
            "--file",
            "-U",
            "--username",
            "-o",
            "--output",
            "-L",
            "--log-file",
            "-p",
            "--port",
        ],
        "mysql" | "mariadb" => &["-e", "--execute", "-P", "--port", "-u", "--user", "-D", "-S"],
        "redis-cli" => &["-a", "--pass", "--user", "-p", "-n", "-s", "-r", "-i"],
        "mongosh" => &["--eval", "-u", "-p", "--username", "--password", "--port"],
        _ => &[],
    }
}

const SCHEMES: [&str; 7] =
    ["postgresql", "postgres", "mysql", "redis", "rediss", "mongodb", "mongodb+srv"];

/// Returns the host if `word` is the option that names the host. `next` is the word behind it.
fn host_option(kind: ServerKind, word: &str, next: Option<&&str>) -> Option<String> {
    if let Some(host) = word.strip_prefix("--host=") {
        return Some(host.to_owned());
    }
    // The letters whose value is the rest of the word.
    let with_value = match kind {
        _ if word == "--host" => return next.map(|host| (*host).to_owned()),
        ServerKind::Postgres => "cdfvLoFPRTpU",
        ServerKind::MySql => "DePpSu",
        ServerKind::Redis => "psaunirtdXD",
        ServerKind::Mongo => return None,
    };
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let (flags, host) = letters.split_once('h')?;
    if flags.contains(|letter| with_value.contains(letter)) {
        return None;
    }
    if host.is_empty() { next.map(|host| (*host).to_owned()) } else { Some(host.to_owned()) }
}

/// Returns the host in a database's URI without its scheme: before the path, or as a parameter.
fn host_of_database(rest: &str) -> String {
    let (_, parameters) = rest.split_once('?').unwrap_or_default();
    setting(parameters.split('&'), "host").unwrap_or_else(|| host_of_uri(rest))
}

fn setting<'t>(mut settings: impl Iterator<Item = &'t str>, key: &str) -> Option<String> {
    let found = settings.find_map(|it| it.split_once('=').filter(|(name, _)| *name == key))?;
    Some(found.1.trim_matches('\'').to_owned())
}

/// Returns the host in a URI without its scheme, empty if it has none.
pub(super) fn host_of_uri(rest: &str) -> String {
    // A password may have a slash, and must not be printed.
    let place = rest.split('?').next().unwrap_or_default();
    let place = place.rsplit('@').next().unwrap_or_default();
    let host = place.split('/').next().unwrap_or_default();
    let end = if host.starts_with('[') { ']' } else { ':' };
    host.split(end).next().unwrap_or_default().trim_start_matches('[').to_owned()
}

/// Returns where a daemon with the address `host` is: here also if `host` is the directory of a socket.
pub(super) fn daemon_host(host: String) -> DaemonHost {
    let is_here = matches!(host.as_str(), "" | "localhost" | "::1")
        || ["127.", "/", "@", "%2F", "%2f"].iter().any(|start| host.starts_with(start));
    if is_here { DaemonHost::Here } else { DaemonHost::Elsewhere(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the host, `-` for this machine.
    fn host(line: &[&str], variables: Variables<'_>) -> Option<String> {
        Some(match server_of(line[0], kind_of_server(line[0])?, &line[1..], variables)? {
            DaemonHost::Here => "-".to_owned(),
            DaemonHost::Socket(path) => path,
            DaemonHost::Elsewhere(host) => host,
        })
    }

    #[test]
    fn the_host_of_a_server_is_found_in_each_form_of_a_client() {
        for (line, wanted) in [
            (&["psql", "x"][..], Some("-")),
            (&["psql", "--file", "x.sql"], Some("-")),
            (&["psql", "--version"], None),
            (&["psql", "-hdb", "x"], Some("db")),
            (&["psql", "-qAth", "db"], Some("db")),
            (&["psql", "-dhere", "x"], Some("-")),
            (&["psql", "--host", "db"], Some("db")),
            (&["psql", "--host=/run/postgresql"], Some("-")),
            (&["psql", "-h", "127.0.0.1"], Some("-")),
            (&["psql", "postgresql://me:a@b@db.example:5432/x"], Some("db.example")),
            (&["psql", "-d", "postgres://db/x"], Some("db")),
            (&["psql", "--dbname=postgres://db"], Some("db")),
            (&["psql", "postgresql:///x?host=db&port=1"], Some("db")),
            (&["psql", "postgresql:///x?host=%2Frun"], Some("-")),
            (&["psql", "postgresql:///x"], Some("-")),
            (&["psql", "postgresql://[::1]:5432/x"], Some("-")),
            (&["psql", "host=db.example dbname=x"], Some("db.example")),
            (&["psql", "-d", "dbname=x host='db'"], Some("db")),
            (&["psql", "hostaddr=10.0.0.1"], Some("10.0.0.1")),
            (&["psql", "service=far"], None),
            (&["psql", "-v", "host=x"], Some("-")),
            (&["psql", "-c", "select 'postgres://db'"], Some("-")),
            (&["psql", "-e", "-h", "db"], Some("db")),
            (&["psql", "-f", "-hno"], Some("-")),
            (&["mysql", "-v", "-hdb"], Some("db")),
            (&["mysql", "-c", "-hdb"], Some("db")),
            (&["mysql", "--login-path=far"], None),
            (&["redis-cli", "-c", "-h", "db"], Some("db")),
            (&["redis-cli", "-a", "-ohno"], Some("-")),
            (&["redis-cli", "-u", "redis://s3cr/et@db"], Some("db")),
            (&["redis-cli", "set", "dsn", "redis://me@far/y"], Some("-")),
            (&["mysql", "-hdb", "-psecreth"], Some("db")),
            (&["mysql", "-psecreth"], Some("-")),
            (&["mariadb", "--host=db"], Some("db")),
            (&["redis-cli", "-u", "redis://me@db:6379/0"], Some("db")),
            (&["redis-cli", "-h", "db", "get", "x"], Some("db")),
            (&["mongosh", "mongodb+srv://me:pw@db.example/x"], Some("db.example")),
            (&["mongosh", "mongodb://localhost:27017"], Some("-")),
            (&["mongosh", "db:27017/x"], Some("db")),
        ] {
            assert_eq!(host(line, &|_| None).as_deref(), wanted, "{line:?}");
        }
    }

    #[test]
    fn a_call_of_make_that_runs_no_recipe_runs_no_tests() {
        for (line, is_run) in [
            ("check", true),
            ("-j4 -k check", true),
            ("-j4 -Otarget check", true),
            ("-Cnetwork -fquick.mk check", true),
            ("--no-print-directory check", true),
            ("-n check", false),
            ("check -kn", false),
            ("-q check", false),
            ("-t check", false),
            ("--dry-run check", false),
            ("--just-print check", false),
            ("--question check", false),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let server = server_of_tests("make", &words, &|_| Some("db".to_owned()));
            assert_eq!(server.is_some(), is_run, "make {line}");
        }
    }

    #[test]
    fn a_variable_names_the_host_unless_a_word_does() {
        for (line, name, value, wanted) in [
            (&["psql"][..], "PGHOST", "db", Some("db")),
            (&["psql"], "PGHOSTADDR", "10.0.0.1", Some("10.0.0.1")),
            (&["psql"], "PGHOST", "/run/postgresql", Some("-")),
            (&["psql", "-h", "near"], "PGHOST", "db", Some("near")),
            (&["psql"], "PGSERVICE", "far", None),
            (&["psql", "-h", "near"], "PGSERVICE", "far", None),
            (&["mysql"], "MYSQL_HOST", "db", Some("db")),
            (&["redis-cli"], "PGHOST", "db", Some("-")),
        ] {
            let variables = |asked: &str| (asked == name).then(|| value.to_owned());
            assert_eq!(host(line, &variables).as_deref(), wanted, "{line:?} {name}={value}");
        }
    }
}
