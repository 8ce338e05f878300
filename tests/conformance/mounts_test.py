"""config.json: root and mounts."""
import json
import os
import pathlib
import subprocess

from bundle import DIRECTORIES, HOST_IDS, base_config, bind, mount, shell_config, with_namespace, with_user_namespace, without_namespace
from case import Case


def options_of(text, destination):
    """Options of the last mount there, from the text of mountinfo."""
    rows = [line.split() for line in text.splitlines() if line.split()[4] == destination]
    return set(rows[-1][5].split(",")), rows[-1]


class Root(Case):
    def test_the_root_is_the_bundles(self):
        (self.bundle.rootfs / "etc/mark").write_text("here")
        self.assertEqual(self.said("cat /etc/mark"), "here")

    def test_an_absolute_path(self):
        config = shell_config("echo fine")
        config["root"]["path"] = str(self.bundle.rootfs)
        self.assertEqual(self.said(config), "fine")

    def test_writable_by_default(self):
        config = shell_config("echo text >/yard/file")
        del config["root"]["readonly"]
        self.run_to_end(config)
        self.assertEqual((self.bundle.rootfs / "yard/file").read_text(), "text\n")

    def test_read_only(self):
        config = shell_config("touch /yard/file; touch /tmp2 2>/dev/null; echo $?; touch /dev/shm/x && echo shm")
        config["root"]["readonly"] = True
        self.assertEqual(self.said(config).split(), ["1", "shm"])
        self.assertFalse((self.bundle.rootfs / "yard/file").exists())

    def test_a_read_only_root_stays_so_with_privileges(self):
        config = shell_config("mount -o remount,rw / 2>/dev/null; touch /yard/file 2>/dev/null || echo refused")
        config["root"]["readonly"] = True
        self.assertEqual(self.said(config), "refused")

    def test_the_hosts_root_is_not_reachable(self):
        said = self.said("ls /../..; ls -d /proc/1/root/../*")
        self.assertEqual(set(said.split()), set(DIRECTORIES) | {f"/proc/1/root/../{name}" for name in DIRECTORIES})

    def test_nothing_of_the_hosts_is_mounted_inside(self):
        said = self.said("cut -d ' ' -f 5 /proc/self/mountinfo")
        extra = set(said.split()) - {"/", "/proc", "/dev", "/dev/pts", "/dev/shm"}
        self.assertEqual({path for path in extra if not path.startswith(("/dev/", "/proc/"))}, set())

    def test_without_pivot_root(self):
        self.assertEqual(self.said("ls -d /etc/passwd", "--no-pivot"), "/etc/passwd")

    def test_a_relative_bundle_path(self):
        self.bundle.write(shell_config("echo fine"))
        done = self.runtime.call("run", "--bundle", "bundle", self.name(), cwd=self.work)
        self.assertEqual(done.stdout.strip(), "fine")

    def test_propagation(self):
        for value, mark in (("private", None), ("slave", "master:"), ("shared", "shared:"), ("unbindable", "unbindable")):
            with self.subTest(value):
                config = shell_config("cat /proc/self/mountinfo")
                config["linux"]["rootfsPropagation"] = value
                _, row = options_of(self.said(config), "/")
                optional = row[6:row.index("-")]
                if value in ("shared", "unbindable"):
                    self.assertTrue(any(word.startswith(mark) for word in optional), row)
                else:
                    self.assertFalse(any(word.startswith("shared:") for word in optional), row)

    def test_an_unknown_propagation_is_an_error(self):
        config = base_config("true")
        config["linux"]["rootfsPropagation"] = "nosuch"
        self.refused(config)


class Binds(Case):
    def setUp(self):
        super().setUp()
        self.data = self.work / "data"
        self.data.mkdir()
        (self.data / "file").write_text("data")

    def test_a_directory(self):
        config = shell_config("cat /yard/file; echo more >/yard/more")
        config["mounts"].append(bind(self.data, "/yard"))
        self.assertEqual(self.said(config), "data")
        self.assertEqual((self.data / "more").read_text(), "more\n")

    def test_a_file(self):
        config = shell_config("cat /yard/one")
        config["mounts"].append(bind(self.data / "file", "/yard/one"))
        self.assertEqual(self.said(config), "data")

    def test_the_type_may_be_left_out(self):
        config = shell_config("cat /yard/file")
        row = bind(self.data, "/yard")
        del row["type"]
        config["mounts"].append(row)
        self.assertEqual(self.said(config), "data")

    def test_a_relative_source_is_relative_to_the_bundle(self):
        (self.bundle.path / "beside").mkdir()
        (self.bundle.path / "beside/file").write_text("beside")
        config = shell_config("cat /yard/file")
        config["mounts"].append(bind("beside", "/yard"))
        self.assertEqual(self.said(config, cwd="/"), "beside")

    def test_destinations_that_are_not_there_are_made(self):
        config = shell_config("cat /a/b/file /a/c")
        config["mounts"] += [bind(self.data, "/a/b"), bind(self.data / "file", "/a/c")]
        self.assertEqual(self.said(config), "datadata")

    def test_a_source_that_is_not_there_is_an_error(self):
        config = base_config("true")
        config["mounts"].append(bind(self.work / "nowhere", "/yard"))
        self.refused(config, "nowhere|no such file")

    def test_read_only_and_other_flags(self):
        config = shell_config("cat /proc/self/mountinfo; touch /yard/x 2>/dev/null || echo refused")
        config["mounts"].append(bind(self.data, "/yard", "ro", "nosuid", "nodev", "noexec"))
        said = self.said(config)
        self.assertTrue({"ro", "nosuid", "nodev", "noexec"} <= options_of(said.removesuffix("refused"), "/yard")[0])
        self.assertTrue(said.endswith("refused"))

    def test_bind_is_one_mount_and_rbind_is_all(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False)
        (self.data / "sub").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data / "sub"], check=True)
        (self.data / "sub/inner").write_text("inner")
        config = shell_config("ls /yard/sub /var/sub | tr '\\n' ' '")
        config["mounts"] += [mount("/yard", "bind", str(self.data), ["bind"]), bind(self.data, "/var")]
        self.assertEqual(self.said(config).split(), ["/var/sub:", "inner", "/yard/sub:"])
        subprocess.run(["umount", "-l", self.data], check=True)

    def test_recursive_read_only(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False, capture_output=True)
        (self.data / "sub").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data / "sub"], check=True)
        config = shell_config("for d in /yard /yard/sub; do touch $d/x 2>/dev/null || echo refused; done")
        config["mounts"].append(bind(self.data, "/yard", "rro"))
        said = self.said(config)
        subprocess.run(["umount", "-l", self.data], check=True)
        self.assertEqual(said.split(), ["refused", "refused"])

    def test_later_mounts_lie_over_earlier_ones(self):
        other = self.work / "other"
        other.mkdir()
        (other / "file").write_text("other")
        config = shell_config("cat /yard/file")
        config["mounts"] += [bind(self.data, "/yard"), bind(other, "/yard")]
        self.assertEqual(self.said(config), "other")

    def test_propagation_of_a_mount(self):
        for value in ("private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable"):
            config = shell_config("cat /proc/self/mountinfo")
            config["mounts"].append(bind(self.data, "/yard", value))
            _, row = options_of(self.said(config), "/yard")
            optional = " ".join(row[6:row.index("-")])
            if "shared" in value:
                self.assertIn("shared:", optional)
            if "unbindable" in value:
                self.assertIn("unbindable", optional)
            if "private" in value:
                self.assertEqual(optional, "")

    def test_propagation_of_a_mount_goes_before_the_roots(self):
        config = shell_config("cat /proc/self/mountinfo")
        config["linux"]["rootfsPropagation"] = "rprivate"
        config["mounts"] += [bind(self.data, "/yard", "rshared"), bind(self.data, "/var")]
        said = self.said(config)
        optional = {path: " ".join(options_of(said, path)[1][6:]).split(" - ")[0] for path in ("/yard", "/var")}
        self.assertIn("shared:", optional["/yard"])
        self.assertNotRegex(optional["/var"], "shared|master")

    def shared_source(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False, capture_output=True)
        subprocess.run(["mount", "--make-private", self.data], check=True)
        subprocess.run(["mount", "--make-shared", self.data], check=True)
        return next(word for word in options_of(pathlib.Path("/proc/self/mountinfo").read_text(), str(self.data))[1] if word.startswith("shared:"))

    def test_a_shared_mount_is_the_hosts_peer(self):
        peer = self.shared_source()
        config = shell_config("cat /proc/self/mountinfo")
        config["linux"]["rootfsPropagation"] = "rprivate"
        config["mounts"] += [mount("/yard", "bind", str(self.data), ["bind", "shared"])]
        said = self.said(config)
        subprocess.run(["umount", "-l", self.data], check=True)
        self.assertIn(peer, options_of(said, "/yard")[1])

    def test_a_user_namespaces_mounts_do_not_reach_the_host(self):
        peer = self.shared_source()
        for root in ("rshared", "rprivate"):
            config = shell_config("cat /proc/self/mountinfo")
            with_user_namespace(config)
            config["linux"]["rootfsPropagation"] = root
            config["mounts"] += [mount("/yard", "bind", str(self.data), ["rbind", "rshared"])]
            self.assertNotIn(peer, options_of(self.said(config), "/yard")[1])
        subprocess.run(["umount", "-l", self.data], check=True)

    def test_rbind_beside_bind_is_all(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False, capture_output=True)
        (self.data / "sub").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data / "sub"], check=True)
        (self.data / "sub/inner").write_text("inner")
        config = shell_config("ls /yard/sub")
        config["mounts"].append(mount("/yard", "bind", str(self.data), ["rbind", "bind"]))
        said = self.said(config)
        subprocess.run(["umount", "-l", self.data], check=True)
        self.assertEqual(said, "inner")

    def test_id_mapped(self):
        os.chown(self.data / "file", 1000, 1000)
        config = shell_config("stat -c %u:%g /yard/file")
        row = bind(self.data, "/yard", "idmap")
        row["uidMappings"] = row["gidMappings"] = [{"containerID": 1000, "hostID": 2000, "size": 10}]
        config["mounts"].append(row)
        self.assertEqual(self.said(config), "2000:2000")

    def test_id_mapped_in_a_user_namespace(self):
        self.bundle.give(HOST_IDS, HOST_IDS)
        os.chown(self.data / "file", 5, 6)
        config = shell_config("stat -c %u:%g /yard/file")
        with_user_namespace(config)
        row = bind(self.data, "/yard")
        row["uidMappings"] = row["gidMappings"] = [{"containerID": 0, "hostID": HOST_IDS, "size": 1000}]
        config["mounts"].append(row)
        self.assertEqual(self.said(config), "5:6")


    def test_id_mapped_by_the_containers_own_maps(self):
        self.bundle.give(HOST_IDS, HOST_IDS)
        os.chown(self.data / "file", 5, 6)
        for join in (False, True):
            config = shell_config("stat -c %u:%g /yard/file; touch /yard/new")
            with_user_namespace(config)
            if join:
                first = self.sleeper(with_user_namespace)
                del config["linux"]["uidMappings"], config["linux"]["gidMappings"]
                with_namespace(config, "user", f"/proc/{self.pid(first)}/ns/user")
            config["mounts"].append(bind(self.data, "/yard", "ridmap"))
            self.data.chmod(0o777)
            self.assertEqual(self.said(config), "5:6")
            self.assertEqual((self.data / "new").stat().st_uid, 0)
            (self.data / "new").unlink()

    def test_id_mapped_with_all_below(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False, capture_output=True)
        (self.data / "sub").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data / "sub"], check=True)
        for word, below in (("idmap", "0:0"), ("ridmap", "2000:2000")):
            config = shell_config("stat -c %u:%g /yard /yard/sub")
            row = bind(self.data, "/yard", word)
            row["uidMappings"] = row["gidMappings"] = [{"containerID": 0, "hostID": 2000, "size": 10}]
            config["mounts"].append(row)
            self.assertEqual(self.said(config).split(), ["2000:2000", below])
        subprocess.run(["umount", "-l", self.data], check=True)

    def test_recursive_attributes_in_a_user_namespace(self):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.data], check=False, capture_output=True)
        (self.data / "sub").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.data / "sub"], check=True)
        config = shell_config("cat /proc/self/mountinfo")
        with_user_namespace(config)
        config["mounts"].append(bind(self.data, "/yard", "rro", "rnosuid", "rnoexec"))
        said = self.said(config)
        subprocess.run(["umount", "-l", self.data], check=True)
        for path in ("/yard", "/yard/sub"):
            self.assertLessEqual({"ro", "nosuid", "noexec"}, options_of(said, path)[0])

    def test_id_maps_in_an_options_word_are_an_error(self):
        config = base_config("true")
        config["mounts"].append(bind(self.data, "/yard", "idmap=uids=0-1-10;gids=0-1-10"))
        self.refused(config, "idmap=")


class Links(Case):
    """crun's options of binds."""
    def setUp(self):
        super().setUp()
        self.link = self.work / "link"
        self.link.symlink_to(self.work / "there")
        (self.work / "there").write_text("there")
        (self.bundle.rootfs / "yard/end").symlink_to("nowhere")

    def config(self, script, destination, *options):
        config = shell_config(script)
        config["mounts"].append(bind(self.link, destination, *options))
        return config

    def test_a_link_is_copied(self):
        for change in (lambda config: None, with_user_namespace):
            config = self.config("readlink /a/sym/link", "/a/sym/link", "copy-symlink")
            change(config)
            if change is with_user_namespace:
                self.bundle.give(HOST_IDS, HOST_IDS)
            self.assertEqual(self.said(config), str(self.work / "there"))
            self.assertFalse((self.bundle.rootfs / "yard/there").exists())

    def test_a_link_is_copied_where_the_image_leads_and_not_out_of_it(self):
        (self.work / "victim").mkdir()
        (self.bundle.rootfs / "var/out").symlink_to(f"/../../../..{self.work}/victim")
        self.run_to_end(self.config("true", "/var/out/link", "copy-symlink"))
        self.assertEqual(list((self.work / "victim").iterdir()), [])

    def test_what_is_no_link_is_bound_all_the_same(self):
        self.link = self.work / "there"
        self.assertEqual(self.said(self.config("cat /yard/file", "/yard/file", "copy-symlink")), "there")

    def test_a_copy_over_something_else_is_an_error(self):
        self.refused(self.config("true", "/etc/passwd", "copy-symlink"))

    def test_the_link_itself_on_a_link(self):
        config = self.config("readlink /yard/end", "/yard/end", "src-nofollow", "dest-nofollow")
        self.assertEqual(self.said(config), str(self.work / "there"))
        self.assertFalse((self.bundle.rootfs / "yard/nowhere").exists())

    def test_a_file_on_a_link(self):
        self.assertEqual(self.said(self.config("cat /yard/end", "/yard/end", "dest-nofollow")), "there")
        self.assertFalse((self.bundle.rootfs / "yard/nowhere").exists())

    def test_links_on_the_way_stay_in_the_root(self):
        (self.work / "victim").mkdir()
        (self.bundle.rootfs / "var/out").symlink_to(f"/../../../..{self.work}/victim")
        self.assertEqual(self.said(self.config("cat /var/out/file", "/var/out/file", "dest-nofollow")), "there")
        self.assertEqual(list((self.work / "victim").iterdir()), [])

    def test_nothing_of_procfs_is_covered(self):
        self.refused(self.config("true", "/proc/self", "src-nofollow", "dest-nofollow"), "proc")

    def test_they_are_of_binds(self):
        for word in ("copy-symlink", "src-nofollow"):
            config = base_config("true")
            config["mounts"].append(mount("/yard", "tmpfs", options=(word,)))
            self.refused(config, word)


class Added(Case):
    """crun's `mounts` command, to a container that runs."""
    def setUp(self):
        super().setUp()
        (self.work / "data").mkdir()
        (self.work / "data/file").write_text("data")

    def change(self, action, name, mounts, check=True):
        file = self.work / "mounts.json"
        file.write_text(json.dumps(mounts))
        return self.runtime.call("mounts", action, name, file, check=check)

    def test_added_and_removed(self):
        mounts = [bind(self.work / "data", "/made/here", "ro"), mount("/made/here2", "tmpfs", options=("size=64k",)), bind(self.work / "data/file", "/etc/one")]
        look = "cat /made/here/file /etc/one; awk '$5 ~ /made/ { print $5 }' /proc/self/mountinfo"
        before = pathlib.Path("/proc/self/mountinfo").read_text()
        self.bundle.give(HOST_IDS, HOST_IDS)
        for change in (None, with_user_namespace):
            name = self.sleeper(change)
            self.change("add", name, mounts)
            self.assertEqual(self.exec(name, look).stdout.split(), ["datadata/made/here", "/made/here2"])
            self.assertNotEqual(self.exec(name, "touch /made/here/new", check=False).returncode, 0)
            self.change("remove", name, mounts)
            self.assertEqual(self.exec(name, look, check=False).stdout, "")
            self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), before)
            self.assertEqual((self.work / "data/file").read_text(), "data")
            self.runtime.call("delete", "--force", name)
            self.assertEqual(os.stat(self.bundle.rootfs / "made/here2").st_uid, HOST_IDS if change else 0)
            for path in ("made/here", "made/here2", "made"):
                (self.bundle.rootfs / path).rmdir()

    def test_links_stay_in_the_root(self):
        victim = self.work / "victim"
        victim.mkdir()
        name = self.sleeper()
        self.exec(name, f"ln -s /../../../..{victim} /yard/out")
        self.change("add", name, [bind(self.work / "data", "/yard/out/below")])
        self.assertEqual(list(victim.iterdir()), [])
        self.assertEqual(self.exec(name, "cat /yard/out/below/file").stdout, "data")
        self.change("remove", name, [bind(self.work / "data", "/yard/out/below")])

    def test_nothing_of_procfs_is_covered(self):
        name = self.sleeper()
        self.exec(name, "ln -s /proc /yard/link")
        for path in ("/proc", "/proc/sys/kernel", "/yard/link/self", "/yard/link/1/attr"):
            self.assertNotEqual(self.change("add", name, [bind(self.work / "data", path)], check=False).returncode, 0)
        self.assertEqual(self.exec(name, "grep -c ' /proc' /proc/self/mountinfo").stdout.strip(), "1")

    def test_what_would_show_the_hosts_namespaces_is_refused(self):
        name = self.sleeper()
        for kind in ("proc", "sysfs", "mqueue", "cgroup2"):
            self.assertNotEqual(self.change("add", name, [mount("/yard", kind)], check=False).returncode, 0)
        self.assertNotIn("/yard", self.exec(name, "cat /proc/self/mountinfo").stdout)

    def test_removing_what_is_not_mounted_is_an_error(self):
        self.assertNotEqual(self.change("remove", self.sleeper(), [bind(self.work / "data", "/yard")], check=False).returncode, 0)


class FileSystems(Case):
    def test_tmpfs_with_its_options(self):
        config = shell_config("cat /proc/self/mountinfo; stat -c %a /yard")
        config["mounts"].append(mount("/yard", "tmpfs", options=("nosuid", "noexec", "size=1m", "mode=1750")))
        said = self.said(config)
        text, mode = said.rsplit("\n", 1)
        options, row = options_of(text, "/yard")
        self.assertTrue({"nosuid", "noexec"} <= options)
        self.assertIn("size=1024k", row[-1])
        self.assertEqual(mode, "1750")

    def test_a_tmpfs_with_the_files_that_were_there(self):
        (self.bundle.rootfs / "yard/sub").mkdir()
        (self.bundle.rootfs / "yard/sub/file").write_text("copied")
        os.chown(self.bundle.rootfs / "yard/sub/file", 7, 8)
        config = shell_config("cat /yard/sub/file; stat -c ' %u:%g' /yard/sub/file; touch /yard/new")
        config["mounts"].append(mount("/yard", "tmpfs", options=("tmpcopyup",)))
        self.assertEqual(self.said(config), "copied 7:8")
        self.assertFalse((self.bundle.rootfs / "yard/new").exists())

    def test_copied_in_a_user_namespace_with_owners_of_all_kinds(self):
        self.bundle.give(HOST_IDS, HOST_IDS)
        (self.bundle.rootfs / "yard/file").write_text("copied")
        os.link(self.bundle.rootfs / "yard/file", self.bundle.rootfs / "yard/twice")
        os.chown(self.bundle.rootfs / "yard/file", HOST_IDS + 70000, HOST_IDS + 8)
        config = shell_config("stat -c '%u:%g' /yard/file; cat /yard/twice; ls -A /yard | wc -l")
        with_user_namespace(config)
        for name in ("uidMappings", "gidMappings"):
            config["linux"][name][0]["size"] = 80000
        config["mounts"].append(mount("/yard", "tmpfs", options=("tmpcopyup",)))
        self.assertEqual(self.said(config).split(), ["70000:8", "copied2"])

    def test_copied_with_files_that_are_not_mapped(self):
        self.bundle.give(HOST_IDS, HOST_IDS)
        (self.bundle.rootfs / "yard/file").write_text("copied")
        os.chown(self.bundle.rootfs / "yard/file", 0, 0)
        config = shell_config("cat /yard/file")
        with_user_namespace(config)
        config["mounts"].append(mount("/yard", "tmpfs", options=("tmpcopyup",)))
        self.assertEqual(self.said(config), "copied")

    def test_a_tmpfs_has_the_mode_of_what_it_covers_or_its_own(self):
        (self.bundle.rootfs / "yard").chmod(0o710)
        config = shell_config("stat -c %a /yard /new/one")
        config["mounts"] += [mount("/yard", "tmpfs"), mount("/new/one", "tmpfs")]
        self.assertEqual(self.said(config).split(), ["710", "1777"])

    def test_sysfs_without_a_network_of_its_own(self):
        for change in (with_user_namespace, lambda config: with_namespace(config, "user")):
            config = shell_config("cat /proc/self/mountinfo; ls /sys/fs/cgroup | wc -l")
            change(config)
            without_namespace(config, "network")
            config["mounts"].append(mount("/sys", "sysfs", options=("nosuid", "noexec", "nodev", "ro")))
            said, count = self.said(config).rsplit("\n", 1)
            self.assertLessEqual({"ro", "nosuid", "noexec", "nodev"}, options_of(said, "/sys")[0])
            self.assertEqual(count, "0", "the host's mounts came along")

    def test_a_word_that_no_cgroup_file_system_knows_is_an_error(self):
        for cgroup in (True, False):
            config = base_config("true")
            if cgroup:
                config["linux"]["namespaces"].append({"type": "cgroup"})
            config["mounts"].append(mount("/sys/fs/cgroup", "cgroup", options=("ro", "nosuchword")))
            self.refused(config, "invalid argument")

    def test_sysfs_read_only(self):
        config = shell_config("ls -d /sys/class/net/lo; cat /proc/self/mountinfo")
        config["mounts"].append(mount("/sys", "sysfs", options=("nosuid", "noexec", "nodev", "ro")))
        said = self.said(config)
        self.assertTrue(said.startswith("/sys/class/net/lo"))
        self.assertIn("ro", options_of(said.split("\n", 1)[1], "/sys")[0])

    def test_cgroup_is_the_containers_own(self):
        config = shell_config("cat /proc/self/cgroup; for d in $(awk '/ - cgroup/ { print $5 }' /proc/self/mountinfo); do "
                              "ls $d >/dev/null && mkdir $d/x 2>/dev/null || echo refused; done")
        config["linux"]["namespaces"].append({"type": "cgroup"})
        config["mounts"] += [mount("/sys", "sysfs", options=("nosuid", "noexec", "nodev", "ro")),
                             mount("/sys/fs/cgroup", "cgroup", options=("nosuid", "noexec", "nodev", "ro"))]
        said = self.said(config).split()
        self.assertIn("0::/", said)
        self.assertEqual({word for word in said if ":" not in word}, {"refused"})

    def test_data_of_the_file_system_is_passed_on(self):
        config = base_config("true")
        config["mounts"].append(mount("/yard", "tmpfs", options=("nosuch=1",)))
        self.refused(config)

    def test_an_unknown_type_is_an_error(self):
        config = base_config("true")
        config["mounts"].append(mount("/yard", "nosuchfs"))
        self.refused(config)

    def test_access_times(self):
        for value in ("noatime", "relatime"):
            config = shell_config("cat /proc/self/mountinfo")
            config["mounts"].append(mount("/yard", "tmpfs", options=(value,)))
            self.assertIn(value, options_of(self.said(config), "/yard")[0])


class Devices(Case):
    def test_the_default_ones_are_there(self):
        rows = self.said("for d in null zero full random urandom tty; do stat -c '%n %t:%T %F' /dev/$d; done").splitlines()
        numbers = dict(null="1:3", zero="1:5", full="1:7", random="1:8", urandom="1:9", tty="5:0")
        self.assertEqual(rows, [f"/dev/{name} {number} character special file" for name, number in numbers.items()])

    def test_they_can_be_used(self):
        said = self.said("echo x >/dev/null && head -c 3 /dev/zero | wc -c; head -c 2 /dev/urandom | wc -c; (echo x >/dev/full) 2>/dev/null || echo full")
        self.assertEqual(said.split(), ["3", "2", "full"])

    def test_the_symbolic_links_are_there(self):
        said = self.said("for l in fd stdin stdout stderr ptmx; do readlink /dev/$l; done").split()
        self.assertEqual(said[:4], ["/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"])
        self.assertIn(said[4], ("pts/ptmx", "/dev/pts/ptmx"))

    def test_a_device_of_the_config(self):
        config = shell_config("stat -c '%t:%T %a %u:%g %F' /dev/extra; echo x >/dev/extra && echo written; stat -c %t:%T /dev/sub/other")
        config["linux"]["devices"] = [{"path": "/dev/extra", "type": "c", "major": 1, "minor": 3, "fileMode": 0o640, "uid": 5, "gid": 6},
                                      {"path": "/dev/sub/other", "type": "c", "major": 1, "minor": 5}]
        config["linux"]["resources"]["devices"].append({"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"})
        self.assertEqual(self.said(config).splitlines(), ["1:3 640 5:6 character special file", "written", "1:5"])

    def test_a_fifo(self):
        config = shell_config("[ -p /dev/pipe ] && echo yes")
        config["linux"]["devices"] = [{"path": "/dev/pipe", "type": "p", "fileMode": 0o600}]
        self.assertEqual(self.said(config), "yes")

    def test_an_unknown_type_is_an_error(self):
        config = base_config("true")
        config["linux"]["devices"] = [{"path": "/dev/x", "type": "x", "major": 1, "minor": 3}]
        self.refused(config)

    def test_what_is_not_allowed_cannot_be_opened(self):
        config = shell_config("mknod /yard/mem c 1 1; cat /yard/mem >/dev/null 2>&1 || echo refused")
        for kind in ("bounding", "effective", "permitted"):
            config["process"]["capabilities"][kind] = ["CAP_MKNOD", "CAP_DAC_OVERRIDE", "CAP_SYS_RAWIO"]
        self.assertEqual(self.said(config), "refused")

    def test_later_rules_go_before_earlier_ones(self):
        config = shell_config("for d in one two; do dd if=/dev/$d count=0 2>/dev/null && echo $d; done; true")
        config["linux"]["devices"] = [{"path": "/dev/one", "type": "c", "major": 1, "minor": 11},
                                      {"path": "/dev/two", "type": "c", "major": 1, "minor": 3}]
        config["linux"]["resources"]["devices"] += [{"allow": True, "type": "c", "major": 1, "minor": 11, "access": "rwm"},
                                                    {"allow": False, "type": "c", "major": 1, "minor": 11, "access": "rwm"}]
        self.assertEqual(self.said(config), "two")


class MaskedAndReadOnly(Case):
    def test_masked_files_are_empty_and_directories_too(self):
        (self.bundle.rootfs / "yard/secret").write_text("secret")
        (self.bundle.rootfs / "etc/private").mkdir()
        (self.bundle.rootfs / "etc/private/key").write_text("key")
        config = shell_config("cat /yard/secret /proc/cmdline; ls /etc/private; echo end")
        config["linux"]["maskedPaths"] = ["/yard/secret", "/etc/private", "/proc/cmdline", "/proc/no-such-file"]
        self.assertEqual(self.said(config), "end")

    def test_read_only_paths(self):
        (self.bundle.rootfs / "yard/sub").mkdir()
        config = shell_config("for f in /yard/sub/x /yard/x; do touch $f 2>/dev/null || echo refused $f; done; "
                              "(echo 1 >/proc/sys/kernel/shmmni) 2>/dev/null || echo refused proc")
        config["linux"]["readonlyPaths"] = ["/yard/sub", "/proc/sys", "/no/such/path"]
        self.assertEqual(self.said(config).splitlines(), ["refused /yard/sub/x", "refused proc"])

    def test_relative_ones_are_errors(self):
        for key in ("maskedPaths", "readonlyPaths"):
            config = base_config("true")
            config["linux"][key] = ["proc/kcore"]
            self.refused(config)
