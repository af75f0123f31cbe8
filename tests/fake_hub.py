"""A server that speaks as much of the hub's language as uploads and downloads need."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class FakeHub:
    """Repositories in memory: the files of each commit, the newest last."""

    def __init__(self) -> None:
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.private: dict[str, bool] = {}
        self.tokens: list[str | None] = []
        self.url = ""

    def create(self, name: str, private: bool) -> bool:
        """Make a repository; False if it is there."""
        if name in self.commits:
            return False
        self.commits[name], self.private[name] = [{}], private
        return True

    def commit_id(self, repo: str, revision: str) -> str | None:
        """Return the name of a commit, told by itself or by `main`."""
        last = len(self.commits.get(repo, ())) - 1
        if last >= 0 and revision == "main":
            return f"{last:040x}"
        known = [f"{number:040x}" for number in range(last + 1)]
        return revision if revision in known else None

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        commit = self.commit_id(repo, revision)
        assert commit is not None
        return self.commits[repo][int(commit, 16)]


class Handler(BaseHTTPRequestHandler):
    """Answers for the hub that the server holds."""

    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def answer(self, value: object = None, code: int = 200, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self) -> None:
        self.hub.tokens.append(self.headers.get("Authorization"))
        parts = unquote(self.path.split("?")[0]).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo, revision = "/".join(parts[2:4]), (parts[5:] or ["main"])[0]
        else:  # owner/name/resolve/revision/file
            repo, revision = "/".join(parts[:2]), parts[3]
        commit = self.hub.commit_id(repo, revision)
        if commit is None:
            error = "RevisionNotFound" if repo in self.hub.commits else "RepoNotFound"
            return self.answer({"error": error}, 404, X_Error_Code=error)
        files = self.hub.files(repo, commit)
        if parts[0] == "api" and parts[4] == "tree":
            tree = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": git_id(content),
                }
                for name, content in files.items()
            ]
            return self.answer(tree)
        if parts[0] == "api":
            siblings = [{"rfilename": name} for name in files]
            return self.answer({"id": repo, "sha": commit, "siblings": siblings})
        content = files["/".join(parts[4:])]
        return self.answer(content, ETag=f'"{git_id(content)}"', X_Repo_Commit=commit)

    do_HEAD = do_GET  # noqa: N815 (the base class's names)

    def do_POST(self) -> None:
        self.hub.tokens.append(self.headers.get("Authorization"))
        body, parts = self.body(), self.path.split("?")[0].strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            repo = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            made = self.hub.create(repo, asked.get("visibility") == "private")
            url = f"{self.hub.url}/{repo}"
            return self.answer({"url": url}, 200 if made else 409)
        if parts == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        repo = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        assert parts[4] == "commit"
        files = dict(self.hub.files(repo))
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                value = line["value"]
                files[value["path"]] = base64.b64decode(value["content"])
        self.hub.commits[repo].append(files)
        commit = self.hub.commit_id(repo, "main")
        url = f"{self.hub.url}/{repo}/commit/{commit}"
        return self.answer({"success": True, "commitOid": commit, "commitUrl": url})


def git_id(content: bytes) -> str:
    """Return what git calls some content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve an empty hub on a free port of this machine."""
    hub = FakeHub()
    handler = type("Handler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
