//! Real programs, bare and held: the exit codes, the results of their own tests and the data
//! are the same, and the accounts show held calls.
//!
//! A test whose program is not installed is ignored, and prints why. The test suites of
//! SQLite, LMDB and py-lmdb come from `scripts/programs`, which sets SYNCONCE_UPSTREAM. With
//! SYNCONCE_REPORT=FILE every comparison adds a line to FILE. Every test runs isolated (see
//! `harness::isolated`), as root.

mod bbolt;
mod benchmark;
mod comparison;
mod eatmydata;
mod git;
mod hints;
mod jails;
mod lmdb;
mod openat2;
mod postgres;
mod python;
mod qemu;
mod rights;
mod service;
mod sqlite;
mod tar;

use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::{Need, trial};

fn main() -> ExitCode {
    let perl = [Need::Program("perl", "perl")];
    let cc = [Need::Program("cc", "gcc libc6-dev")];
    let trials = vec![
        trial(bbolt::a_program_on_bbolt_finds_what_it_wrote, &bbolt::NEEDS),
        trial(bbolt::its_own_tests_agree, &bbolt::NEEDS),
        trial(benchmark::all_engines_put_and_those_that_are_held_hardly_flush, &benchmark::NEEDS),
        trial(benchmark::an_interrupted_benchmark_leaves_no_hold, &bbolt::NEEDS),
        trial(eatmydata::command_lines_end_as_those_of_the_script_do, &eatmydata::NEEDS),
        trial(eatmydata::what_a_command_synced_is_committed_at_its_end, &eatmydata::NEEDS_STRACE),
        trial(eatmydata::a_command_runs_where_nothing_can_be_held, &eatmydata::NEEDS_CHROOT),
        trial(
            eatmydata::a_failed_fork_leaves_the_command_its_signals_and_orphans,
            &eatmydata::NEEDS_STRACE,
        ),
        trial(eatmydata::two_installations_do_not_call_each_other, &eatmydata::NEEDS),
        trial(
            eatmydata::a_signal_during_a_failing_set_up_is_for_the_command,
            &eatmydata::NEEDS_STRACE,
        ),
        trial(
            eatmydata::a_command_that_may_have_started_is_not_started_again,
            &eatmydata::NEEDS_STRACE,
        ),
        trial(eatmydata::a_link_does_not_find_itself_in_a_chroot, &eatmydata::NEEDS_CHROOT),
        trial(eatmydata::inside_a_run_the_outer_run_holds, &eatmydata::NEEDS_STRACE),
        trial(eatmydata::a_user_calls_sudo_by_it, &hints::NEEDS_SUDO),
        trial(eatmydata::a_preloaded_library_that_drops_syncs_is_named, &eatmydata::NEEDS),
        trial(git::repositories_are_the_same_with_every_way_to_fsync, &git::NEEDS),
        trial(hints::a_user_who_calls_sudo_gets_a_command_that_works, &hints::NEEDS_SUDO),
        trial(hints::a_user_whose_run_maps_ids_gets_a_command_line_that_works, &hints::NEEDS_IDS),
        trial(hints::a_user_who_mounts_by_fuse_gets_a_command_that_works, &hints::NEEDS_FUSE),
        trial(
            hints::a_user_of_podman_or_buildah_gets_a_command_line_that_works,
            &hints::NEEDS_PODMAN,
        ),
        trial(hints::each_kind_of_rights_gives_one_notice, &hints::NEEDS_BOTH),
        trial(jails::a_jail_that_does_not_see_each_call_is_named, &cc),
        trial(jails::strace_sees_each_sync_by_the_command_of_the_hint, &jails::NEEDS_STRACE),
        trial(jails::an_open_in_a_proot_is_outside_of_it_only_with_a_notice, &jails::NEEDS_PROOT),
        trial(lmdb::every_kind_of_environment_holds_the_same, &lmdb::NEEDS),
        trial(lmdb::its_own_tests_agree, &lmdb::NEEDS_UPSTREAM),
        trial(lmdb::py_lmdbs_own_tests_agree, &lmdb::NEEDS_PYTHON),
        trial(openat2::opens_that_sync_agree_under_every_restriction, &cc),
        trial(postgres::a_cluster_is_the_same_with_every_way_to_sync_its_log, &postgres::NEEDS),
        trial(postgres::a_cluster_of_another_user_is_held_without_cap_sys_ptrace, &postgres::NEEDS),
        trial(python::test_os_agrees, &[Need::PythonTest("test_os")]),
        trial(python::test_os_agrees_for_an_ordinary_user, &[Need::PythonTest("test_os")]),
        trial(python::test_mmap_agrees, &[Need::PythonTest("test_mmap")]),
        trial(python::test_mailbox_agrees, &[Need::PythonTest("test_mailbox")]),
        trial(python::test_sqlite3_agrees, &[Need::PythonTest("test_sqlite3")]),
        trial(qemu::images_are_the_same_with_every_cache_mode, &qemu::NEEDS),
        trial(rights::sudo_gives_the_rights_that_it_should, &rights::NEEDS_SUDO),
        trial(rights::su_gives_the_rights_that_it_should, &perl),
        trial(service::a_daemon_of_a_package_lives_on_with_real_syncs, &service::NEEDS),
        trial(sqlite::every_journal_holds_the_same, &sqlite::NEEDS),
        trial(sqlite::its_own_tests_agree, &sqlite::NEEDS_UPSTREAM),
        trial(tar::an_archive_of_everything_is_extracted_alike, &[Need::Program("tar", "tar")]),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
