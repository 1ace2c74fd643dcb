from pytest import approx

from tandem.config.training import Optimisation
from tandem.training.optimizer import schedule_lr

LINEAR = Optimisation(lr=1.0, warmup=0.2, schedule="linear")


def test_rate_rises_over_the_warm_up_and_falls_to_zero():
    # ten steps, two of warm-up: 1/2, 2/2, then (10 - step) / 8
    assert [schedule_lr(s, 10, LINEAR) for s in range(10)] == approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )


def test_the_releases_rate_falls_from_the_first_step_on():
    # ten steps, two of warm-up: 0/2, 1/2, then (10 - step) / 10, as linear_warmup_decay of their optimization.py
    released = LINEAR.model_copy(update={"schedule": "linear_from_start"})
    expected = [0, 0.5, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert [schedule_lr(step, 10, released) for step in range(10)] == approx(expected)


def test_rate_without_warm_up_and_constant():
    assert [
        schedule_lr(s, 4, Optimisation(lr=2.0, warmup=0.0, schedule="constant")) for s in range(4)
    ] == [2.0] * 4
