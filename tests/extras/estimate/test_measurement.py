"""Estimates follow this machine's speed, which is measured once and kept."""

import os
import time
from pathlib import Path

import pytest
from tiny_project import ROOT

from tandem.extras.estimate import measurement
from tandem.extras.estimate.measurement import Speed, describe_processor, measure_once
from tandem.extras.estimate.resources import Hardware, Work

ENTRIES = ROOT / "config/hardware"


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """`keep(**fields)`: a home in which a measurement of this processor is kept; returns its file."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(**fields) -> Path:
        speed = Speed(describe_processor(), "fp32", 0.21, alone=True)._replace(**fields)
        monkeypatch.setattr(measurement, "_measure_in_process", lambda processor: speed)
        measure_once()
        monkeypatch.setattr(
            measurement, "_measure_in_process", lambda processor: pytest.fail("measured again")
        )
        (file,) = (tmp_path / ".cache/tandem/speed").iterdir()
        return file

    return write


def test_a_machine_of_half_the_speed_takes_twice_as_long(keep):
    keep(tflops=0.21)
    written, here = Hardware.load(ENTRIES, "cpu"), Hardware.load_scaled(ENTRIES, "cpu")
    assert written.layers == 0.42
    work = Work("dual", 1e15)
    assert here.seconds(work) == pytest.approx(2 * written.seconds(work))
    assert here.rates == written.rates
    assert "0.50 times as fast, in fp32" in here.origin["this machine"]


def test_an_entry_that_names_no_measurement_is_as_written(keep):
    keep(tflops=0.21)
    assert Hardware.load_scaled(ENTRIES, "h200") == Hardware.load(ENTRIES, "h200")


@pytest.mark.parametrize(
    ("precision", "tflops", "counts"),
    [("fp32", 0.01, 0.10), ("fp32", 0.21, 0.21), ("bf16", 0.01, 0.42)],
)
def test_a_disturbed_measurement_is_the_least_that_a_machine_computes(
    precision, tflops, counts, keep
):
    keep(alone=False, precision=precision, tflops=tflops)
    written, here = Hardware.load(ENTRIES, "cpu"), Hardware.load_scaled(ENTRIES, "cpu")
    assert here.peak == pytest.approx(written.peak * counts / written.layers)


def test_a_disturbed_measurement_is_tried_again_after_an_hour(keep, monkeypatch):
    file = keep(alone=False)
    assert not measure_once().alone  # and did not measure again
    hours_ago = time.time() - 2 * measurement.DISTURBED_SECONDS
    os.utime(file, (hours_ago, hours_ago))
    again = Speed(describe_processor(), "bf16", 0.3, alone=True)
    monkeypatch.setattr(measurement, "_measure_in_process", lambda processor: again)
    assert measure_once() == again


def test_what_forbids_instructions_makes_another_processor_of_it(keep, monkeypatch):
    keep()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    slower = Speed(describe_processor(), "fp32", 0.1, alone=True)
    monkeypatch.setattr(measurement, "_measure_in_process", lambda processor: slower)
    assert measure_once() == slower
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert measure_once().tflops == 0.21


def test_a_damaged_file_is_measured_anew(keep, monkeypatch):
    keep().write_text('{"processor": 1')
    anew = Speed(describe_processor(), "bf16", 0.3, alone=True)
    monkeypatch.setattr(measurement, "_measure_in_process", lambda processor: anew)
    assert measure_once() == anew


def test_a_process_of_its_own_measures_what_auto_trains_in():
    from tandem.models.device import resolve_precision

    speed = measurement._measure_in_process("this one")
    assert (speed.processor, speed.precision) == ("this one", resolve_precision("auto"))
    assert 1e-4 < speed.tflops < 100
