"""Ask the cluster's DNS one question, through its Service: that proves route, kube-proxy, pod and CoreDNS at once."""

from __future__ import annotations

import secrets
import socket
import struct


def query(name: str) -> bytes:
    """Write the packet that asks for a name's IPv4 address."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    header = struct.pack("!HHHHHH", secrets.randbelow(1 << 16), 0x0100, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", 1, 1)


def has_answer(packet: bytes, answer: bytes) -> bool:
    """Tell whether `answer` belongs to the question and has at least one record."""
    if len(answer) < 12 or answer[:2] != packet[:2]:
        return False
    code, records = answer[3] & 0xF, int.from_bytes(answer[6:8], "big")
    return code == 0 and records > 0


def answers(server: str, name: str, timeout_s: float = 0.5) -> bool:
    """Ask `server` for `name` once."""
    packet = query(name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout_s)
        try:
            client.sendto(packet, (server, 53))
            return has_answer(packet, client.recv(4096))
        except OSError:
            return False
