"""A Spark session on a machine with or without Java, ready for topics.

Everything Spark takes from the environment has to be there before its JVM starts, so it is put
there, but never over a choice of the user's. Only a session that starts the JVM looks for Java: one
that joins a running Spark changes nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topics.spark import java
from topics.spark.errors import CannotStartSpark
from topics.spark.setup.cache import made_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT: Final = "sc://"
_UTC: Final = ("spark.sql.session.timeZone", "UTC")
_LOOPBACK: Final = "127.0.0.1"
_SAME_MACHINE: Final = ("127.", "localhost", "[::1]")
_LONGEST_SOCKET_DIR: Final = 100 - len("/.01234567-0123-0123-0123-0123456789ab.sock")
"""What the smallest limit of a system, 104 bytes, leaves beside the names that Spark gives them."""
INSTALL: Final = "pip install 'topics[spark]'"


def session(
    master: str = "local[*]", *, conf: Mapping[str, object] | None = None, **more: object
) -> SparkSession:
    """A ready SparkSession; times are UTC, and `format("topics")` works in it.

    Settings go by Spark's own names, in `conf` or as keywords::

        spark = topics.spark.session("local[2]", **{"spark.ui.enabled": False})

    A master such as `sc://host:15002` names a Spark Connect server: nothing is started here, and
    the settings are those that a running Spark lets a client change.
    """
    require_pyspark()
    if master.startswith(_CONNECT):
        return _connected(master, {**(conf or {}), **more})
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes half a second

    settings = session_conf(master, {**(conf or {}), **more})
    if not _is_running():
        prepare(master, settings)
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    from topics.spark.source.cursors import report_cursors  # noqa: PLC0415

    report_cursors(started)
    return started


def _connected(remote: str, conf: Mapping[str, object]) -> SparkSession:
    """A session of a Spark Connect server; Java and the workers are the server's business."""
    missing = [name for name in ("grpc", "grpc_status") if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotStartSpark(
            f"Spark Connect needs {' and '.join(missing)}: pip install 'topics[spark]' "
            "'pyspark[connect]==4.3.*'"
        )
    from pyspark.sql import SparkSession  # noqa: PLC0415

    started = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in {_UTC[0]: _UTC[1], **conf}.items():
        started.conf.set(name, _text(value))
    return started


def require_pyspark() -> None:
    """Say what to install rather than fail on an import."""
    if importlib.util.find_spec("pyspark") is None:
        raise CannotStartSpark(f"PySpark is not installed. {INSTALL}")


def session_conf(master: str, conf: Mapping[str, object]) -> dict[str, str]:
    """The settings of a session as text, those that every session gets included."""
    settings = {"spark.app.name": "topics", _UTC[0]: _UTC[1]}
    if is_on_this_machine(master):
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return settings | {name: _text(value) for name, value in conf.items()}


def is_on_this_machine(master: str) -> bool:
    """Whether no other machine has to reach the driver."""
    return master.startswith("local") or master.removeprefix("spark://").startswith(_SAME_MACHINE)


def worker_sockets(master: str, directory: str) -> dict[str, str]:
    """Settings that let Spark and its Python workers talk through sockets in a directory, not TCP.

    That takes almost a tenth of the processor time off a scan. Not every session has them, because
    Spark then shows a traceback whenever it lets go of a worker that had nothing to do for a
    minute. The name of such a socket has to be short: in a directory with a long name it stays TCP.
    Spark leaves some sockets behind, so the directory should be one that goes afterwards.
    """
    if not master.startswith("local") or len(os.fsencode(directory)) > _LONGEST_SOCKET_DIR:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


def prepare(master: str, settings: Mapping[str, str]) -> None:
    """Put into the environment what Spark's launcher and its workers look for there."""
    chosen = java.search().require()
    options = {name: text for name, text in settings.items() if name.endswith("JavaOptions")}
    java.refuse_g1(chosen, options, os.environ)
    os.environ["JAVA_HOME"] = str(java.home_for_spark(chosen))
    # Workers would otherwise be any python3 on PATH, without the packages of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        if os.environ["PYSPARK_PYTHON"] == sys.executable:  # another may not have PySpark
            os.environ.setdefault("SPARK_HOME", str(spark_home()))


def spark_home(*, root: Path | None = None) -> Path:
    """The installed Spark as links, less the zipped copy of its Python half.

    Workers import PySpark from that zip if they find it, where no bytecode can be kept: each takes
    a second to start rather than a third. Without it they import the installed package.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    if not (installed / "python" / "lib" / "pyspark.zip").exists():
        return installed  # not as PyPI ships it: leave it as it is
    place = hashlib.sha256(os.fsencode(installed)).hexdigest()[:12]
    name = f"spark-{importlib.metadata.version('pyspark')}-{place}"

    def fill(made: Path) -> None:
        for part in ("bin", "sbin", "jars", "licenses", "data"):
            if (installed / part).exists():
                (made / part).symlink_to(installed / part)
        lib = made / "python" / "lib"
        lib.mkdir(parents=True)
        for found in (installed / "python" / "lib").iterdir():
            if found.name != "pyspark.zip":
                (lib / found.name).symlink_to(found)

    return made_once(name, fill, root=root)


def _is_running() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._active_spark_context is not None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
