"""Live replies of every route against GET /v1/openapi.json: a route without a call here fails, and so does a reply it does not describe."""
import json
import re
import subprocess
import threading
import unittest

import schema
from daemon import MAKE_IMAGE, DaemonCase
from websocket import WebSocket


class Contract(DaemonCase):
    def setUp(self):
        super().setUp()
        self.document = self.client.call("GET", "/v1/openapi.json")
        self.called = set()

    def operation(self, method, path):
        for template, item in self.document["paths"].items():
            pattern = re.sub(r"\\\{(reference|path|rest)\\\}", ".+", re.sub(r"\\\{(id|process|name|port)\\\}", "[^/]+", re.escape(template)))
            if re.fullmatch(pattern, path.split("?")[0]) and method.lower() in item and (template.count("{") == 0 or path not in self.document["paths"]):
                return template, item[method.lower()]
        self.fail(f"{method} {path} is not in the contract")

    def call(self, method, path, body=None, headers=None):
        template, operation = self.operation(method, path)
        if isinstance(body, dict):
            wanted = operation["requestBody"]["content"]["application/json"]["schema"]
            self.assertEqual(list(schema.check(body, wanted, self.document, "request")), [])
        status, reply_headers, payload = self.client.raw(method, path, body, headers)
        described = operation["responses"].get(str(status), operation["responses"]["default"])
        if status < 400:
            self.assertIn(str(status), operation["responses"])
            self.called.add((method, template))
        if "content" not in described:
            self.assertEqual(payload, b"")
            return None
        media = reply_headers["Content-Type"]
        self.assertIn(media, described["content"])
        if media == "text/event-stream":
            return payload.decode()
        if media in ("application/octet-stream", "application/x-tar") or media.startswith("text/plain"):
            return payload
        reply = json.loads(payload)
        self.assertEqual(list(schema.check(reply, described["content"][media]["schema"], self.document)), [])
        return reply

    def test_every_route(self):
        sandbox = self.call("POST", "/v1/sandboxes", {"image": "busybox", "name": "one", "labels": {"a": "b"}, "relax": {"proc": "full"}})
        path = f"/v1/sandboxes/{sandbox['id']}"
        self.call("GET", "/v1/sandboxes?state=running&label=a=b&label=!z")
        self.call("GET", path)
        self.call("GET", path + "?wait=running&timeout_seconds=5")
        self.call("POST", path + "/heartbeat")
        self.call("PATCH", path, {"timeouts": {"idle_seconds": 0, "on_expiry": "pause"}})
        self.call("PATCH", path, {"labels": {"c": "d", "a": None}})
        self.call("POST", path + "/pause", {"reclaim": True})
        self.call("POST", path + "/resume")
        self.call("POST", path + "/snapshot", {"reference": "contract:snapshot"})
        for fork in self.call("POST", path + "/fork", {"count": 1, "name": "contract"})["sandboxes"]:
            self.call("DELETE", f"/v1/sandboxes/{fork['id']}")
        self.call("GET", path + "/diff?path=/workspace&limit=5")
        self.call("POST", path + "/stop", {"timeout_seconds": 0})
        self.call("GET", path)
        self.call("POST", path + "/start")
        for body in ({"command": "echo out; echo err >&2"}, {"command": ["sleep", "1000"], "timeout_seconds": 0.1}, {"command": r"printf '\377'"}):
            self.call("POST", path + "/exec", body)
        self.call("POST", path + "/exec", {"command": ["nothing"]})
        self.call("POST", path + "/exec", {"command": "echo so far; sleep 1000", "wait_seconds": 0.2, "encoding": "base64", "merge_output": True})
        self.check_files(path)
        self.check_processes(path)
        self.check_templates()
        self.check_networks(path)
        self.check_volumes()
        self.check_ports(path)
        self.check_pools()
        self.call("GET", "/v1/audit?limit=5")
        self.call("GET", path + "/audit")
        self.call("GET", path + "/stats")
        self.assertTrue(self.call("GET", "/v1/events?kind=sandbox.running")["events"])
        self.assertIn("event: exec.finished", self.call("GET", "/v1/events?follow=false", headers={"Accept": "text/event-stream"}))
        self.call("GET", "/v1/metrics")
        self.call("DELETE", path)
        self.assertEqual(self.call("GET", path)["state"], "destroyed")
        self.call("GET", "/v1/sandboxes/nothing")
        self.call("GET", "/v1/images")
        self.call("GET", "/v1/catalog")
        self.call("GET", "/v1/images/busybox:latest")
        subprocess.run([str(MAKE_IMAGE), str(self.daemon.dir)], check=True, stdout=subprocess.DEVNULL)
        request = {"path": str(self.daemon.dir / "busybox"), "reference": "other:latest"}
        self.call("POST", "/v1/images/import", request)
        events = self.call("POST", "/v1/images/import", request, {"Accept": "text/event-stream"})
        self.check_events(events)
        self.call("DELETE", "/v1/images/other:latest")
        self.call("POST", "/v1/images/pull", {"reference": "no-registry-is-named"})
        self.call("GET", "/v1/images/busybox:latest/history")
        self.call("POST", "/v1/images/busybox:latest/tag", {"reference": "tagged:1"})
        archive = self.call("GET", "/v1/images/tagged:1/archive?format=docker")
        self.call("POST", "/v1/images/load?reference=loaded:1", archive)
        self.call("DELETE", "/v1/images/loaded:1")
        self.call("POST", "/v1/images/prune", {"all": False, "dry_run": True})
        self.call("DELETE", "/v1/images/tagged:1")
        self.call("POST", "/v1/images/build", {"name": "no-such-image"})
        self.call("GET", "/v1/health")
        self.call("GET", "/v1/info")
        self.call("GET", "/v1/openapi.json")
        # Building takes minutes and a package mirror: tools/catalog-check does it. Pulling takes a registry: registry_test.py has them.
        uncalled = {(m.upper(), p) for p, item in self.document["paths"].items() for m in item if m != "parameters"} - self.called
        # What a port answers is not ours to describe: ports_test.py.
        uncalled = {(method, template) for method, template in uncalled if not template.endswith("{rest}")}
        self.assertEqual(uncalled, {("POST", "/v1/images/build"), ("POST", "/v1/images/pull")})

    def check_ports(self, path):
        self.call("POST", path + "/ports", {"port": 3000, "label": "web"})
        self.call("POST", path + "/ports", {"port": 3000})
        self.call("POST", path + "/processes", {"command": ["nc", "-l", "-p", "3000"]})
        self.call("GET", path + "/ports")
        made = self.call("POST", "/v1/sandboxes", {"image": "busybox", "ports": [3000, {"port": 4000, "address": "::1"}]})
        self.call("DELETE", f"/v1/sandboxes/{made['id']}")
        self.call("DELETE", path + "/ports/3000")

    def check_templates(self):
        listed = self.call("GET", "/v1/templates")["templates"]
        self.assertIn("python", [template["name"] for template in listed])
        self.call("GET", "/v1/templates/python")
        self.call("GET", "/v1/templates/nothing")
        self.call("POST", "/v1/templates/validate", {"devcontainer": '{"image": "busybox", "privileged": true}'})
        whole = {"image": "busybox", "remoteEnv": {"A": "b", "C": None}, "mounts": ["type=tmpfs,target=/c"], "postCreateCommand": {"a": "true"}}
        made = self.call("POST", "/v1/templates/validate", {"devcontainer": json.dumps(whole)})
        self.assertEqual(made["lifecycle"][0]["commands"][0]["name"], "a")
        self.call("POST", "/v1/sandboxes", {"template": "python"})

    def check_networks(self, path):
        changed = self.call("PATCH", path, {"network": {"mode": "allowlist", "allow": ["a.example:8080", {"host": "b.example", "methods": ["GET"]}]}})
        self.assertEqual(changed["network"]["mode"], "allowlist")
        self.assertEqual([rule["ports"] for rule in self.call("GET", path + "/network")["allow"]], [[8080], [80, 443]])
        self.call("PATCH", path, {"network": {"mode": "none"}})
        self.call("PATCH", path, {"network": {"mode": "allowlist", "allow": ["*"]}})
        self.assertEqual(self.call("POST", "/v1/networks", {"name": "ws"})["members"], [])
        self.assertEqual([network["name"] for network in self.call("GET", "/v1/networks")["networks"]], ["ws"])
        self.call("GET", "/v1/networks/ws")
        self.call("DELETE", "/v1/networks/ws")
        self.call("GET", "/v1/networks/ws")
        self.call("GET", "/v1/network/presets")
        self.call("GET", "/v1/secrets")

    def check_pools(self):
        self.call("PUT", "/v1/pools/ahead", {"image": "busybox", "ready": 0, "max": 2, "demand": True, "request": {"limits": {"pids": 99}}})
        self.assertEqual([pool["name"] for pool in self.call("GET", "/v1/pools")["pools"]], ["ahead"])
        self.call("GET", "/v1/pools/ahead")
        self.call("GET", "/v1/sandboxes?pooled=true")
        self.call("DELETE", "/v1/pools/ahead")
        self.call("GET", "/v1/pools/ahead")
    def check_volumes(self):
        made = self.call("POST", "/v1/volumes", {"name": "v", "size_bytes": 16 << 20, "owner": "0", "labels": {"a": "b"}})
        self.assertEqual(made["sandboxes"], [])
        box = self.call("POST", "/v1/sandboxes", {"image": "busybox", "volumes": [{"name": "v", "target": "/data", "readonly": True}]})
        self.assertEqual(len(self.call("GET", "/v1/volumes?label=a=b")["volumes"]), 1)
        self.assertEqual(self.call("GET", "/v1/volumes/v")["sandboxes"][0]["id"], box["id"])
        self.call("DELETE", "/v1/volumes/v")
        self.call("POST", "/v1/volumes/v/copy", {"to": "w"})
        self.call("POST", "/v1/volumes/v/copy", {"to": "x"}, headers={"Accept": "text/event-stream"})
        self.call("DELETE", f"/v1/sandboxes/{box['id']}")
        self.call("PATCH", "/v1/volumes/v", {"size_bytes": 32 << 20})
        self.call("PUT", "/v1/volumes/w/archive", self.call("GET", "/v1/volumes/v/archive"))
        self.call("DELETE", "/v1/volumes/v")
        self.call("POST", "/v1/volumes/prune", {"dry_run": True, "labels": ["a"]})
        self.assertEqual(self.call("POST", "/v1/volumes/prune", {})["volumes"], ["w", "x"])

    def check_processes(self, path):
        one = path + "/processes/" + self.call("POST", path + "/processes", {"command": "read x; echo $x; stty size", "terminal": {"rows": 5, "columns": 50}})["id"]
        self.call("GET", path + "/processes")
        self.call("POST", one + "/resize", {"rows": 10, "columns": 60})
        self.call("POST", one + "/stdin", {"data": "hello\n"})
        self.assertEqual(self.call("GET", one + "?wait_seconds=30")["exit_code"], 0)
        self.call("GET", one + "/output?tail_bytes=5&encoding=base64")
        self.assertIn("event: exit", self.call("GET", one + "/output?follow=true"))
        self.call("POST", one + "/signal", {"signal": "SIGTERM"})
        two = path + "/processes/" + self.call("POST", path + "/processes", {"command": ["cat"], "stdin_open": True, "log_bytes": 65536})["id"]
        self.call("POST", two + "/signal", {"signal": 15, "target": "tree"})
        socket = WebSocket(self.daemon.socket, two + "/attach?cursor=0")
        self.assertEqual(socket.status, 101)
        self.called.add(("GET", "/v1/sandboxes/{id}/processes/{process}/attach"))
        socket.close()
        self.call("DELETE", two)

    def check_files(self, path):
        files = path + "/files"
        self.call("POST", files + ":mkdir", {"path": "/workspace/d"})
        self.call("POST", files + ":mkdir", {"path": "/workspace/d", "parents": True})
        self.call("PUT", files + "/workspace/d/a", b"one two")
        self.call("PUT", files + "/workspace/d/a", b"one two three")
        self.call("GET", files + "?path=/workspace&depth=2")
        self.call("GET", files + "/workspace/d/a")
        self.call("HEAD", files + "/workspace/d/a")
        self.call("GET", files + "/workspace/d/a", headers={"Range": "bytes=0-1"})
        self.call("POST", files + ":edit", {"path": "/workspace/d/a", "old": "two", "new": "2"})
        self.call("POST", files + ":copy", {"from": "/workspace/d", "to": "/workspace/e", "recursive": True})
        self.call("POST", files + ":move", {"from": "/workspace/e", "to": "/workspace/f"})
        self.call("POST", files + ":glob", {"path": "/workspace", "pattern": "**"})
        self.call("POST", files + ":grep", {"path": "/workspace", "pattern": "o", "context": 1})
        self.call("POST", files + ":read", {"files": [{"path": "/workspace/d/a"}, {"path": "/none"}]})
        self.call("POST", files + ":write", {"files": [{"path": "/workspace/g", "content": "g"}]})
        archive = self.call("GET", path + "/archive?path=/workspace/d")
        self.call("PUT", path + "/archive?path=/workspace/f", archive)
        remove = threading.Timer(1, lambda: self.daemon.client().call("DELETE", files + "/workspace/g"))
        remove.start()
        self.assertIn("event: end", self.call("GET", path + "/watch?path=/workspace/g"))
        remove.join()
        self.call("DELETE", files + "/workspace/f?recursive=true")

    def check_events(self, text):
        schemas = self.document["components"]["schemas"]
        kinds = {"progress": schemas["Progress"], "result": schemas["Image"], "error": schemas["Error"]}
        for event in filter(None, text.split("\n\n")):
            name, data = event.split("\n")
            found = list(schema.check(json.loads(data.removeprefix("data: ")), kinds[name.removeprefix("event: ")], self.document))
            self.assertEqual(found, [])

    def test_errors_have_one_shape(self):
        for method, path, body in (("GET", "/v1/nothing", None), ("POST", "/v1/sandboxes", "{"), ("POST", "/v1/sandboxes", {"image": 1})):
            _, _, payload = self.client.raw(method, path, body)
            self.assertEqual(list(schema.check(json.loads(payload), {"$ref": "#/components/schemas/Error"}, self.document)), [])


if __name__ == "__main__":
    unittest.main()
