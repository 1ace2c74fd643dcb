"""Object storage in which Snakemake keeps results (`--default-storage-provider`), shared with other machines."""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread
from typing import Any

from tandem.config.settings import ExecutionSettings
from tandem.errors import UserError, shortened
from tandem.extras.archive import archive_of
from tandem.store.artifact import MANIFEST

FLAG = "--default-storage-prefix"
_LONGEST_REASON = 300  # characters of a provider's own message
ANSWER_SECONDS = 120.0  # for the first answer: plugins retry silently for many minutes


def check_storage(provider: Any, prefix: str | None, execution: ExecutionSettings) -> None:
    """Check that the storage answers, and that the execution needs no folder shared by several machines.

    Args:
        provider: Snakemake's storage provider; many kinds of plugins exist, and each raises its own errors.
        prefix: the prefix of every object, `s3://bucket/folder`.
        execution: its shards would share the folder of an artifact, its nodes that of a training.
    Raises:
        UserError: no prefix, a bucket that does not exist, refused credentials, or an execution that shares folders.
    """
    for key in ("shards", "nodes"):
        count = getattr(execution, key)
        if count > 1:
            need = "the jobs that share a stage's work need a folder that all of them see"
            raise UserError(
                f"execution.{key} is {count}, but results are in object storage: {need}; set it to 1"
            )
    if not prefix:
        raise UserError(
            f"{FLAG} is missing; say where results belong, as in {FLAG} s3://my-bucket/my-project"
        )
    try:
        _call_within(ANSWER_SECONDS, partial(_require_bucket, provider, prefix))
    except UserError:
        raise
    except Exception as error:
        words = shortened(" ".join(str(error).split()), _LONGEST_REASON) or type(error).__name__
        hint = "look at the bucket's name, the endpoint and the credentials (docs/storage.md)"
        raise UserError(f"{FLAG} is {prefix}, which cannot be read: {words}; {hint}") from None


def _require_bucket(provider: Any, prefix: str) -> None:
    item = provider.object(f"{prefix.rstrip('/')}/results")
    if invalid := _explain_if_invalid(item):
        raise UserError(f"{FLAG} is {prefix}: {invalid}")
    item.exists()
    # A plugin creates a missing bucket, even one with a typo, at the first object if the credentials allow it.
    if not getattr(item, "bucket_exists", lambda: True)():
        raise UserError(
            f"{FLAG} is {prefix}: there is no such bucket, or it is not yours; make it first"
        )


def _call_within(seconds: float, check: Callable[[], None]) -> None:
    """Call a check in a thread; if it does not end in time, abandon the thread with a `TimeoutError`."""
    errors: list[Exception] = []

    def call() -> None:
        try:
            check()
        except Exception as error:
            errors.append(error)

    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {seconds:g} s")
    for error in errors:
        raise error


def refuse_manifests(targets: Iterable[str]) -> None:
    """Refuse a stage's manifest as a target: it is a file on this machine only, while the storage has its archive."""
    for target in targets:
        if target.endswith(f"/{MANIFEST}"):
            allowed = archive_of(target.removesuffix(f"/{MANIFEST}"))
            raise UserError(f"{target}: results are in object storage; allowed: {allowed}")


def keep_objects(provider: Any, prefix: str) -> None:
    """Make jobs replace results in the storage instead of deleting them.

    Snakemake deletes a job's outputs before the job, and again after a failure. It decided which jobs are due when it
    started. Another machine may have stored the outputs since then, and may read them while this one makes them.

    Args:
        provider: Snakemake's storage provider, before any rule has requested an object from it.
        prefix: the prefix of every object, `s3://bucket/folder`.
    """
    results = provider.object(f"{prefix.rstrip('/')}/results/").query
    plugin_object: Any = provider.get_storage_object_cls()

    class KeptObject(plugin_object):  # type: ignore[misc]
        """An object of the plugin that stays in the storage if it is a result."""

        def remove(self) -> None:
            """Delete the object, unless it is a result."""
            if not self.query.startswith(results):
                super().remove()

    provider.get_storage_object_cls = lambda: KeptObject


def _explain_if_invalid(item: Any) -> str:
    result = item.is_valid_query()
    return "" if result else str(getattr(result, "reason", result))
