"""Where a runtime differs from the specification, or from what all runtimes' command lines share, and why.

A case in this table must fail: when it passes, its row is to be taken out. Nothing is skipped by it. Only what depends on a
race may do either (`sometimes`), and is told when it fails. The versions are those of Debian 12; hutch-oci has no row."""
import fnmatch
from typing import NamedTuple

import runtime

ANY = "*"


class Known(NamedTuple):
    program: str
    before: tuple  # the first version without the difference, () for none known
    where: str     # "v2", "hybrid" or ANY
    cases: tuple   # shell patterns on module.Class.test
    reason: str
    sometimes: bool = False


TABLE = [
    # Both of them
    *[Known(program, (), ANY, ("life_test.Delete.test_a_created_one_*",), "deletes a created container without --force: on purpose")
      for program in ("runc", "crun")],
    *[Known(program, (), ANY, ("process_test.Limits.test_an_rlimit_twice_*",), "takes the last of two rlimits of one kind")
      for program in ("runc", "crun")],
    *[Known(program, (), ANY, ("mounts_test.MaskedAndReadOnly.test_relative_*",), "takes relative paths for masks")
      for program in ("runc", "crun")],
    *[Known(program, before, ANY, ("process_test.Limits.test_scheduler", "process_test.Limits.test_an_unknown_scheduler_*",
                                   "process_test.Limits.test_io_priority", "process_test.Limits.test_an_unknown_io_*"),
            "knows neither scheduler nor ioPriority") for program, before in (("runc", (1, 2)), ("crun", (1, 9)))],
    *[Known(program, before, ANY, ("scheduling_test.Scheduler.test_a_real_time_policy", "scheduling_test.Scheduler.test_what_*",
                                   "scheduling_test.Scheduler.test_an_io_priority_*"),
            "knows neither scheduler nor ioPriority") for program, before in (("runc", (1, 2)), ("crun", (1, 9)))],
    *[Known(program, before, ANY, ("scheduling_test.Cpus.test_the_final_*", "scheduling_test.Cpus.test_the_initial_*",
                                   "scheduling_test.Cpus.test_those_*", "scheduling_test.Cpus.test_lists_*"), "knows no execCPUAffinity")
      for program, before in (("runc", (1, 3)), ("crun", (1, 19)))],
    *[Known(program, before, ANY, ("scheduling_test.Cpus.test_the_callers_*",), "containers have its own CPU affinity")
      for program, before in (("runc", (1, 2, 7)), ("crun", (1, 9, 2)))],
    *[Known(program, before, ANY, ("scheduling_test.MemoryPolicy.*",), "knows no memoryPolicy")
      for program, before in (("runc", (1, 4)), ("crun", (1, 24)))],
    *[Known(program, before, ANY, ("net_devices_test.*",), "knows no netDevices") for program, before in (("runc", (1, 4)), ("crun", (1, 22)))],
    *[Known(program, (), ANY, ("escapes_test.Paths.test_image_dev_symlink",), "CVE-2026-41579, CVE-2026-47766: writes to where the image's /dev points")
      for program in ("runc", "crun")],
    *[Known(program, (), ANY, ("exec_test.Process.test_a_process_document",), "exec leaves oomScoreAdj as it is")
      for program in ("runc", "crun")],
    *[Known(program, (), ANY, ("exec_test.Process.test_an_unknown_capability_*",), "exec --cap takes what is no capability")
      for program in ("runc", "crun")],

    # runc
    Known("runc", (), ANY, ("process_test.UngrantedCapabilities.test_an_ambient_*", "process_test.UngrantedCapabilities.test_an_effective_*",
                            "process_test.UngrantedCapabilities.test_one_*"), "no warning, or a failure, for capabilities that cannot be granted"),
    Known("runc", (), ANY, ("life_test.Create.test_a_version_that_is_none_*",), "does not look at ociVersion"),
    Known("runc", (1, 2), ANY, ("mounts_test.Binds.test_id_mapped*",), "knows no idmap"),
    Known("runc", (1, 2), ANY, ("mounts_test.FileSystems.test_tmpfs_with_its_options",), "gives a tmpfs the mode of what it covers"),
    Known("runc", (), ANY, ("mounts_test.Root.test_propagation",), "rootfsPropagation is of the mounts the root comes from"),
    Known("runc", (1, 2), ANY, ("namespaces_test.New.test_each_*", "namespaces_test.New.test_time_*"), "knows no time namespaces"),
    Known("runc", (1, 2), ANY, ("namespaces_test.New.test_domainname",), "knows no domainname"),
    Known("runc", (1, 2), ANY, ("namespaces_test.Rest.test_personality",), "knows no personality"),
    Known("runc", (1, 2), ANY, ("namespaces_test.Joined.test_a_user_namespace_*",), "wants id maps for a user namespace that it joins"),
    Known("runc", (), ANY, ("namespaces_test.UserNamespace.test_a_device_in_*", "namespaces_test.Joined.test_a_network_of_*"),
          "wants id maps for a user namespace that it joins"),
    Known("runc", (), ANY, ("namespaces_test.UserNamespace.test_without_maps_*", "rootless_test.Rootless.test_without_maps_*"),
          "wants id maps for every new user namespace"),
    Known("runc", (), ANY, ("namespaces_test.UserNamespace.test_a_device_that_*", "namespaces_test.UserNamespace.test_a_devices_owner_*",
                            "namespaces_test.UserNamespace.test_no_bound_device_*", "rootless_test.Rootless.test_the_hosts_devices_*",
                            "escapes_test.Proc.test_user_namespaces_do_not_*"), "binds the host's own nodes, writable"),
    Known("runc", (), ANY, ("mounts_test.Links.test_a_link_is_copied", "mounts_test.Links.test_a_copy_over_*", "mounts_test.Links.test_the_link_itself_*",
                            "mounts_test.Links.test_a_file_on_*"), "has none of crun's options for links"),
    Known("runc", (), ANY, ("mounts_test.Added.test_added_*", "mounts_test.Added.test_links_*"), "has no command for mounts"),
    Known("runc", (), ANY, ("mounts_test.Binds.test_a_shared_mount_*",), "makes every mount a slave before it makes it shared"),
    Known("runc", (), ANY, ("mounts_test.Binds.test_id_maps_in_*", "mounts_test.FileSystems.test_a_word_*"), "passes over words that it does not know"),
    Known("runc", (), ANY, ("mounts_test.FileSystems.test_sysfs_without_*",), "mounts no sysfs in a user namespace with the host's network"),
    Known("runc", (), ANY, ("process_test.User.test_the_largest_id",), "takes no ids above 2^31-1"),
    Known("runc", (1, 2), ANY, ("seccomp_test.Filter.test_flags",), "refuses all seccomp flags"),
    Known("runc", (), ANY, ("hooks_test.Hooks.test_one_that_fails_afterwards_*",), "no further poststop hook runs after one that failed"),
    Known("runc", (), ANY, ("hooks_test.Hooks.test_the_order_*", "hooks_test.Hooks.test_the_state_*", "hooks_test.Hooks.test_a_poststart_*"),
          "runs poststart hooks at create"),
    Known("runc", (), ANY, ("terminal_test.Foreground.test_the_size_*",), "sets the size after the start", True),
    Known("runc", (), ANY, ("terminal_test.Terminal.test_lines_*",), "relays a terminal only where it has one itself"),
    Known("runc", (1, 2), ANY, ("cgroups_test.Path.test_one_that_others_*",), "only warns of a cgroup that others live in"),
    Known("runc", (1, 2), ANY, ("*.test_a_pidfd_goes_*",), "has no --pidfd-socket"),
    Known("runc", (1, 2), ANY, ("life_test.Kill.test_a_sigkill_*",), "a signal goes to the first process only"),
    Known("runc", (1, 2), "v2", ("cgroups_test.Update.test_a_limit_below_*",), "knows no checkBeforeUpdate"),
    Known("runc", (1, 3), ANY, ("namespaces_test.UserNamespace.test_a_network_*",), "joins the user namespace first"),
    Known("runc", (1, 2), ANY, ("namespaces_test.UserNamespace.test_time_*",), "knows no time namespaces"),
    Known("runc", (), ANY, ("escapes_test.Identity.test_exec_user_*",), "exec --user 4294967296 is taken"),
    Known("runc", (), ANY, ("escapes_test.Proc.test_mask_devnull_*",), "CVE-2025-31133: the image's /dev/null, whatever it is"),
    Known("runc", (), ANY, ("escapes_test.Races.test_mkdir_race_*",), "CVE-2024-45310: makes directories on the host", True),
    Known("runc", (), "v2", ("life_test.ListAndPs.test_ps_*",), "calls ps(1), which fails in a guest that tells no time of boot"),
    Known("runc", (), "v2", ("life_test.Delete.test_processes_that_*", "exec_test.Policy.*_without_a_pid_namespace"),
          "leaves the cgroup of a container whose processes take their time to end", True),

    Known("runc", (), ANY, ("commands_test.CrunsExtras.test_another_*", "commands_test.CrunsExtras.test_the_cgroup_manager_*"), "has no such option"),

    Known("runc", (), ANY, ("robust_test.Hiding.*",), "one without its first thread is stopped; without a mount namespace exec is in the host's root"),
    Known("runc", (), ANY, ("robust_test.Callers.test_names_of_*",), "names are set in the host's own namespace, given by path"),
    Known("runc", (), ANY, ("robust_test.Groups.test_a_create_that_is_killed_*", "robust_test.Groups.test_groups_too_deep_*"), "groups are left"),
    Known("runc", (), "hybrid", ("robust_test.Groups.test_one_that_freezes_*",), "one that froze itself is not ended"),
    Known("runc", (), "hybrid", ("process_test.Labels.test_no_apparmor_*",), "a profile of no confinement is an error without AppArmor"),
    Known("runc", (), ANY, ("commands_test.Commands.test_features_are_true",), "fails with the option ratime"),
    Known("runc", (1, 4), ANY, ("commands_test.Commands.test_features_of_version_*",), "knows runtime-spec 1.0"),

    # crun
    Known("crun", (), ANY, ("robust_test.Callers.test_closed_standard_*", "robust_test.Callers.test_a_caller_that_ignores_*",
                            "robust_test.Callers.test_a_file_that_is_only_read_*", "robust_test.Callers.test_descriptors_to_preserve_*",
                            "robust_test.Hiding.test_a_program_whose_main_*", "robust_test.Hiding.test_exec_stays_*"),
          "1.8.1 does not expect such callers and programs"),
    Known("crun", (), ANY, ("robust_test.Callers.test_names_of_the_hosts_*", "robust_test.Callers.test_sysctls_of_the_hosts_*"),
          "takes the host's own namespace by path for another"),
    Known("crun", (), ANY, ("robust_test.Groups.test_a_create_that_is_killed_*",), "delete does not find the cgroup of a killed create", True),
    Known("crun", (), ANY, ("rootless_test.Rootless.test_execs_oom_*",), "exec leaves oomScoreAdj as it is"),
    Known("crun", (), ANY, ("process_test.Labels.test_an_*",), "runs without the confinement that it cannot have"),
    Known("crun", (), ANY, ("process_test.UngrantedCapabilities.test_an_*", "process_test.UngrantedCapabilities.test_one_*"),
          "no warning, or a failure, for capabilities that cannot be granted"),
    Known("crun", (), ANY, ("scheduling_test.Scheduler.test_rlimits_*",), "a create that fails leaves its cgroup"),
    Known("crun", (), ANY, ("cgroups_test.Limits.test_swap_*", "cgroups_test.Limits.test_values_*", "cgroups_test.Unified.test_keys_*",
                            "escapes_test.Host.test_host_mountinfo_*", "escapes_test.Identity.test_bootstrap_*",
                            "namespaces_test.Joined.test_a_path_*", "namespaces_test.New.test_an_unknown_*",
                            "process_test.Limits.test_a_soft_limit_*", "process_test.Limits.test_an_unknown_rlimit_*"),
          "a create that fails leaves its cgroup"),
    Known("crun", (), ANY, ("commands_test.Commands.test_features*",), "has no features"),
    Known("crun", (), ANY, ("commands_test.Commands.test_spec_rootless",), "its rootless config has no maps"),
    Known("crun", (), ANY, ("cgroups_test.Events.test_statistics_*", "cgroups_test.Events.test_a_line_*"), "has no events"),
    Known("crun", (), ANY, ("cgroups_test.Path.test_one_that_others_*",), "takes a cgroup that others live in"),
    Known("crun", (), ANY, ("cgroups_test.Update.test_a_limit_below_*",), "has words of its own for it"),
    Known("crun", (), ANY, ("cgroups_test.Update.test_sizes_*",), "1.8.1 takes numbers of bytes only"),
    Known("crun", (), ANY, ("commands_test.Commands.test_debug_goes_*",), "has nothing to say with --debug"),
    Known("crun", (), ANY, ("exec_test.Start.test_a_group_above_*",), "--cgroup leads anywhere"),
    Known("crun", (), ANY, ("exec_test.Start.test_the_message_*", "exec_test.Start.test_what_is_no_*"), "has words and codes of its own"),
    Known("crun", (), ANY, ("*.test_a_pidfd_*",), "has no --pidfd-socket"),
    Known("crun", (), ANY, ("life_test.Kill.test_a_sigkill_*",), "a signal goes to the first process only"),
    Known("crun", (), ANY, ("life_test.Waiting.test_a_created_one_ends_*",), "its first process ignores what it does not catch until start"),
    Known("crun", (), ANY, ("life_test.Waiting.test_a_created_one_has_no_*",), "keeps what it inherited until start"),
    Known("crun", (), ANY, ("namespaces_test.UserNamespace.test_time_*",), "time offsets are lost with a user namespace"),
    Known("crun", (), ANY, ("process_test.Environment.test_an_empty_home_*",), "an empty HOME stays empty"),
    Known("crun", (), ANY, ("terminal_test.Terminal.test_lines_*",), "relays a terminal only where it has one itself"),
    Known("crun", (), ANY, ("cgroups_test.Pause.test_resume_*",), "resumes what is not paused"),
    Known("crun", (), ANY, ("exec_test.Policy.test_exec_equals_*",), "exec leaves noNewPrivileges out"),
    Known("crun", (), ANY, ("exec_test.Process.test_a_further_*", "exec_test.Start.test_a_capability_*"), "exec --cap replaces the capabilities"),
    Known("crun", (), ANY, ("exec_test.Process.test_environment_*", "exec_test.Start.test_the_last_*"), "exec --env replaces the environment, PATH included"),
    Known("crun", (), ANY, ("hooks_test.Hooks.test_a_path_that_*", "hooks_test.Hooks.test_a_program_that_*",
                            "hooks_test.Hooks.test_one_that_fails_before_*"), "exits with 255 for a hook that fails"),
    Known("crun", (), ANY, ("commands_test.CrunsExtras.test_a_container_that_*",), "1.8.1 has no --keep yet"),
    Known("crun", (), ANY, ("exec_test.Process.test_in_a_paused_one_when_*",), "1.8.1 has no --ignore-paused yet"),
    Known("crun", (), ANY, ("hooks_test.Hooks.*",), "is killed by SIGPIPE when a hook does not read its input", True),
    Known("crun", (), ANY, ("life_test.Create.test_ids_that_*",), "takes /x for an id"),
    Known("crun", (), ANY, ("life_test.Create.test_versions_*",), "refuses ociVersion 1.1 and later"),
    Known("crun", (), ANY, ("life_test.Kill.test_an_unknown_*",), "takes an unknown signal for another"),
    Known("crun", (), ANY, ("mounts_test.Binds.test_propagation_*", "mounts_test.Binds.test_a_shared_*"), "a mount that is to be shared is not"),
    Known("crun", (), ANY, ("mounts_test.Binds.test_a_user_namespaces_*",), "what is mounted in a user namespace can reach the host"),
    Known("crun", (), ANY, ("mounts_test.Binds.test_id_mapped_by_*", "mounts_test.Binds.test_id_mapped_with_*"), "1.8.1 has idmap without maps of the mount, and always recursive"),
    Known("crun", (), ANY, ("mounts_test.Binds.test_recursive_attributes_*",), "a mount below is missing in a user namespace"),
    Known("crun", (), ANY, ("mounts_test.FileSystems.test_a_tmpfs_has_the_mode_*",), "gives a tmpfs the file system's own mode"),
    Known("crun", (), ANY, ("mounts_test.FileSystems.test_sysfs_without_*",), "binds the host's sysfs, writable and with all that is mounted in it"),
    Known("crun", (), ANY, ("mounts_test.Binds.test_id_maps_in_*", "mounts_test.FileSystems.test_a_word_*"), "passes over words that it does not know"),
    Known("crun", (), ANY, ("mounts_test.Added.test_added_*", "mounts_test.Added.test_links_*"), "1.8.1 has no command for mounts yet"),
    Known("crun", (), ANY, ("mounts_test.Links.test_a_*", "mounts_test.Links.test_links_on_*", "mounts_test.Links.test_the_link_*", "mounts_test.Links.test_they_*"), "1.8.1 knows copy-symlink in another way, and none of the others"),
    Known("crun", (), ANY, ("namespaces_test.UserNamespace.test_a_device_in_*", "namespaces_test.UserNamespace.test_a_devices_owner_*",
                            "escapes_test.Proc.test_user_namespaces_do_not_*", "rootless_test.Rootless.test_the_hosts_devices_*"),
          "makes the nodes of a user namespace without a look at its maps, or binds the host's, writable"),
    Known("crun", (), ANY, ("mounts_test.Devices.test_an_unknown_type_*", "mounts_test.Root.test_an_unknown_*",
                            "process_test.Program.test_a_relative_working_*", "process_test.User.test_ids_out_*",
                            "namespaces_test.New.test_one_twice_*", "namespaces_test.UserNamespace.test_maps_of_*",
                            "seccomp_test.Notify.test_notify_without_*", "terminal_test.Terminal.test_a_socket_without_*"),
          "takes the value without a word"),
    Known("crun", (), ANY, ("namespaces_test.New.test_each_*", "namespaces_test.New.test_time_*"), "fails with a time namespace on new kernels"),
    Known("crun", (), ANY, ("rootless_test.Rootless.test_limits_that_*",), "runs without the limits that it cannot set"),
    Known("crun", (), ANY, ("seccomp_test.Notify.test_a_listener_gets_*",), "tells the listener ociVersion 0.2.0"),
    Known("crun", (), ANY, ("escapes_test.Proc.test_proc_overmount_*",), "CVE-2019-16884: mounts over files of procfs"),
    Known("crun", (), ANY, ("escapes_test.Identity.test_exec_user_*",), "CVE-2026-30892: exec takes what is no user"),
    Known("crun", (), ANY, ("escapes_test.Descriptors.test_exec_no_ptrace_*",), "CVE-2016-9962: a descriptor of cgroupfs is seen for a moment", True),
    Known("crun", (), ANY, ("terminal_test.Foreground.test_the_size_*",), "sets the size after the start", True),
]


def rows():
    program, version = runtime.identity()
    where = "v2" if runtime.is_unified() else "hybrid"
    return [row for row in TABLE
            if row.program == program and (not row.before or version < row.before) and row.where in (ANY, where)]


def difference(case):
    return next((row for row in rows() if any(fnmatch.fnmatchcase(case, pattern) for pattern in row.cases)), None)
