"""How often `elastic` looks, whoever wants it to."""

from __future__ import annotations

import threading
import time

from images.elastic.wake import Wake


def test_a_thousand_events_are_a_few_looks_and_who_asks_does_not_wait() -> None:
    wake, over, looks = Wake(), threading.Event(), list[float]()

    def pods() -> None:
        while not over.wait(0.001):
            wake.change()

    def look() -> None:
        while not over.is_set():
            wake.forget()
            looks.append(time.monotonic())
            wake.wait(5.0, 0.4)

    threads = [threading.Thread(target=target) for target in (pods, look)]
    for thread in threads:
        thread.start()
    time.sleep(1.1)
    assert 2 <= len(looks) <= 4
    asked = time.monotonic()
    wake.ask()
    time.sleep(0.2)
    assert any(0 <= at - asked < 0.2 for at in looks)
    over.set()
    for thread in threads:
        thread.join(timeout=10)


def test_who_asks_all_the_time_has_half_of_the_time_spent_on_looks_at_most() -> None:
    wake, began, looks = Wake(), time.monotonic(), 0
    while time.monotonic() - began < 1:
        wake.ask()
        wake.wait(5.0, 1.2)  # a look that takes 0.3 s
        looks += 1
    assert looks <= 4


def test_what_changes_while_nothing_moves_is_looked_at_soon() -> None:
    wake = Wake()
    threading.Timer(0.3, wake.change).start()
    began = time.monotonic()
    wake.wait(5.0, 0.1)
    assert 0.2 < time.monotonic() - began < 2
    wake.forget()
    began = time.monotonic()
    wake.wait(0.2, 0.25)
    assert 0.15 < time.monotonic() - began < 2
