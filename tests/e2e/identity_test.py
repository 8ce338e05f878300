"""Who asks for a sandbox, twice or too often: session keys, Idempotency-Keys, labels, limits by owner, room on the host."""
import contextlib
import json
import os
import threading
import traceback
import unittest

from cli import CliCase
from client import ApiError, Client
from daemon import Daemon, DaemonCase

CLIENTS = 64
NOBODY = 65534


def at_once(count, work):
    """What work(i) returns in `count` threads that begin together; an exception of one is raised."""
    results, gate = [None] * count, threading.Barrier(count)

    def run(i):
        gate.wait()
        try:
            results[i] = work(i)
        except Exception as error:  # pylint: disable=broad-except
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def as_user(uid, work):
    """What work() returns in a process of another user, through JSON."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    return json.loads(text)


class IdentityCase(DaemonCase):
    def ask(self, headers=None, client=None, **fields):
        """(status, headers, JSON) of one creation."""
        status, reply_headers, body = (client or self.client).raw("POST", "/v1/sandboxes", {"image": "busybox", **fields}, headers)
        return status, reply_headers, json.loads(body)

    def asks_at_once(self, headers=None, **fields):
        def work(_):
            with contextlib.closing(self.daemon.client()) as client:
                status, reply_headers, body = self.ask(headers, client, **fields)
                return status, reply_headers, body
        return at_once(CLIENTS, work)

    def living(self, query=""):
        return [s["id"] for s in self.client.call("GET", "/v1/sandboxes" + query)["sandboxes"] if s["ended_at"] is None]


class SessionKeys(IdentityCase):
    def test_many_clients_get_one_sandbox(self):
        answers = self.asks_at_once(session_key="race")
        self.assertEqual(sorted(status for status, _, _ in answers), [200] * (CLIENTS - 1) + [201])
        self.assertEqual(len({body["id"] for _, _, body in answers}), 1)
        self.assertEqual(self.living("?session_key=race"), [answers[0][2]["id"]])

    def test_never_two_for_a_key_while_they_are_destroyed(self):
        over, seen, made = threading.Event(), [], set()

        def watch():
            with contextlib.closing(self.daemon.client()) as client:
                while not over.is_set():
                    sandboxes = client.call("GET", "/v1/sandboxes?session_key=churn")["sandboxes"]
                    seen.append(sum(s["ended_at"] is None for s in sandboxes))

        watcher = threading.Thread(target=watch)
        watcher.start()

        def work(i):
            with contextlib.closing(self.daemon.client()) as client:
                for _ in range(3):
                    status, _, body = self.ask(None, client, session_key="churn")
                    # One that waits for a sandbox that another ends may be told so.
                    if status not in (200, 201):
                        self.assertIn(body["error"]["code"], ("bad_state", "unavailable"), body)
                        continue
                    made.add(body["id"])
                    if i % 4:
                        continue
                    with contextlib.suppress(ApiError):
                        client.delete(body["id"])

        try:
            at_once(CLIENTS, work)
        finally:
            over.set()
            watcher.join()
        self.assertLessEqual(max(seen), 1)
        self.assertGreater(len(made), 1)

    def test_what_differs_is_named(self):
        first = self.ask(session_key="a", limits={"pids": 64})[2]
        status, _, body = self.ask(session_key="a", limits={"pids": 64.0}, name=None)
        self.assertEqual((status, body["id"]), (200, first["id"]))
        status, _, body = self.ask(session_key="a", limits={"pids": 65})
        self.assertEqual((status, body["error"]["code"], body["error"]["field"]), (409, "exists", "limits.pids"))
        self.client.delete(first["id"])
        status, _, body = self.ask(session_key="a", limits={"pids": 65})
        self.assertEqual(status, 201)
        self.assertNotEqual(body["id"], first["id"])

    def test_a_client_that_hangs_up_takes_it_from_nobody(self):
        leaver = self.daemon.client()
        leaver.connection.request("POST", "/v1/sandboxes", json.dumps({"image": "busybox", "session_key": "kept"}))
        answers = []
        second = self.daemon.client()
        self.addCleanup(second.close)
        waiter = threading.Thread(target=lambda: answers.append(self.ask(None, second, session_key="kept")))
        waiter.start()
        leaver.close()
        waiter.join()
        self.assertIn(answers[0][0], (200, 201))
        self.assertEqual(self.client.get(answers[0][2]["id"])["state"], "running")

    def test_a_repeated_request_is_answered_again(self):
        answers = self.asks_at_once({"Idempotency-Key": "race"})
        self.assertEqual({status for status, _, _ in answers}, {201})
        self.assertEqual(len({body["id"] for _, _, body in answers}), 1)
        self.assertEqual(sum(headers["Idempotency-Replayed"] is None for _, headers, _ in answers), 1)
        made = answers[0][2]["id"]
        self.client.delete(made)
        status, headers, body = self.ask({"Idempotency-Key": "race"})
        self.assertEqual((status, headers["Idempotency-Replayed"], body["id"]), (201, "true", made))
        status, _, body = self.ask({"Idempotency-Key": "race"}, name="other")
        self.assertEqual((status, body["error"]["field"]), (409, "name"))
        self.assertEqual(self.living(), [])


class Restarted(unittest.TestCase):
    def test_keys_outlive_a_killed_daemon(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()

        def ask(headers=None, **fields):
            with contextlib.closing(daemon.client()) as client:
                status, _, body = client.raw("POST", "/v1/sandboxes", {"image": "busybox", **fields}, headers)
                return status, json.loads(body)

        before = {f"s{i}": ask(session_key=f"s{i}", labels={"n": str(i)})[1]["id"] for i in range(4)}
        status, repeated = ask({"Idempotency-Key": "k"}, name="repeated")
        self.assertEqual(status, 201)
        with contextlib.closing(daemon.client()) as client:
            client.call("PATCH", f"/v1/sandboxes/{before['s0']}", {"labels": {"n": None, "later": "1"}})
        last = ask(session_key="last")[1]["id"]
        daemon.kill()  # at once after the answer
        daemon.start()
        for i in range(4):
            status, body = ask(session_key=f"s{i}", labels={"n": str(i)})
            self.assertEqual((status, body["id"]), (200, before[f"s{i}"]))
        self.assertEqual(ask(session_key="s0", labels={"n": "1"})[1]["error"]["field"], "labels")
        self.assertEqual(ask(session_key="last")[1]["id"], last)
        status, body = ask({"Idempotency-Key": "k"}, name="repeated")
        self.assertEqual((status, body["id"]), (201, repeated["id"]))
        self.assertEqual(ask({"Idempotency-Key": "k"})[0], 409)
        with contextlib.closing(daemon.client()) as client:
            self.assertEqual(client.get(before["s0"])["labels"], {"later": "1"})
            self.assertEqual(client.call("GET", "/v1/info")["admission"]["promised"]["id_ranges"], 6)


class Owners(IdentityCase):
    config = {"owner_limits": {"sandboxes_per_user": 6, "sandboxes_per_session_prefix": 2, "labels": [{"label": "team", "max": 3}]}}

    def refusal(self, **fields):
        status, headers, body = self.ask(**fields)
        self.assertEqual((status, body["error"]["code"], body["error"]["step"]), (429, "limit", "admission"), body)
        self.assertEqual(headers["Retry-After"], str(body["error"]["retry_after_seconds"]))
        return body["error"]

    def test_a_label_and_the_beginning_of_a_session_key_have_their_most(self):
        for i in range(2):
            self.assertEqual(self.ask(session_key=f"alice/{i}", labels={"team": "a"})[0], 201)
        self.assertEqual(self.refusal(session_key="alice/2")["field"], "session_key")
        self.assertEqual(self.ask(session_key="alice/1", labels={"team": "a"})[0], 200)  # it is there already
        third = self.ask(labels={"team": "a"})[2]["id"]
        error = self.refusal(labels={"team": "a"})
        self.assertEqual(error["field"], "labels.team")
        self.assertIn("team=a has 3", error["message"])
        self.client.call("PATCH", f"/v1/sandboxes/{third}", {"labels": {"team": "b"}})
        self.assertEqual(self.ask(labels={"team": "a"})[0], 201)
        self.refused("limit", "PATCH", f"/v1/sandboxes/{third}", {"labels": {"team": "a"}})
        owners = {(o["kind"], o["owner"]): (o["sandboxes"], o["max"]) for o in self.client.call("GET", "/v1/info")["admission"]["owners"]}
        self.assertEqual(owners[("label", "a")], (3, 3))
        self.assertEqual(owners[("session_prefix", "alice")], (2, 2))
        self.assertEqual(owners[("user", "0")], (4, 6))

    def test_many_clients_together_get_no_more_than_the_most(self):
        answers = self.asks_at_once()
        self.assertEqual(sum(status == 201 for status, _, _ in answers), 6)
        self.assertEqual({status for status, _, _ in answers}, {201, 429})
        self.assertEqual(len(self.living()), 6)

    def test_users_of_the_socket_are_told_apart(self):
        os.chmod(self.daemon.dir, 0o711)
        os.chmod(self.daemon.socket, 0o666)

        def nobody():
            with contextlib.closing(Client(self.daemon.socket)) as client:
                made = [client.raw("POST", "/v1/sandboxes", {"image": "busybox", "session_key": f"{i}"}) for i in range(7)]
                return [[status, headers["Retry-After"], json.loads(body)] for status, headers, body in made]

        mine = self.ask(session_key="0")[2]
        answers = as_user(NOBODY, nobody)
        self.assertEqual([status for status, _, _ in answers], [201] * 6 + [429])
        self.assertEqual(answers[6][1], "5")
        self.assertIn(f"user {NOBODY} has 6", answers[6][2]["error"]["message"])
        self.assertEqual((mine["caller_uid"], answers[0][2]["caller_uid"]), (0, NOBODY))
        self.assertNotEqual(answers[0][2]["id"], mine["id"])  # the same key of another user
        self.assertEqual(self.ask()[0], 201)


class Room(IdentityCase):
    config = {"limits": {"cpus_overcommit": 1, "memory_overcommit": 1}}

    def test_what_is_not_left_comes_back(self):
        cpus = self.client.call("GET", "/v1/info")["admission"]["host"]["cpus"]
        status, headers, body = self.ask(limits={"cpus": cpus + 1})
        self.assertEqual((status, body["error"]["field"], headers["Retry-After"]), (429, "limits.cpus", None), body)
        whole = self.ask(limits={"cpus": cpus})[2]["id"]
        status, headers, body = self.ask(limits={"cpus": 0.5})
        self.assertEqual((status, body["error"]["code"], body["error"]["field"], headers["Retry-After"]), (503, "unavailable", "limits.cpus", "1"))
        self.assertIn("0.5 are missing", body["error"]["message"])
        self.client.delete(whole)
        self.assertEqual(self.ask(limits={"cpus": 0.5})[0], 201)
        admission = self.client.call("GET", "/v1/info")["admission"]
        self.assertEqual(admission["promised"], {"memory_bytes": 512 << 20, "cpus": 0.5, "pids": 256, "disk_bytes": 512 << 20, "id_ranges": 1})
        self.assertEqual((admission["refused"]["never_fits"], admission["refused"]["not_now"]), (1, 1))
        metrics = self.client.raw("GET", "/v1/metrics")[2].decode().splitlines()
        self.assertIn("hutch_promised_cpus 0.5", metrics)
        self.assertIn('hutch_admission_refused_total{reason="not_now"} 1', metrics)


class ShortOfMemory(IdentityCase):
    config = {"limits": {"memory_reserve_bytes": 1 << 60}}

    def test_a_host_without_its_reserve_makes_none(self):
        status, headers, body = self.ask()
        self.assertEqual((status, body["error"]["code"], headers["Retry-After"]), (503, "unavailable", "1"))
        self.assertIn("are available", body["error"]["message"])
        self.assertEqual(self.client.call("GET", "/v1/info")["admission"]["refused"]["pressure"], 1)


class CommandLine(CliCase):
    def test_keys_and_labels(self):
        made = self.text("create", "busybox", "--session-key", "s", "--label", "team=a").strip()
        self.assertEqual(self.text("create", "busybox", "--session-key", "s", "--label", "team=a").strip(), made)
        conflict = self.hutch("create", "busybox", "--session-key", "s")
        self.assertEqual(conflict.returncode, 1)
        self.assertIn(b"labels", conflict.stderr)
        other = self.text("create", "busybox", "--idempotency-key", "k").strip()
        self.assertEqual(self.text("create", "busybox", "--idempotency-key", "k", "--json").count(other), 1)
        listed = lambda *words: self.text("ls", "-q", *words).split()
        self.assertEqual(listed("--label", "team"), [made])
        self.assertEqual(listed("--filter", "team!=a"), [other])
        self.assertEqual(listed("-l", "!team"), [other])
        self.assertEqual(listed("--session-key", "s"), [made])
        self.assertEqual(listed("--label", "team=a", "--label", "!team"), [])

    def test_rm_by_label_says_first_what_goes(self):
        ids = sorted(self.text("create", "busybox", "--label", "team=a").strip() for _ in range(3))
        kept = self.text("create", "busybox").strip()
        would = self.hutch("rm", "--label", "team=a")
        self.assertEqual((would.returncode, sorted(would.stdout.decode().split())), (0, ids))
        self.assertIn(b"3 would be removed", would.stderr)
        self.assertEqual(sorted(json.loads(self.text("rm", "--label", "team=a", "--json"))["would_remove"]), ids)
        self.assertEqual(len(self.text("ls", "-q").split()), 4)
        self.assertEqual(sorted(self.text("rm", "--label", "team=a", "--yes").split()), ids)
        self.assertEqual(self.text("ls", "-q").split(), [kept])
        for words in ([], ["x", "--label", "a"]):
            self.assertNotEqual(self.hutch("rm", *words).returncode, 0)


if __name__ == "__main__":
    unittest.main()
