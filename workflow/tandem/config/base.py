"""The base of every typed model: of configurations, stage parameters and execution options."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Precision = Literal["auto", "fp32", "bf16"]


class Model(BaseModel):
    """A record of typed fields. Unknown keys are refused and values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, protected_namespaces=())
