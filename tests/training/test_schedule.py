from pytest import approx

from tandem.config.optimisation import Optimisation
from tandem.training.loop import rate

LINEAR = Optimisation(lr=1.0, warmup=0.2, schedule="linear")


def test_rate_rises_over_the_warm_up_and_falls_to_zero():
    # ten steps, two of warm-up: 1/2, 2/2, then (10 - step) / 8
    assert [rate(s, 10, LINEAR) for s in range(10)] == approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )


def test_rate_without_warm_up_and_constant():
    assert [rate(s, 4, Optimisation(lr=2.0, warmup=0.0, schedule="constant")) for s in range(4)] == [2.0] * 4
