"""From settings to Security: every spelling, and what is wrong is named before the first connection."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from headrace.client.security.oauthbearer import OAuthBearer
from headrace.client.security.oidc import ClientCredentials
from headrace.client.security.sasl import Plain, Scram
from headrace.client.security.tls import Tls, tls_context
from headrace.client.settings.configuration import Configuration, InvalidSetting
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.security import security_settings

PACKAGE = "org.apache.kafka.common.security"
SASL = {"security_protocol": "sasl_plaintext"}
USER = {"sasl_username": "alice", "sasl_password": "secret"}


def context_of(**given: Any) -> ssl.SSLContext:
    return tls_context(Configuration(admin_keys(), {"bootstrap_servers": "localhost:9092", **given}))


def subject_presented_by(context: ssl.SSLContext, authority: Authority) -> str:
    """The common name in the certificate that a client with this context shows to a broker."""
    broker = authority.issue("broker")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusting.load_cert_chain(broker.certificate, broker.key)
    trusting.load_verify_locations(authority.certificate)
    trusting.verify_mode = ssl.CERT_REQUIRED
    to_broker, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_broker, server_hostname="localhost")
    server = trusting.wrap_bio(to_broker, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    subject = (server.getpeercert() or {})["subject"]
    return str(dict(part for parts in subject for part in parts)["commonName"])  # type: ignore[misc]


class TestProtocol:
    @pytest.mark.parametrize(
        ("protocol", "has_tls", "has_login"),
        [("SSL", True, False), ("sasl_plaintext", False, True), ("SASL_SSL", True, True)],
    )
    def test_what_is_made(self, secured: Any, protocol: str, has_tls: bool, has_login: bool) -> None:
        security = secured(security_protocol=protocol, sasl_mechanism="PLAIN", **USER)
        assert isinstance(security.tls, Tls) == has_tls
        assert (security.mechanism is not None) == has_login

    def test_plaintext_needs_nothing(self) -> None:
        assert security_settings(Configuration(admin_keys(), {"bootstrap.servers": "a:1"})) is None


class TestMechanisms:
    @pytest.mark.parametrize("name", ["SCRAM-SHA-256", "scram-sha-512"])
    def test_scram(self, secured: Any, name: str) -> None:
        made = secured(**SASL, **USER, sasl_mechanism=name).mechanism
        assert made == Scram(name.upper(), "alice", "secret")

    @pytest.mark.parametrize(
        "given",
        [
            {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"},
            {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"},
            {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "secret"},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PACKAGE}.plain.PlainLoginModule required username="alice" '
                'password="secret";',
            },
        ],
    )
    def test_a_user_in_every_clients_spelling(self, secured: Any, given: dict[str, str]) -> None:
        assert secured(**SASL, **given).mechanism == Plain("alice", "secret")

    def test_a_delegation_token_says_so(self, secured: Any) -> None:
        module = f'{PACKAGE}.scram.ScramLoginModule required username="i" password="h" tokenauth="true";'
        made = secured(**SASL, sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=module).mechanism
        assert made == Scram("SCRAM-SHA-256", "i", "h", {"tokenauth": "true"})

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, "sasl.mechanism: it must be given; choose one of PLAIN, SCRAM-SHA-256"),
            ({"sasl_mechanism": "GSSAPI"}, "GSSAPI is not supported"),
            ({"sasl_mechanism": "PLAIN"}, "PLAIN needs sasl.username and sasl.password"),
            ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "PLAIN needs sasl.username"),
            (
                {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b\0c"},
                "NUL",
            ),
            (
                {
                    "sasl_mechanism": "PLAIN",
                    "sasl_jaas_config": f"{PACKAGE}.scram.ScramLoginModule required;",
                },
                "has a ScramLoginModule, but sasl.mechanism is PLAIN",
            ),
            (
                {
                    "sasl_mechanism": "PLAIN",
                    "sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required;",
                },
                "Krb5LoginModule is not supported",
            ),
            ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": "?"}, "cannot be read"),
            ({"sasl_mechanism": "OAUTHBEARER"}, "needs oauth_token_provider"),
            (
                {"sasl_mechanism": "OAUTHBEARER", "oauth_token_provider": 7},
                "must be a function",
            ),
            (
                {
                    "sasl_mechanism": "OAUTHBEARER",
                    "oauth_token_provider": str,
                    "sasl_oauthbearer_extensions": "no",
                },
                "key=value",
            ),
            (
                {
                    "sasl_mechanism": "OAUTHBEARER",
                    "oauth_token_provider": str,
                    "sasl_oauthbearer_extensions": "auth=me",
                },
                "'auth' cannot be the name of a SASL extension",
            ),
            (
                {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "https://a"},
                "client.id",
            ),
            (
                {
                    "sasl_mechanism": "OAUTHBEARER",
                    "sasl_oauthbearer_token_endpoint_url": "file:///etc/passwd",
                    "sasl_oauthbearer_client_id": "i",
                    "sasl_oauthbearer_client_secret": "s",
                },
                "must begin with https://",
            ),
        ],
    )
    def test_what_is_missing_is_named(self, secured: Any, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidSetting) as raised:
            secured(**SASL, **given)
        assert said in str(raised.value)

    def test_a_function_gives_tokens(self, secured: Any) -> None:
        security = secured(
            **SASL,
            sasl_mechanism="OAUTHBEARER",
            oauth_token_provider=lambda: "abc",
            sasl_oauthbearer_extensions="tenant=blue, cluster=c1",
        )
        assert isinstance(security.mechanism, OAuthBearer)
        assert security.mechanism.extensions == {"tenant": "blue", "cluster": "c1"}
        assert security.token_provider() == "abc"

    def test_an_object_with_a_method_called_token_gives_tokens_too(self, secured: Any) -> None:
        class Provider:
            def token(self) -> str:
                return "abc"

        security = secured(**SASL, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider())
        assert security.token_provider() == "abc"

    @pytest.mark.parametrize(
        "given",
        [
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
            },
            {
                "sasl.oauthbearer.client.credentials.client.id": "i",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
            },
            {
                "sasl.login.callback.handler.class": f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required clientId="i" '
                'clientSecret="s" scope="kafka" extension_tenant="blue";',
            },
        ],
    )
    def test_a_token_endpoint_in_every_clients_spelling(self, secured: Any, given: dict[str, str]) -> None:
        url = {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}
        security = secured(**SASL, sasl_mechanism="OAUTHBEARER", **url, **given)
        assert security.token_provider == ClientCredentials("https://id.example/token", "i", "s", "kafka")


class TestTrust:
    def test_safe_by_default(self) -> None:
        context = context_of()
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2

    @pytest.mark.parametrize("name", ["ssl.ca.location", "ssl_cafile", "ssl.truststore.location"])
    def test_a_file_of_authorities(self, authority: Authority, name: str) -> None:
        context = context_of(**{name: str(authority.certificate)})
        known: list[Any] = context.get_ca_certs()
        assert [dict(x[0] for x in c["subject"])["commonName"] for c in known] == ["authority"]

    @pytest.mark.parametrize("name", ["ssl.truststore.certificates", "ssl.ca.pem"])
    def test_authorities_as_text(self, authority: Authority, other_authority: Authority, name: str) -> None:
        text = "".join(f"Bag: é\n{a.certificate.read_text()}" for a in (authority, other_authority))
        assert len(context_of(**{name: text}).get_ca_certs()) == 2

    def test_a_directory_of_authorities(
        self, authority: Authority, other_authority: Authority, tmp_path: Path
    ) -> None:
        for number, one in enumerate((authority, other_authority)):
            (tmp_path / f"{number}.crt").write_bytes(one.certificate.read_bytes())
        (tmp_path / "README").write_text("nothing here")
        assert len(context_of(ssl_ca_location=str(tmp_path)).get_ca_certs()) == 2

    def test_checks_can_be_turned_off(self) -> None:
        for algorithm in ("", "none"):
            context = context_of(ssl_endpoint_identification_algorithm=algorithm)
            assert not context.check_hostname
            assert context.verify_mode is ssl.CERT_REQUIRED
        assert context_of(enable_ssl_certificate_verification=False).verify_mode is ssl.CERT_NONE

    def test_a_context_of_the_users_own(self) -> None:
        own = ssl.create_default_context()
        assert context_of(ssl_context=own) is own
        with pytest.raises(
            InvalidSetting, match=r"ssl\.ca\.location cannot be used together with ssl_context"
        ):
            context_of(ssl_context=own, ssl_cafile="ca.pem")
        with pytest.raises(InvalidSetting, match=r"must be an ssl\.SSLContext"):
            context_of(ssl_context="ca.pem")

    def test_versions_and_ciphers(self) -> None:
        context = context_of(ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites="ECDHE-RSA-AES128-GCM-SHA256")
        assert context.maximum_version is ssl.TLSVersion.TLSv1_2
        assert "ECDHE-RSA-AES128-GCM-SHA256" in {cipher["name"] for cipher in context.get_ciphers()}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"ssl_ca_location": "/does/not/exist"}, "cannot read /does/not/exist: No such file"),
            ({"ssl_ca_pem": "rubbish"}, "ssl.truststore.certificates has no PEM certificate"),
            (
                {"ssl_ca_pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
                "cannot be read",
            ),
            ({"ssl_enabled_protocols": "SSLv3"}, "must be TLSv1.2, TLSv1.3 or both"),
            ({"ssl_cipher_suites": "TLS_RSA_ROT13"}, "`openssl ciphers`"),
            ({"ssl_endpoint_identification_algorithm": "dns"}, "must be https, none or empty"),
            ({"ssl_truststore_password": "x"}, "has no effect with PEM"),
            ({"ssl_key_location": "k.pem"}, "needs a certificate"),
            ({"ssl_keystore_certificate_chain": "c"}, "needs ssl.keystore.key"),
            ({"ssl_keystore_location": "a", "ssl_certificate_location": "b"}, "set twice"),
        ],
    )
    def test_what_is_wrong_is_named(self, given: dict[str, str], said: str) -> None:
        with pytest.raises(InvalidSetting) as raised:
            context_of(**given)
        assert said in str(raised.value)

    def test_a_directory_without_authorities(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSetting, match="no file in"):
            context_of(ssl_ca_location=str(tmp_path))


class TestJavaFormats:
    """Python reads neither: the way out is told, and it is a way that works."""

    @pytest.mark.parametrize(
        ("setting", "data", "command"),
        [
            ("ssl_truststore_location", b"\xfe\xed\xfe\xed\0\0", "keytool -list -rfc -keystore {} > ca.pem"),
            ("ssl_truststore_location", b"\x30\x82\x01", "openssl pkcs12 -in {} -nokeys -out ca.pem"),
            ("ssl_keystore_location", b"\xfe\xed\xfe\xed\0\0", "keytool -importkeystore -srckeystore {}"),
            ("ssl_keystore_location", b"\x30\x82\x01", "openssl pkcs12 -in {} -out client.pem"),
        ],
    )
    def test_the_command_that_converts(self, tmp_path: Path, setting: str, data: bytes, command: str) -> None:
        store = tmp_path / "a.store"
        store.write_bytes(data)
        with pytest.raises(InvalidSetting) as raised:
            context_of(**{setting: str(store), setting.replace("location", "password"): "changeit"})
        assert command.format(store) in str(raised.value)

    def test_the_commands_for_pkcs12_work(self, authority: Authority, tmp_path: Path) -> None:
        one = authority.issue("alice")
        store, pem = tmp_path / "client.p12", tmp_path / "client.pem"
        made: list[str | Path] = [
            "openssl",
            "pkcs12",
            "-export",
            "-in",
            one.certificate,
            "-inkey",
            one.key,
            "-out",
            store,
        ]
        subprocess.run([*made, "-passout", "pass:hush1"], check=True)
        passwords = ["-passin", "pass:hush1", "-passout", "pass:hush2"]
        subprocess.run(["openssl", "pkcs12", "-in", store, "-out", pem, *passwords], check=True)
        context = context_of(
            ssl_keystore_location=str(pem),
            ssl_key_password="hush2",
            ssl_ca_location=str(authority.certificate),
        )
        assert subject_presented_by(context, authority) == "alice"


class TestIdentity:
    def test_every_way_to_say_who_we_are(self, authority: Authority) -> None:
        one = authority.issue("alice")
        encrypted = one.encrypted_key("hush")
        for given in (
            {"ssl_keystore_location": str(one.both)},
            {"ssl_certificate_location": str(one.both)},
            {"ssl_certfile": str(one.certificate), "ssl_keyfile": str(one.key)},
            {"ssl_certfile": str(one.certificate), "ssl_keyfile": str(encrypted), "ssl_password": "hush"},
            {"ssl_certificate_pem": one.certificate.read_text(), "ssl_key_pem": one.key.read_text()},
            {
                "ssl.keystore.certificate.chain": one.certificate.read_text(),
                "ssl.keystore.key": encrypted.read_text(),
                "ssl.key.password": "hush",
            },
        ):
            context = context_of(**given, ssl_ca_location=str(authority.certificate))
            assert subject_presented_by(context, authority) == "alice"

    def test_an_encrypted_key_is_never_asked_for_at_the_terminal(self, authority: Authority) -> None:
        one = authority.issue("bob")
        given = {"ssl_certfile": str(one.certificate), "ssl_keyfile": str(one.encrypted_key("hush"))}
        with pytest.raises(InvalidSetting, match=r"set ssl\.key\.password"):
            context_of(**given)
        with pytest.raises(InvalidSetting, match=r"ssl\.key\.password may be wrong"):
            context_of(**given, ssl_key_password="wrong")

    def test_a_key_of_somebody_else(self, authority: Authority) -> None:
        one, other = authority.issue("carol"), authority.issue("dave")
        with pytest.raises(InvalidSetting, match="does not match its certificate"):
            context_of(ssl_certfile=str(one.certificate), ssl_keyfile=str(other.key))
