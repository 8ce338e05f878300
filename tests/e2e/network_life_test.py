"""A policy through its life: refused when it could be misread, changed while connections are open, bounded, and kept through crashes."""
import json
import os
import pathlib
import signal
import time

import egress_rows
import host_network
import internet
import network_case
from daemon import wait_until
from internet import OTHER, SHARED
from network_case import BARE, SECRET, TOOLS, NetworkCase

CURL = "curl -sS "
GOOD = {"mode": "allowlist", "allow": ["good.test"]}
BAD_LISTS = [  # what is asked for, a regular expression of what the refusal says
    (["*"], "every name"),
    (["*.com"], "anyone|public suffix"),
    (["com"], "public suffix"),
    (["*.co.uk"], "anyone|public suffix"),
    (["https://good.test"], "URL"),
    (["https://good.test/path"], "URL"),
    (["good.test/path"], "path"),
    (["user@good.test"], "user"),
    (["g\u043e\u043ed.test"], "ASCII"),          # Cyrillic letters
    (["b\u00fccher.example"], "ASCII"),
    (["xn--gd-fmca.test"], "script|mix|stands for nothing"),  # the same, encoded
    (["fe80::1%eth0"], "zone"),
    (["[fe80::1%eth0]:443"], "zone"),
    (["fe80::%eth0/64"], "zone"),
    (["10.0.0.1"], "address"),
    (["0x7f.1"], "address"),
    (["2130706433"], "address"),
    (["0.0.0.0/0"], "closed|among others|holds"),
    (["::/0"], "closed|among others|holds"),
    (["10.0.0.1/8"], "bits"),
    (["10.0.0.0/33"], "prefix"),
    (["good.test:0"], "port"),
    (["good.test:70000"], "port"),
    (["good.test:90-80"], "port|range"),
    (["a.*.test"], "label"),
    (["good..test"], "label|empty"),
    (["-good.test"], "hyphen"),
    (["good_.test "], "character"),
    ([""], "empty"),
    (["localhost"], "loopback"),
    ([7], "."),
    ("good.test", "."),
    ([{"host": "good.test", "cidr": "11.0.0.0/8"}], "."),
    ([{"host": "good.test", "pathes": ["/"]}], "pathes"),
    ([{"host": "good.test", "paths": ["a"]}], "paths"),
    ([{"host": "good.test", "tls": "intercept"}], "tls"),
]


class Refusals(NetworkCase):
    def test_a_list_that_could_be_misread_is_refused_with_the_reason(self):
        box = self.box(GOOD)
        before = self.network(box)
        for allow, why in BAD_LISTS:
            with self.subTest(allow=allow):
                wanted = {"mode": "allowlist", "allow": allow}
                error = self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": TOOLS, "network": wanted})
                self.assertRegex(error["message"], why)
                self.assertIn("network.allow", json.dumps(error))
                self.refused("invalid_argument", "PATCH", f"/v1/sandboxes/{box}", {"network": wanted})
        self.assertEqual(self.network(box), before)
        self.assertEqual([sandbox["id"] for sandbox in self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]], [box])

    def test_other_mistakes_are_refused(self):
        for network in ({"mode": "none", "allow": ["good.test"]}, {"mode": "open", "allow": ["good.test"]}, {"mode": "half"}, {"mode": 1}, {"mode": "none", "colour": 1},
                        {"mode": "allowlist", "limits": {"connections": -1}}, {"mode": "allowlist", "allow": ["good.test"] * 5000}, "none"):
            with self.subTest(network=str(network)[:80]):
                status, _, body = self.client.raw("POST", "/v1/sandboxes", {"image": TOOLS, "network": network})
                self.assertIn(status, (400, 413, 422, 429), body)
        self.refused("not_found", "POST", "/v1/sandboxes", {"image": TOOLS, "network": {"mode": "allowlist", "allow": ["preset:nothing"]}})
        self.refused("not_found", "POST", "/v1/sandboxes", {"image": TOOLS, "network": {"mode": "allowlist", "allow": [{"host": "good.test", "secret": "nothing"}]}})
        self.assertEqual(self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"], [])


class Changes(NetworkCase):
    def begin(self, box, command):
        self.shell(box, "rm -f /tmp/begun")
        process = self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": ["/bin/sh", "-c", command + "; touch /tmp/ended"]})
        self.shell(box, "until [ -e /tmp/begun ] || [ -e /tmp/ended ]; do sleep 0.02; done")
        return process

    def test_what_is_no_longer_allowed_is_closed_and_what_is_new_works(self):
        box, position = self.box(GOOD), self.net.position()
        # One through the catch, one in a tunnel of TLS.
        self.begin(box, BARE + f"probe hold {SHARED} 80 good.test /trickle; touch /tmp/one")
        self.begin(box, "curl -sSN https://good.test/trickle | (head -c 5; touch /tmp/begun; cat) >/dev/null; touch /tmp/two")
        self.assertEqual(self.shell(box, "ls /tmp | grep -E 'one|two|ended'"), "")
        self.change(box, {"mode": "allowlist", "allow": ["bad.test"]})
        wait_until(lambda: self.shell(box, "ls /tmp | grep -E 'one|two'") == "one\ntwo", "both ends are closed")
        wait_until(lambda: len([entry for entry in self.net.since(position) if entry["kind"] == "gone"]) == 2, "the server sees it too")
        self.assertRegex(self.shell(box, CURL + "http://bad.test/now"), "^served GET bad.test /now")
        self.assertRegex(self.shell(box, CURL + "http://good.test/now"), "not in the allowlist|not allowed")
        self.assertEqual(self.network(box)["mode"], "allowlist")

    def test_what_stays_allowed_stays_open(self):
        box = self.box({"mode": "allowlist", "allow": ["good.test", "bad.test"]})
        self.begin(box, BARE + f"probe hold {SHARED} 80 good.test /trickle; touch /tmp/one")
        self.change(box, GOOD)
        self.shell(box, CURL + "http://good.test/")
        self.assertEqual(self.shell(box, "ls /tmp | grep one"), "")

    def test_every_mode_becomes_every_other(self):
        box = self.box({"mode": "none"})
        pid = self.client.get(box)["pid"]
        for mode in ("allowlist", "none", "open", "allowlist", "open", "none"):
            with self.subTest(mode):
                self.change(box, {"mode": mode, **({"allow": ["good.test"]} if mode == "allowlist" else {})})
                self.assertEqual(self.client.get(box)["network"]["mode"], mode)
                good, bad = (self.shell(box, BARE + f"probe caught {SHARED} 'GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n'") for name in ("good.test", "bad.test"))
                self.assertRegex(good, "^refused: E" if mode == "none" else "^worked: HTTP/1.1 200")
                self.assertRegex(bad, {"none": "^refused: E", "open": "^worked: HTTP/1.1 200", "allowlist": r"^refused: HTTP/1\.1 403"}[mode])
                self.assertEqual(bool(host_network.listeners(pid)), mode != "none", host_network.listeners(pid))

    def test_limits_hold(self):
        box = self.box({**GOOD, "limits": {"total_bytes": 1 << 20}})
        self.assertLess(int(self.shell(box, CURL + "http://good.test/bytes/8388608 2>/dev/null | wc -c")), 1 << 20)
        self.assertRegex(self.shell(box, CURL + "-w '%{http_code}' http://good.test/"), "403$")
        counters = self.network(box)["counters"]
        self.assertLessEqual(counters["sent_bytes"] + counters["received_bytes"], (1 << 20) + (1 << 16))
        wait_until(lambda: any("total_bytes" in entry["reason"] or "quota" in entry["reason"] or "bytes" in entry["reason"] for entry in self.network(box)["denied"]), "told")

    def test_connections_are_bounded(self):
        box = self.box({**GOOD, "limits": {"connections": 2}})
        for number in range(2):
            self.begin(box, BARE + f"probe hold {SHARED} 80 good.test /trickle; touch /tmp/{number}")
        self.assertRegex(self.shell(box, BARE + f"probe caught {SHARED} 'GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n'"), "^refused: ")
        self.change(box, {**GOOD, "limits": {"connections": 3}})
        self.assertRegex(self.shell(box, BARE + f"probe caught {SHARED} 'GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n'"), "^worked: HTTP/1.1 200")

    def test_bandwidth_is_bounded(self):
        box = self.box({**GOOD, "limits": {"bytes_per_second": 1 << 19}})
        began = time.monotonic()
        self.assertEqual(self.shell(box, CURL + "http://good.test/bytes/2097152 | wc -c"), "2097152")
        # Four seconds' worth, of which one may have been saved up.
        self.assertGreater(time.monotonic() - began, 2)


class Secrets(NetworkCase):
    ALLOW = ["good.test", {"host": "secret.test", "secret": "token"}, {"host": "tls.test", "secret": "token", "tls": "originate"}]

    def headers(self, box, command, **wanted):
        position = self.net.position()
        self.assertRegex(self.shell(box, command), "^served GET")
        entry = [entry for entry in self.net.since(position) if entry["kind"] == "http"][-1]
        self.assertEqual({key: entry[key] for key in wanted}, wanted)
        return entry["headers"]

    def test_they_arrive_where_they_belong_and_are_never_inside(self):
        box = self.box({"mode": "allowlist", "allow": self.ALLOW})
        self.assertEqual(self.headers(box, CURL + "http://secret.test/a", tls=False).get("Authorization"), SECRET)
        self.assertEqual(self.headers(box, BARE + CURL + "http://secret.test/b", tls=False).get("Authorization"), SECRET)
        self.assertEqual(self.headers(box, CURL + "http://tls.test/c", tls=True, sni="tls.test").get("Authorization"), SECRET)
        self.assertEqual(self.headers(box, CURL + "-H 'Authorization: mine' http://secret.test/d", tls=False).get("Authorization"), SECRET)
        self.assertIsNone(self.headers(box, CURL + "http://good.test/e", tls=False).get("Authorization"))
        # Nobody can put a header into TLS between the two ends: whether or not it goes through, it is without.
        position = self.net.position()
        self.shell(box, CURL + "https://secret.test/f")
        self.assertEqual([entry for entry in self.net.since(position) if entry["kind"] == "http" and "Authorization" in entry["headers"]], [])
        self.assertGreaterEqual(self.network(box)["counters"]["secrets_used"], 4)
        bare = SECRET.split()[1]
        for command in ("env", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' ' '", "cat /etc/* /tmp/* /workspace/* 2>/dev/null"):
            self.assertNotIn(bare, self.shell(box, command))
        self.check_nowhere_else(bare, box)

    def check_nowhere_else(self, bare, box):
        self.assertEqual([secret["name"] for secret in self.client.call("GET", "/v1/secrets")["secrets"]], ["token"])
        for path in ("/v1/secrets", f"/v1/sandboxes/{box}", f"/v1/sandboxes/{box}/network", f"/v1/sandboxes/{box}/audit", "/v1/info", "/v1/audit"):
            self.assertNotIn(bare, self.client.raw("GET", path)[2].decode(), path)
        self.assertNotIn(bare, self.daemon.log.read_text())
        for top in (self.daemon.dir / "run", self.daemon.dir / "state"):
            for path in top.rglob("*"):
                if path.is_file() and path.stat().st_size < 1 << 20:
                    self.assertNotIn(bare.encode(), path.read_bytes(), path)
        for pid in host_network.programs("hutch-egress") + [self.daemon.process.pid]:
            for file in ("cmdline", "environ"):
                self.assertNotIn(bare.encode(), pathlib.Path(f"/proc/{pid}/{file}").read_bytes())

    def test_they_are_not_sent_to_hosts_they_are_not_for(self):
        box = self.box({"mode": "allowlist", "allow": [{"host": "good.test", "secret": "token"}, {"host": "secret.test", "secret": "token"}]})
        self.assertIsNone(self.headers(box, CURL + "http://good.test/e").get("Authorization"))
        self.assertEqual(self.headers(box, CURL + "http://secret.test/e").get("Authorization"), SECRET)
        # By a Host of its own on the way to the one that gets it, and by a redirection of the client's.
        self.shell(box, CURL + "-H 'Host: good.test' http://secret.test/f; " + CURL + "--connect-to good.test:80:secret.test:80 http://good.test/g")
        got = [entry["host"] for entry in self.net.since(0) if entry["kind"] == "http" and "Authorization" in entry["headers"]]
        self.assertLessEqual(set(got), {"secret.test", "tls.test"})

    def test_tls_that_the_proxy_begins_is_for_the_right_server_only(self):
        # The certificate is for many names, but not for this one.
        self.write_secret("impostor", hosts=["impostor.test"], header="X-Token", value=SECRET)
        box = self.box({"mode": "allowlist", "allow": [{"host": "impostor.test", "secret": "impostor", "tls": "originate"}]})
        position = self.net.position()
        self.assertRegex(self.shell(box, CURL + "-w '%{http_code}' http://impostor.test/"), "502$")
        self.assertEqual([entry for entry in self.net.since(position) if entry["kind"] == "http"], [])

    def test_a_file_that_others_can_read_is_not_used(self):
        self.write_secret("loose", hosts=["good.test"], header="X-Token", value=SECRET)
        (self.secrets / "loose.json").chmod(0o644)
        self.addCleanup((self.secrets / "loose.json").unlink)
        status, _, body = self.client.raw("POST", "/v1/sandboxes", {"image": TOOLS, "network": {"mode": "allowlist", "allow": [{"host": "good.test", "secret": "loose"}]}})
        self.assertGreaterEqual(status, 400, body)
        self.assertNotIn(SECRET, body.decode())


class Crashes(NetworkCase):
    # Tries for ever, a line for each try: what is allowed, what is not.
    LOOP = BARE + "sh -c 'while :; do for h in good.test bad.test; do probe caught " + SHARED + \
        " \"GET /loop HTTP/1.1\\r\\nHost: $h\\r\\n\\r\\n\" >>/tmp/tries; done; probe tcp " + OTHER + " 7000 x >>/tmp/tries; done'"

    def arrived(self, position):
        return [entry for entry in self.net.since(position) if entry["kind"] != "dns" and entry.get("target") not in (internet.DNS, internet.DNS6)]

    def test_policies_and_counters_are_exact_after_a_kill(self):
        box = self.box({"mode": "allowlist", "allow": egress_rows.ALLOW, "limits": {"total_bytes": 1 << 30}})
        pid = self.client.get(box)["pid"]
        self.shell(box, CURL + "http://good.test/bytes/1048576 | wc -c; " + CURL + "http://bad.test/")
        wait_until(lambda: self.network(box)["denied"], "the denial is told")
        before, listening, host = self.network(box), host_network.listeners(pid), host_network.everything()
        self.assertTrue(listening)
        for _ in range(3):
            self.daemon.kill()
            self.restart()
            after = self.network(box)
            for field in ("mode", "allow", "presets", "limits", "join", "counters"):
                self.assertEqual(after[field], before[field], field)
            wait_until(lambda: host_network.listeners(pid) == listening, f"the same listeners: {listening}")
            self.assertEqual(len(host_network.programs("hutch-egress")), 1)
        self.assertEqual(host_network.everything()["elements"], host["elements"])
        self.await_output(box, CURL + "http://good.test/after", "^served GET good.test /after")
        self.assertRegex(self.shell(box, CURL + "http://bad.test/after"), "not in the allowlist|not allowed")
        self.assertGreater(self.network(box)["counters"]["received_bytes"], before["counters"]["received_bytes"])

    def test_nothing_opens_while_it_is_down(self):
        box = self.box(GOOD)
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": ["/bin/sh", "-c", self.LOOP]})
        wait_until(lambda: "HTTP/1.1 200" in self.shell(box, "cat /tmp/tries 2>/dev/null"), "tries are made")
        self.daemon.kill()
        wait_until(lambda: not host_network.programs("hutch-egress"), "the proxy goes with it")
        position = self.net.position()
        # The tries go on: what they add up to is seen afterwards.
        time.sleep(1)
        self.assertEqual(self.arrived(position), [], "reached while the daemon was down")
        self.restart()
        position = self.net.position()
        wait_until(lambda: any(entry["kind"] == "http" for entry in self.net.since(position)), "what is allowed works again")
        tries = self.shell(box, "grep -v 'HTTP/1.1 403\\|HTTP/1.1 200\\|E[A-Z]*$\\|ended' /tmp/tries")
        self.assertEqual(tries, "", "something else than an answer, a refusal or an end")
        reached = {(entry["kind"], entry.get("host")) for entry in self.arrived(position) if entry["kind"] in ("http", "bytes")}
        self.assertEqual(reached, {("http", "good.test")})

    def test_a_proxy_that_is_killed_is_started_again(self):
        box = self.box(GOOD)
        self.shell(box, CURL + "http://good.test/bytes/1000")
        before = self.network(box)["counters"]
        for pid in host_network.programs("hutch-egress"):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.shell(box, CURL + "http://good.test/again").startswith("served"), "it answers again")
        self.assertRegex(self.shell(box, CURL + "http://bad.test/"), "not in the allowlist|not allowed")
        after = self.network(box)["counters"]
        self.assertGreater(after["received_bytes"], before["received_bytes"])
        self.assertEqual(len(host_network.programs("hutch-egress")), 1)

    def test_killed_in_the_middle_of_changes_it_has_the_old_or_the_new(self):
        box = self.box(GOOD)
        for number in range(5):
            connection = self.daemon.client()
            connection.connection.request("PATCH", f"/v1/sandboxes/{box}", body=json.dumps({"network": {"mode": "allowlist", "allow": ["bad.test"] if number % 2 == 0 else ["good.test"]}}))
            time.sleep(0.0004 * number)
            self.daemon.kill()
            connection.close()
            self.restart()
            self.await_output(box, CURL + "http://good.test/ http://bad.test/", "(?m)^served")
            allow = json.dumps(self.network(box)["allow"])
            good, bad = (self.shell(box, CURL + f"http://{name}/").startswith("served") for name in ("good.test", "bad.test"))
            self.assertEqual((good, bad), ("good.test" in allow, "bad.test" in allow), allow)
            self.assertNotEqual(good, bad)

    def test_nothing_is_left_when_all_are_gone(self):
        boxes = [self.box(GOOD) for _ in range(3)]
        for box in boxes:
            self.client.delete(box)
        self.assertEqual(self.daemon.stop(), 0)
        wait_until(lambda: not host_network.programs("hutch-egress"), "the proxy goes")
        self.restart()


if __name__ == "__main__":
    network_case.main()
