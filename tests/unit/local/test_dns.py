from __future__ import annotations

from local import dns


def test_an_answer_must_belong_to_the_question_and_carry_a_record() -> None:
    packet = dns.query("a.b")
    good = packet[:2] + b"\x81\x80" + b"\x00\x01\x00\x01" + bytes(4)
    assert dns.has_answer(packet, good)
    assert not dns.has_answer(packet, b"\xff\xff" + good[2:]) or packet[:2] == b"\xff\xff"
    assert not dns.has_answer(packet, packet[:2] + b"\x81\x83" + good[4:])  # NXDOMAIN
    assert not dns.has_answer(packet, packet[:2] + b"\x81\x80" + b"\x00\x01\x00\x00" + bytes(4))
    assert not dns.has_answer(packet, b"")
