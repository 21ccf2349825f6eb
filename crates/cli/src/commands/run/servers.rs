//! Clients of database servers, by their names, words and variables.

use super::addresses::Variables;

/// Programs that have a database server write. A dump only reads.
const CLIENTS: &str = "\
    clusterdb createdb createuser dropdb dropuser pg_restore pgbench psql reindexdb vacuumdb \
    mariadb mariadb-admin mariadb-check mariadb-import mariadb-slap mariadb-upgrade \
    mysql mysql_upgrade mysqladmin mysqlcheck mysqlimport mysqlslap \
    mongosh redis-cli";

/// Programs that run tests, whatever their words.
const TEST_RUNNERS: [&str; 7] = ["ctest", "jest", "prove", "pytest", "rspec", "tox", "unittest"];
/// Programs that run tests if a word says so. gradlew and mvnw are scripts of a project.
const BUILDERS: &str = "cargo go gradle gradlew make meson mvn mvnw ninja npm pnpm rake yarn";
const TESTS: [&str; 7] = ["check", "installcheck", "nextest", "spec", "test", "tests", "verify"];
/// Variables that name the host of a server for tests.
const HOSTS: [&str; 3] = ["PGHOSTADDR", "PGHOST", "MYSQL_HOST"];
/// Schemes of a database's URL that name a server. SQLite's names a file.
const SCHEMES: [&str; 7] =
    ["mariadb", "mongodb", "mysql", "postgres", "postgresql", "redis", "rediss"];

/// Whether `program` with the arguments `words` makes a database server write: it is a client, or
/// tests whose environment names a server.
pub(super) fn asks_server(program: &str, words: &[&str], variables: Variables<'_>) -> bool {
    if CLIENTS.split(' ').any(|client| client == program) {
        let is_script = program == "pg_restore" && !words.iter().any(|word| names_database(word));
        return !is_script && !words.iter().any(|word| has_no_server(word));
    }
    let is_named = || HOSTS.into_iter().any(|name| variables(name).is_some());
    let has_url = || variables("DATABASE_URL").is_some_and(|url| is_url_of_server(&url));
    runs_tests(program, words) && (is_named() || has_url())
}

/// Whether `url` is that of a server. A library may be named behind the scheme, as in
/// `postgresql+psycopg://`.
fn is_url_of_server(url: &str) -> bool {
    let Some((scheme, _)) = url.split_once("://") else { return false };
    SCHEMES.contains(&scheme.split('+').next().unwrap_or_default())
}

/// Whether `word` is an option of a call without a server.
fn has_no_server(word: &str) -> bool {
    matches!(word, "--version" | "--help" | "-V" | "-?")
}

/// Whether `word` names the database of pg_restore. Without a database, pg_restore prints a script.
fn names_database(word: &str) -> bool {
    match word.strip_prefix('-') {
        // Behind the letters of options without a value, as in -Cd.
        Some(letters) if !letters.starts_with('-') => {
            letters.trim_start_matches(|letter| "acCeOsvwWx1".contains(letter)).starts_with('d')
        }
        _ => word.starts_with("--dbname"),
    }
}

fn runs_tests(program: &str, words: &[&str]) -> bool {
    if program.starts_with("python") {
        return module_of_python(words).is_some_and(|name| TEST_RUNNERS.contains(&name));
    }
    let is_dry_run = || program == "make" && words.iter().any(|word| is_dry_run(word));
    let names_tests = || words.iter().any(|word| TESTS.contains(word)) && !is_dry_run();
    let is_builder = || BUILDERS.split(' ').any(|builder| builder == program);
    TEST_RUNNERS.contains(&program) || is_builder() && names_tests()
}

/// Returns the module that `python -m` runs. The words after a script are the script's.
fn module_of_python<'a>(words: &[&'a str]) -> Option<&'a str> {
    match words {
        ["-m", module, ..] => Some(module),
        ["-W" | "-X" | "--check-hash-based-pycs", _, rest @ ..] => module_of_python(rest),
        [option, rest @ ..] if option.starts_with('-') => module_of_python(rest),
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
            let asks = |variables| asks_server("make", &words, variables);
            assert_eq!(asks(&|_| Some("db".to_owned())), is_run, "make {line}");
            assert!(!asks(&|_| None), "make {line}");
        }
    }

    #[test]
    fn tests_are_started_by_a_runner_a_builder_its_wrapper_or_python() {
        for (line, is_run) in [
            ("pytest -q", true),
            ("python3 -m pytest -q", true),
            ("python3 -X dev -Werror -W error -m pytest", true),
            ("python3.11 -B -m unittest", true),
            ("python3 -m build", false),
            ("python3 script.py -m pytest", false),
            ("gradlew --no-daemon test", true),
            ("gradlew assemble", false),
            ("mvnw verify", true),
            ("pnpm run test", true),
            ("rspec", true),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let server = |_: &str| Some("db".to_owned());
            assert_eq!(asks_server(words[0], &words[1..], &server), is_run, "{line}");
        }
    }
}
