"""The port file, in a directory where others may have put something."""

from __future__ import annotations

from pathlib import Path

import pytest

from topics.server.serve import _write_port_file


@pytest.mark.parametrize("name", ["port", "port.tmp"])
def test_a_planted_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / name).symlink_to(victim)
    _write_port_file(str(tmp_path / "port"), "::1", 4000)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "port").is_symlink()
    assert (tmp_path / "port").read_text() == "[::1]:4000"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["port", "victim"]


def test_a_link_planted_at_the_last_moment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")

    def plant(path: Path, missing_ok: bool = False) -> None:
        path.symlink_to(victim)
        monkeypatch.undo()

    monkeypatch.setattr(Path, "unlink", plant)
    with pytest.raises(FileExistsError):
        _write_port_file(str(tmp_path / "port"), "127.0.0.1", 4000)
    assert victim.read_text() == "precious"
