"""Optimiser, schedule and adapters of trainings and pre-trainings."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tandem.config.base import Items, Precision, Section


def _unless_all(value: object) -> object:
    return None if value == "all-linear" else value


class Lora(Section):
    """Low-rank adapters."""

    rank: int = Field(8, ge=1, description="rank of the adapters")
    alpha: float = Field(16.0, gt=0, description="the adapters are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the adapters")
    targets: Annotated[
        Items[str] | None,
        Field(min_length=1),
        BeforeValidator(_unless_all, json_schema_input_type=list[str] | Literal["all-linear"] | None),
    ] = Field(None, description="names of linear layers; null or all-linear: all")


class Optimisation(Section):
    """Optimiser, schedule, duration: what trainings and pre-trainings share."""

    epochs: float = Field(1.0, gt=0, description="passes over the training data")
    steps: int | None = Field(None, ge=1, description="optimiser steps; null: as many as `epochs` takes")
    lr: float = Field(1e-5, gt=0, description="peak learning rate")
    optimizer: Literal["adamw", "adam", "lamb"] = Field("adamw", description="update rule")
    weight_decay: float = Field(0.01, ge=0, description="weight decay, not of biases and layer norms")
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps over which the learning rate rises")
    schedule: Literal["linear", "linear_from_start", "constant"] = Field(
        "linear", description="after the warm-up; linear_from_start: the fall to zero counts the warm-up's steps too"
    )
    clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: any")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the encoder's own")
    precision: Precision = Field("auto", description="of the computation; auto: bf16 where the device has it")
    seed: int | None = Field(None, ge=0, description="null: the configuration's")


class PartTrain(Section):
    """What one part of a joint training has of its own."""

    lr: float | None = Field(None, gt=0, description="peak learning rate; null: that of both")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: that of both")
