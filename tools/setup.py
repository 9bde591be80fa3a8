"""Bring .venv up to date, stage by stage: `setup.py base dev` installs what those stages lack.

Stages are `base` (the package and what it needs), `spark` and `dev`; every stage stands on `base`.
A stage that is already as its lock file says costs a few milliseconds: what was installed is
remembered under .venv as a digest of the files that decide it.

Runs on any Python 3.11+ with nothing installed, so only the standard library is used here.
"""

import fcntl
import hashlib
import importlib.util
import re
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / ".stages"
STAGES = {
    "base": "the package and what it runs on, 110 MB on disk",
    "spark": "Spark, Java and the lake, over 600 MB to fetch",
    "dev": "test and lint tools, 110 MB on disk",
}
NOTICE_EVERY_S = 2.0
TRIES = 4
PAUSE_S = 5.0
"""Between tries: what ails a network is often over soon."""


def main(arguments: Sequence[str]) -> None:
    unknown = set(arguments) - STAGES.keys()
    if unknown:
        sys.exit(
            f"setup: no stage named {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}"
        )
    if sys.version_info < (3, 11):  # noqa: UP036  the one file that an older Python may meet
        sys.exit(f"setup: topics needs Python 3.11 or newer, {sys.executable} is {sys.version}")
    wanted = [stage for stage in STAGES if stage == "base" or stage in arguments]
    if all(is_current(stage) for stage in wanted):
        return
    with one_at_a_time():
        for stage in wanted:
            if not is_current(stage):
                install(stage)


def is_current(stage: str) -> bool:
    stamp = STAMPS / stage
    return PYTHON.exists() and stamp.exists() and stamp.read_text() == digest(stage)


def digest(stage: str) -> str:
    """What decides a stage: its lock, and for the base how the project is built and where it is."""
    total = hashlib.sha256((ROOT / "requirements" / f"{stage}.txt").read_bytes())
    if stage == "base":
        total.update((ROOT / "pyproject.toml").read_bytes())
        total.update(bytes(ROOT))
    return total.hexdigest()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two makes in one checkout would otherwise install over each other."""
    with (ROOT / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(stage: str) -> None:
    started = time.monotonic()
    print(f"setup: {stage} ({STAGES[stage]})", flush=True)
    if not PYTHON.exists():
        create_venv()
    locked = ROOT / "requirements" / f"{stage}.txt"
    count = sum("==" in line for line in locked.read_text().splitlines())
    # The lock is complete, so pip has nothing to resolve; a file it does not list is refused.
    # Bytecode is left to the first import: for the base pip then takes 9 s rather than 15.
    lock = ["--no-deps", "--require-hashes", "--no-compile", "-r", str(locked)]
    run_pip(lock, stage=stage, count=count)
    if stage == "base":
        run_pip(["--no-deps", "--no-build-isolation", "-e", str(ROOT)], stage=stage, count=0)
    STAMPS.mkdir(exist_ok=True)
    (STAMPS / stage).write_text(digest(stage))
    print(f"setup: {stage} ready in {time.monotonic() - started:.0f} s", flush=True)


def create_venv() -> None:
    """A fresh .venv with pip in it. Python's own way has pip install itself, which takes 5 s of the
    processor; its wheel is a zip file, and unpacked where packages are it runs as well."""
    found = importlib.util.find_spec("ensurepip")  # some systems have it in a package of its own
    bundled = Path(found.origin).parent / "_bundled" if found and found.origin else Path()
    wheels = sorted(bundled.glob("pip-*.whl"))
    venv.create(VENV, with_pip=not wheels, symlinks=True)
    if wheels:
        (packages,) = (VENV / "lib").glob("python*/site-packages")
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(packages)


def run_pip(arguments: Sequence[str], *, stage: str, count: int) -> None:
    """Run pip, and again if it fails: it installs nothing before it has fetched everything."""
    for _ in range(TRIES - 1):
        code, said = run_pip_once(arguments, stage=stage, count=count)
        if code == 0:
            return
        print(f"{said}setup: {stage}: pip failed, once more in {PAUSE_S:.0f} s", flush=True)
        time.sleep(PAUSE_S)
    code, said = run_pip_once(arguments, stage=stage, count=count)
    if code != 0:
        sys.exit(f"setup: pip could not install the {stage} stage\n{said}")


def run_pip_once(arguments: Sequence[str], *, stage: str, count: int) -> tuple[int, str]:
    """Run pip quietly, with a line of progress now and then; its exit code and its own words."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "raw" if pip_reports_bytes() else "off", *arguments]
    said: list[str] = []
    collected = 0
    noticed = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            collected += line.startswith("Collecting ")
            fetched = re.match(r"Progress (\d+) of (\d+)", line)
            if fetched is None:
                said.append(line)
            # Unpacking takes long and says nothing after its first line, so that one always counts.
            is_unpacking = line.startswith("Installing collected packages")
            if is_unpacking or time.monotonic() - noticed >= NOTICE_EVERY_S:
                noticed = time.monotonic()
                print(progress(stage, collected, count, fetched, said), flush=True)
    return pip.returncode, "".join(said)


def progress(
    stage: str, collected: int, count: int, fetched: re.Match[str] | None, said: Sequence[str]
) -> str:
    if count == 0:
        return f"setup: {stage}: building the project itself"
    if fetched:
        done, size = int(fetched[1]) >> 20, int(fetched[2]) >> 20
        return f"setup: {stage}: package {collected} of {count}, {done} of {size} MB fetched"
    if said and said[-1].startswith("Installing"):
        return f"setup: {stage}: unpacking {count} packages"
    return f"setup: {stage}: package {collected} of {count}"


def pip_reports_bytes() -> bool:
    """Whether the pip in .venv can print plain progress: the one Python brings may be older."""
    found = next((VENV / "lib").glob("python*/site-packages/pip-*.dist-info"), None)
    version = re.search(r"pip-(\d+)\.(\d+)", found.name) if found else None
    return version is not None and (int(version[1]), int(version[2])) >= (24, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
