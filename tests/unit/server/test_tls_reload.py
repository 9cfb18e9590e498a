"""Files of certificates that change: when they are loaded, and which are tried again."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from harness.certificates import Authority
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.certificates import facts_of_certificate
from headrace.node.listener_security import TlsSettings, tls_settings
from headrace.server import tls_context
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log
from headrace.server.tls_reload import PERIOD_S, SETTLED_S, CertificateFiles


class Timer:
    def __init__(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delay_s, self.call, self.is_cancelled = delay_s, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, call))
        return self.timers[-1]


class Listener:
    """Loads the text of its keystore, if that ends with `whole`."""

    def __init__(self, keystore: Path) -> None:
        self.settings: TlsSettings | None = named(keystore)
        self.text = keystore.read_text()

    def load(self) -> None:
        self.use(self.settings)

    def use(self, settings: TlsSettings | None) -> None:
        assert settings is not None
        assert settings.keystore is not None
        path = Path(settings.keystore)
        text = path.read_text() if path.exists() else ""
        if not text.endswith("whole"):
            raise CannotListen(f"{path} cannot be used")
        self.settings, self.text = settings, text


class Counts:
    reloads_failed = 0


def named(keystore: Path) -> TlsSettings:
    return tls_settings({"ssl.keystore.location": str(keystore)}, "SSL")


class Watch:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "broker.pem"
        self.file.write_text("old whole")
        self.listener = Listener(self.file)
        self.loop, self.counts = Loop(), Counts()
        self.files = CertificateFiles(
            cast(Any, self.loop),
            {"SSL": self.listener},
            cast(Any, self.counts),
            Log(write=lambda text: None),
            lambda: None,
        )

    def look(self) -> float:
        """At the files, once; after how long they are looked at again."""
        (timer,) = [one for one in self.loop.timers if not one.is_cancelled]
        self.loop.timers.clear()
        timer.call()
        (following,) = [one for one in self.loop.timers if not one.is_cancelled]
        return following.delay_s


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_a_changed_file_is_loaded_when_it_stays_as_it_is(watch: Watch) -> None:
    """A part of it may be loadable, too: a chain without its last certificates."""
    assert watch.look() == PERIOD_S
    for size in range(1, 4):
        watch.file.write_text("new whole" * size)
        assert watch.look() == SETTLED_S, "before it is looked at again"
        assert watch.listener.text == "old whole"
    assert watch.look() == PERIOD_S
    assert watch.listener.text == "new whole" * 3
    assert watch.counts.reloads_failed == 0


def test_one_that_is_as_it_was_is_not_loaded(watch: Watch) -> None:
    watch.file.rename(watch.file.with_suffix(".away"))
    assert watch.look() == SETTLED_S
    watch.file.with_suffix(".away").rename(watch.file)
    assert watch.look() == PERIOD_S
    assert watch.listener.text == "old whole"
    assert watch.counts.reloads_failed == 0


def test_a_bad_one_is_tried_once_and_again_when_it_changes(watch: Watch) -> None:
    watch.file.write_text("half")
    for _ in range(5):
        watch.look()
    assert (watch.listener.text, watch.counts.reloads_failed) == ("old whole", 1)
    watch.file.write_text("new whole")
    for _ in range(2):
        watch.look()
    assert (watch.listener.text, watch.counts.reloads_failed) == ("new whole", 1)


def test_who_asks_does_not_wait(watch: Watch) -> None:
    watch.file.write_text("new whole")
    watch.files.reload()
    assert watch.listener.text == "new whole"
    assert watch.look() == PERIOD_S


class TestOtherSettings:
    def test_a_file_that_comes_later_is_used_then(self, watch: Watch) -> None:
        """Nobody changes the settings once more: a broker would show its old certificate until that ends."""
        later = watch.file.with_name("later.pem")
        watch.files.use("SSL", lambda: named(later))
        for _ in range(3):
            watch.look()
        assert (watch.listener.text, watch.counts.reloads_failed) == ("old whole", 1)
        later.write_text("half")
        watch.look()
        watch.look()
        assert (watch.listener.text, watch.counts.reloads_failed) == ("old whole", 2)
        later.write_text("later whole")
        watch.look()
        assert watch.listener.text == "later whole"
        later.write_text("newest whole")
        watch.look()
        watch.look()
        assert watch.listener.text == "newest whole", "it is watched as the first one was"

    def test_settings_that_were_taken_back_are_not_tried_again(self, watch: Watch) -> None:
        later = watch.file.with_name("later.pem")
        watch.files.use("SSL", lambda: named(later))
        watch.files.use("SSL", lambda: named(watch.file))
        later.write_text("later whole")
        watch.look()
        watch.look()
        assert watch.listener.text == "old whole"

    def test_wrong_settings_have_no_files(self, watch: Watch) -> None:
        def wrong() -> TlsSettings:
            raise InvalidConfig("no")

        watch.files.use("SSL", wrong)
        watch.look()
        assert watch.counts.reloads_failed == 1

    def test_a_file_that_changes_while_it_is_read_is_loaded_again(
        self, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = watch.file.with_name("other.pem")
        other.write_text("other whole")
        use = watch.listener.use

        def replaced(settings: TlsSettings | None) -> None:
            use(settings)
            other.write_text("replaced and whole")

        monkeypatch.setattr(watch.listener, "use", replaced)
        watch.files.use("SSL", lambda: named(other))
        monkeypatch.undo()
        watch.look()
        watch.look()
        assert watch.listener.text == "replaced and whole"


class TestOneRead:
    """OpenSSL reads a keystore itself, after we have looked what is in it."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path / "authority")

    @pytest.mark.parametrize("times", [1, 100])
    def test_a_keystore_that_is_replaced_in_between(
        self, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, times: int
    ) -> None:
        file = tmp_path / "broker.pem"
        texts = [authority.issue(name).both.read_text() for name in ("one", "two")]
        file.write_text(texts[0])
        load, count = tls_context._load_identity, 0

        def replaced(*args: Any) -> None:
            nonlocal count
            count += 1
            if count <= times:
                file.write_text(texts[count % 2])
            load(*args)

        monkeypatch.setattr(tls_context, "_load_identity", replaced)
        if times > 1:
            with pytest.raises(CannotListen, match="changes while it is read"):
                tls_context.load_certificates(named(file))
            return
        loaded = tls_context.load_certificates(named(file))
        assert [one.subject for one in loaded.facts] == ["CN=two"]
        assert facts_of_certificate(shown_by(loaded.context, authority)).subject == "CN=two"


def shown_by(context: Any, authority: Authority) -> bytes:
    """The certificate that a server with this context shows."""
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    server = context.wrap_bio(*ends[0], server_side=True)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    client = trusting.wrap_bio(*ends[1], server_hostname="localhost")
    for _ in range(3):
        for end, mine, theirs in ((client, 1, 0), (server, 0, 1)):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            ends[theirs][0].write(ends[mine][1].read())
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate
