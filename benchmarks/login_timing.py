"""users: whether the time of a refusal tells if there is such a user.

Welch's t of 10,000 logins of a user that exists, with a wrong password, and of 10,000 of users that do not
exist, in random order. |t| < 4.5 says that no difference can be seen. A third kind, of the user that exists,
waits for 50 µs more while its clock runs: that must be seen, or the first result would say nothing. The
slowest per cent is left out: they are the machine's.

Refusals are not delayed here: in production the delay hides what little there is once more.
"""

from __future__ import annotations

import random
import socket
import statistics
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import secured
from benchmarks.bench import Bench
from harness.message_socket import MessageSocket
from harness.secure_kafka import USER
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

LOGINS = 10_000
PLANTED_S = 50e-6
KEPT = 0.99
LIMIT = 4.5
LINGER = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
KNOWN, UNKNOWN, PLANTED = "known", "unknown", "planted"

# One login of that user; its waits are counted, and the planted one is made before the last of them.
Attempt = Callable[[MessageSocket, str, float], float]


def run(bench: Bench) -> None:
    with ExitStack() as running:
        directory = running.enter_context(bench.directory())
        bench.say("starting headrace, with logins")
        settings = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "connection.failed.authentication.delay.ms": "0",
        }
        made = secured.make(bench.kinds["headrace"], directory, settings)
        running.enter_context(made.broker)
        secured.prepare(made, [], "group")
        for mechanism, attempt in (("SCRAM", scram), ("PLAIN", plain)):
            unseen = bench.measure(
                *("users", f"{mechanism}: |t| of known and unknown users", "t"),
                higher_is_better=False,
                limit=LIMIT,
            )
            seen = bench.measure("users", f"{mechanism}: |t| of 50 µs more", "t", limit=LIMIT)
            for repeat in range(bench.repeats):
                times = measured(made.ports["LOGIN"], attempt, bench.amount(LOGINS))
                t, planted = (abs(welch(times[KNOWN], times[kind])) for kind in (UNKNOWN, PLANTED))
                unseen.add("headrace", t)
                seen.add("headrace", planted)
                medians = ", ".join(
                    f"{kind} {statistics.median(some) * 1e6:.0f} µs" for kind, some in times.items()
                )
                told = f"|t| {t:.2f}, planted {planted:.2f} ({medians})"
                bench.say(f"users  {mechanism} {repeat + 1}/{bench.repeats}  {told}")


def measured(port: int, attempt: Attempt, count: int) -> dict[str, list[float]]:
    """Seconds of each login, by kind."""
    rng = random.Random()
    for _ in range(200):  # until everything is warm
        _login(port, attempt, KNOWN, rng)
        _login(port, attempt, UNKNOWN, rng)
    kinds = [KNOWN, UNKNOWN, PLANTED] * count
    rng.shuffle(kinds)
    times: dict[str, list[float]] = {KNOWN: [], UNKNOWN: [], PLANTED: []}
    for kind in kinds:
        times[kind].append(_login(port, attempt, kind, rng))
    return times


def _login(port: int, attempt: Attempt, kind: str, rng: random.Random) -> float:
    letters = "abcdefghijklmnopqrstuvwxyz"
    nobody = "".join(rng.choices(letters, k=len(USER)))
    client = MessageSocket(port)
    try:
        return attempt(client, nobody if kind == UNKNOWN else USER, PLANTED_S if kind == PLANTED else 0.0)
    finally:
        # without waiting for the other side: thousands of connections would stay in TIME_WAIT
        client.socket.setsockopt(*LINGER)
        client.close()


def plain(client: MessageSocket, user: str, more_s: float) -> float:
    handshake(client, "PLAIN")
    return asked(client, f"\0{user}\0guessed".encode(), more_s)[1]


def scram(client: MessageSocket, user: str, more_s: float) -> float:
    handshake(client, "SCRAM-SHA-256")
    challenge, first_s = asked(client, f"n,,n={user},r=guess".encode(), 0.0)
    nonce = challenge.decode().partition(",")[0]
    proof = "A" * 43 + "="
    _, last_s = asked(client, f"c=biws,{nonce},p={proof}".encode(), more_s)
    return first_s + last_s


def handshake(client: MessageSocket, mechanism: str) -> None:
    assert not client.ask("bench", SaslHandshakeRequest(mechanism=mechanism), 1).error_code


def asked(client: MessageSocket, message: bytes, more_s: float) -> tuple[bytes, float]:
    """The broker's message, and how long it took."""
    request = SaslAuthenticateRequest(auth_bytes=message)
    began = time.perf_counter()
    while more_s and time.perf_counter() - began < more_s:
        pass  # not a sleep, which takes longer than that
    client.send("bench", request, 1)
    answer = client.receive()
    took = time.perf_counter() - began
    return bytes(answer.auth_bytes), took


def welch(left: list[float], right: list[float]) -> float:
    """Student's t for samples with different variances (B. L. Welch, 1947), without the slowest ones."""
    slowest = sorted(left + right)[int(KEPT * (len(left) + len(right))) - 1]
    left, right = ([one for one in some if one <= slowest] for some in (left, right))
    variance = sum(statistics.variance(some) / len(some) for some in (left, right))
    return (statistics.fmean(left) - statistics.fmean(right)) / variance**0.5
