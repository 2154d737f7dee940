"""DirectChoice: short requests go the way that measures faster, long ones to threads."""

from __future__ import annotations

from opalite.run.queue.direct_choice import AGAIN, PAIRS, SETTLING, SHORT_S, STRETCH, DirectChoice

TRIAL = 2 * PAIRS * (SETTLING + STRETCH)


class Requests:
    """Requests one after the other, each as long as its way takes."""

    def __init__(self) -> None:
        self.choice, self.now = DirectChoice(), 0.0

    def run(self, count: int, direct_s: float, by_thread_s: float) -> list[bool]:
        ways = []
        for _ in range(count):
            way = self.choice.decide(self.now, min(direct_s, by_thread_s))
            self.now += direct_s if way else by_thread_s
            ways.append(way)
        return ways


def test_the_faster_way_is_taken() -> None:
    for direct_s, by_thread_s in ((30e-6, 80e-6), (9e-4, 5e-4), (5e-4, 5e-4)):
        requests = Requests()
        trial = requests.run(TRIAL, direct_s, by_thread_s)
        assert abs(trial.count(True) - TRIAL // 2) <= SETTLING, "each way has its stretches"
        assert set(requests.run(50, direct_s, by_thread_s)) == {direct_s < by_thread_s}


def test_long_requests_are_never_direct() -> None:
    assert not any(Requests().run(TRIAL, 2 * SHORT_S, 3 * SHORT_S))


def test_a_slow_phase_decides_nothing() -> None:
    """It covers one stretch of the faster way."""
    requests = Requests()
    requests.run(SETTLING + STRETCH, 30e-6, 80e-6)
    requests.run(SETTLING + STRETCH, 500e-6, 80e-6)
    requests.run(TRIAL, 30e-6, 80e-6)
    assert requests.run(1, 30e-6, 80e-6) == [True]


def test_the_decision_is_measured_again() -> None:
    requests = Requests()
    requests.run(TRIAL + 10, 30e-6, 80e-6)
    assert requests.run(1, 80e-6, 30e-6) == [True]
    requests.run(AGAIN + TRIAL, 80e-6, 30e-6)
    assert requests.run(1, 80e-6, 30e-6) == [False]


def test_a_request_that_becomes_long_goes_to_threads() -> None:
    requests = Requests()
    requests.run(TRIAL, 30e-6, 80e-6)
    assert requests.run(1, 30e-6, 80e-6) == [True]
    assert requests.run(2, 2 * SHORT_S, 3 * SHORT_S) == [False, False]
