"""Lines as they come: whole, in pieces, slowly."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.runner import topics

from topics.cli.produce import lines_of, numbered


@pytest.fixture
def pipe() -> Iterator[tuple[io.BufferedReader, int]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        yield file, writing


def test_lines_are_put_together_from_pieces(pipe: tuple[io.BufferedReader, int]) -> None:
    file, writing = pipe
    os.write(writing, b"one\r\ntw")
    found = lines_of(file)
    assert next(found) == b"one"
    assert next(found) is None  # nothing more comes for now: time to send what there is
    os.write(writing, b"o\nlast")
    os.close(writing)
    assert [line for line in found if line is not None] == [b"two", b"last"]


def test_nothing_at_all_is_no_line(pipe: tuple[io.BufferedReader, int]) -> None:
    file, writing = pipe
    os.close(writing)
    assert [line for line in lines_of(file) if line is not None] == []


def test_a_file_in_memory_has_lines_too() -> None:
    assert list(lines_of(io.BytesIO(b"a\nb\r\n\nc"))) == [b"a", b"b", b"", b"c"]


def test_empty_lines_are_counted_and_left_out() -> None:
    lines = iter([b"a", b"", None, b"  ", b"b"])
    assert list(numbered(lines)) == [(1, b"a"), (2, None), (4, b"b")]


def test_an_interrupted_produce_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: object) -> Iterator[bytes | None]:
        yield b"one"
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr("topics.cli.produce.lines_of", interrupted)
    answer = topics("produce", "orders", "--dir", tmp_path)
    assert (answer.code, answer.out) == (130, "")
    assert answer.err.strip() == "appended 1 record to orders, seq 1"


def test_a_line_too_long_for_any_record_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.cli.produce.MAX_LINE_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as endless:
        (first,) = lines_of(endless)
    assert first is not None
    assert 1 << 20 < len(first) < 2 << 20
    answer = topics("produce", "t", "--dir", tmp_path, stdin=f"one\n{'x' * (1 << 20)}x\ntwo\n")
    assert answer.code == 2
    assert "line 2: longer than 1.0 MiB, which no record may be" in answer.err
    assert "appended 1 record to t, seq 1 before that" in answer.err


def test_messages_are_appended_without_a_file(tmp_path: Path) -> None:
    done = topics("produce", "t", "-m", "hello", "--message", "", "--dir", tmp_path)
    assert done.out == "appended 2 records to t, seq 1 to 2\n"
    one = topics("produce", "t", "-m", '{"n": 1}', "--as", "json", "--dir", tmp_path)
    assert one.out == "appended 1 record to t, seq 3\n"
    shown = topics("read", "t", "--json", "--dir", tmp_path).json_lines
    assert [record["data"] for record in shown] == ["hello", "", {"n": 1}]


def test_a_message_in_the_place_of_a_file_gets_a_hint(tmp_path: Path) -> None:
    answer = topics("produce", "orders", "hello world", "--dir", tmp_path)
    assert answer.code == 2
    assert "there is no file 'hello world'" in answer.err
    assert "topics produce orders -m 'hello world'" in " ".join(answer.err.split())


def test_a_file_and_messages_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n")
    answer = topics("produce", "t", tmp_path / "lines", "-m", "hello", "--dir", tmp_path / "data")
    assert (answer.code, "not both" in answer.err) == (2, True)
