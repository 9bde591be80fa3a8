"""What Spark finds on this machine, what a session would do with it, and what to do if it fails.

Looks only: nothing is started, and nothing is written.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from topics.spark import java
from topics.spark.errors import CannotStartSpark
from topics.spark.setup.session import INSTALL

OLDEST_PYTHON: Final = (3, 11)
_NEEDED: Final = ("pyspark", "pyarrow", "numpy", "pandas")
_OPTIONAL: Final = {"deltalake": "topics lake needs it: pip install 'topics[lake]'"}
SPARK_VERSION: Final = "4.3"


@dataclass
class Diagnosis:
    """Findings in order, notes on what a session would do, and what stands in the way."""

    found: dict[str, str] = field(default_factory=dict)
    would: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.remedies

    def to_dict(self) -> dict[str, object]:
        return {"ok": self.is_good, **asdict(self)}


def examine(environ: Mapping[str, str] | None = None) -> Diagnosis:
    """Look at Python, its packages and Java."""
    environ = os.environ if environ is None else environ
    report = Diagnosis()
    _python(report, environ)
    _packages(report)
    _java(report, environ)
    return report


def _python(report: Diagnosis, environ: Mapping[str, str]) -> None:
    report.found["Python"] = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        report.remedies.append("run topics with Python 3.11 or newer")
    worker = environ.get("PYSPARK_PYTHON")
    if worker is None:
        report.would.append(f"run workers with {sys.executable}")
    elif os.path.realpath(worker) != os.path.realpath(sys.executable):
        report.found["PYSPARK_PYTHON"] = worker
        report.would.append(f"run workers with {worker}, as PYSPARK_PYTHON says: it needs topics")


def _packages(report: Diagnosis) -> None:
    for name in _NEEDED:
        version = _version(name)
        report.found[name] = version or "missing"
        if version is None:
            report.remedies.append(f"{name} is missing: {INSTALL}")
    spark = report.found["pyspark"]
    if spark != "missing" and not spark.startswith(f"{SPARK_VERSION}."):
        report.remedies.append(f"pyspark {spark} is not {SPARK_VERSION}: {INSTALL}")
    for name, reason in _OPTIONAL.items():
        report.found[name] = _version(name) or f"missing ({reason})"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java(report: Diagnosis, environ: Mapping[str, str]) -> None:
    search = java.search(environ)
    for found in search.seen:
        verdict = "" if found.is_new_enough else f", too old: Spark needs {java.OLDEST}"
        report.found[f"Java {found.shown_version}"] = f"{found.source}{verdict}"
    home = environ.get("JAVA_HOME")
    if home and not any(str(found.home) == home for found in search.seen):
        report.would.append(f"ignore JAVA_HOME={home}: there is no Java in it")
    if search.chosen is None:
        try:
            search.require()
        except CannotStartSpark as error:
            report.remedies.append(str(error))
        return
    chosen = search.chosen
    report.would.append(f"start Java {chosen.shown_version} from {chosen.home}")
    if chosen.lacks_vector_module:
        report.would.append(f"start it without {java.VECTOR_MODULE}, which it does not have")
    if chosen.corrupts_under_g1:
        report.would.append(
            "keep it away from the G1 collector, under which this version corrupts compressed data"
        )
    try:
        java.refuse_g1(chosen, {}, environ)
    except CannotStartSpark as error:
        report.remedies.append(str(error))
