"""A setting of a topic is declared once, and everything else follows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import topics
from topics.errors import InvalidRequest
from topics.topic_settings import DEFAULTS, NAMES, TopicSettings, known, known_settings
from topics.wire.requests.topics import ConfigBody
from topics.wire.shapes import Config


def test_the_settings_of_a_topic_have_the_same_names_everywhere() -> None:
    for names in (
        TopicSettings.__annotations__,
        ConfigBody.__struct_fields__,
        Config.__struct_fields__,
        known(),
    ):
        assert tuple(names) == NAMES


def test_every_setting_has_a_help_text_and_a_default() -> None:
    assert all(setting.help for setting in known().values())
    assert tuple(DEFAULTS) == NAMES


def test_a_misspelt_setting_is_refused_with_what_was_meant() -> None:
    with pytest.raises(InvalidRequest, match="no setting 'durabilty'; did you mean durability"):
        known_settings({"ttl_ms": 5, "durabilty": "fsync"})
    with pytest.raises(InvalidRequest, match="no setting 'colour'; known: type, ttl_ms, "):
        known_settings({"colour": "red"})


def test_settings_are_handed_on_as_they_are() -> None:
    given = {"durability": "fsync", "dead_letter": None}
    assert known_settings(given) == given


@pytest.mark.parametrize(
    ("name", "obeyed_in"),
    [("auto_priority", "core/priority.py"), ("auto_create", "engine/writes/append.py")],
)
def test_a_setting_is_named_where_it_is_declared_and_where_it_is_obeyed(
    name: str, obeyed_in: str
) -> None:
    root = Path(topics.__file__).parent
    named = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(rf"\b{name}\b", path.read_text())
    }
    assert named == {"topic_settings.py", obeyed_in}


WITH_ONE_MORE = '''
import sys
from pathlib import Path
from types import ModuleType

text = Path(sys.argv[1]).read_text()
declared = """    linger_ms: Annotated[int, _u64("what a new setting is for")] = 7

    @property
    def is_queue"""
for before, after in (
    ("    @property\\n    def is_queue", declared),
    ("    leases_durable: bool\\n", "    leases_durable: bool\\n    linger_ms: int\\n"),
):
    assert text.count(before) == 1
    text = text.replace(before, after)
module = ModuleType("topics.topic_settings")
sys.modules[module.__name__] = module
exec(compile(text, sys.argv[1], "exec"), module.__dict__)
'''
USED = """
import json
import topics
from topics.cli._types import setting_defaults
from topics.wire.openapi import describe
from topics.wire.requests import decode_config

with topics.open(sys.argv[2]) as log:
    log.create("a", linger_ms=250)
    log.create("b")
with topics.open(sys.argv[2]) as log:
    echoed = [log.state(name).config["linger_ms"] for name in "ab"]
print(json.dumps({
    "echoed": echoed,
    "taken": decode_config(b'{"linger_ms":5}').fields()["linger_ms"],
    "described": describe("")["components"]["schemas"]["Config"]["properties"]["linger_ms"],
    "completed": setting_defaults()["linger_ms"],
}))
"""


def test_a_setting_needs_no_second_declaration(tmp_path: Path) -> None:
    """The two lines that CONTRIBUTING names, put into the one file; the rest is as it is."""
    file = Path(topics.__file__).parent / "topic_settings.py"
    command = [sys.executable, "-c", WITH_ONE_MORE + USED, str(file), str(tmp_path / "log")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stderr == ""
    shown = json.loads(told.stdout)
    assert shown["echoed"] == [250, 7]
    assert (shown["taken"], shown["completed"]) == (5, 7)
    assert shown["described"]["description"] == "what a new setting is for"
