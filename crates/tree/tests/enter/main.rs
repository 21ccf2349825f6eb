//! Commands in trees: namespaces, mounts, signals, users.
//!
//! Needs root. Each test has a process, a mount namespace and a pid namespace of its own. A
//! process that enters a tree must have one thread: this program is also that process.

mod chroot;
mod processes;
mod support;
mod users;
mod verbs;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// Makes trials from functions, by their names.
macro_rules! trials {
    ($($module:ident: $($name:ident)+;)+) => {
        vec![$($(Trial::test(
            concat!(stringify!($module), "::", stringify!($name)),
            || { $module::$name(); Ok(()) },
        )),+),+]
    };
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let Some(ended) = verbs::done(&words) {
        return ended;
    }
    let mut trials = trials! {
        chroot:
            everything_a_builder_expects_is_there
            no_mount_or_mount_point_is_left_in_the_tree
            a_time_that_a_command_gives_a_directory_stays
            the_resolver_is_the_hosts_whatever_the_tree_has
            missing_places_are_made_and_removed
            binds_are_seen_inside_and_may_be_read_only
            a_link_in_the_tree_leads_nowhere_outside
            the_hosts_mounts_are_not_seen_and_not_changed
            the_hosts_file_has_localhost_and_the_host_name_whatever_the_tree_has
            names_and_queues_of_the_host_are_not_changed;
        processes:
            the_exit_status_of_the_command_is_passed_on
            what_cannot_be_executed_is_named
            what_the_command_leaves_running_ends_with_it
            orphans_are_reaped
            signals_to_the_parent_reach_the_command
            when_the_parent_is_killed_everything_inside_ends
            a_stop_of_the_command_stops_its_parents;
        users:
            a_user_of_the_tree_has_its_groups_and_home
            an_unknown_user_is_named
            an_ordinary_user_is_root_inside_with_all_its_ids
            an_ordinary_user_without_ids_gets_a_hint
            an_ordinary_user_without_newuidmap_gets_a_hint_to_install_it
            what_overlay_can_do_for_an_ordinary_user_is_found_by_trial;
    };
    let needs_the_tool = Trial::test("processes::it_runs_under_a_hold", || {
        processes::it_runs_under_a_hold();
        Ok(())
    });
    let is_built = synconce_testkit::build::program("synconce").is_some();
    let name = if is_built { "test" } else { "skipped: no synconce was built" };
    trials.push(needs_the_tool.with_ignored_flag(!is_built).with_kind(name));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
