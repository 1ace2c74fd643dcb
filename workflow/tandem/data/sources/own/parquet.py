"""Parquet files, streamed; columns beside the role's are not read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.data.sources.own.roles import Role
from tandem.errors import UserError

ROWS = 1024
BUFFER = 1 << 20  # bytes read ahead of a column; pre_buffer would keep all that was read, packed, to the end


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file row n`, field → value) of each row, rows counted from 1."""
    done = 0
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = role.resolve(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(ROWS, columns=list(names.values())):
                columns = [batch[name].to_pylist() for name in names.values()]
                for row, values in enumerate(zip(*columns, strict=True), start=done + 1):
                    yield f"{path} row {row}", dict(zip(names, values, strict=True))
                done += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 after row {done}, {error.reason}; write its texts as UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{path}: no readable Parquet after row {done} ({why}); write or fetch it again") from None
