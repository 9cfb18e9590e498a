"""Values from files and environment variables in the operator's settings file, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.server.config import WrongSettings, read_settings
from headrace.server.config_providers import CannotResolve, Resolved, resolve
from headrace.server.secret_files import is_secret
from headrace.simulator.manual_host import ManualHost

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "file,env,dir",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
}
PLANTED = "planted-s3cret"


def properties(path: str, text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def resolved(**settings: str) -> Resolved:
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return resolve(PROVIDERS | named, properties, {"PASSWORD": PLANTED})


class TestValues:
    def test_of_a_file_a_variable_and_a_directory(self, tmp_path: Path) -> None:
        secrets = tmp_path / "secrets.properties"
        secrets.write_text(f"key.password={PLANTED}\nother=2")
        (tmp_path / "token").write_text(PLANTED)
        found = resolved(
            a=f"${{file:{secrets}:key.password}}",
            b="${env:PASSWORD}",
            c=f"${{dir:{tmp_path}:token}}",
            d=f"x ${{env:PASSWORD}} and ${{file:{secrets}:other}} y",
            e="plain",
        )
        assert [found.values[name] for name in "abcde"] == [
            PLANTED,
            PLANTED,
            PLANTED,
            f"x {PLANTED} and 2 y",
            "plain",
        ]
        assert set(found.literals) == set("abcd")
        assert found.literals["b"] == "${env:PASSWORD}"
        assert set(found.files) == {str(secrets), str(tmp_path / "token")}

    def test_a_value_is_not_looked_at_again(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("${env:PASSWORD}")
        assert resolved(a=f"${{dir:{tmp_path}:x}}").values["a"] == "${env:PASSWORD}"

    def test_without_providers_the_text_stays(self) -> None:
        assert resolve({"a": "${env:PASSWORD}"}, properties, {"PASSWORD": PLANTED}).values == {
            "a": "${env:PASSWORD}"
        }
        assert resolved(a="${vault:x}").values["a"] == "${vault:x}"

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("${env:MISSING}", "a: the environment variable MISSING is not set"),
            ("${file:/no/such/file:key}", "a: /no/such/file: No such file or directory"),
            ("${dir:/etc:../etc/passwd}", "is not the name of a file"),
        ],
    )
    def test_what_is_missing_is_an_error(self, text: str, problem: str) -> None:
        with pytest.raises(CannotResolve, match=problem.replace("/", r"\/")):
            resolved(a=text)

    def test_a_provider_may_be_limited(self, tmp_path: Path) -> None:
        allowed, other = tmp_path / "allowed", tmp_path / "other"
        for directory in (allowed, other):
            directory.mkdir()
            (directory / "x").write_text("1")
        (allowed / "link").symlink_to(other / "x")
        limit = {"config.providers.dir.param.allowed.paths": str(allowed)}
        assert resolved(**limit, a=f"${{dir:{allowed}:x}}").values["a"] == "1"
        for text in (f"${{dir:{other}:x}}", f"${{dir:{allowed}:link}}", f"${{dir:{allowed}/../other:x}}"):
            with pytest.raises(CannotResolve, match=r"allowed\.paths"):
                resolved(**limit, a=text)
        pattern = {"config.providers.env.param.allowlist.pattern": "HEADRACE_.*"}
        with pytest.raises(CannotResolve, match="allowlist"):
            resolved(**pattern, a="${env:PASSWORD}")

    def test_a_class_that_is_not_known(self) -> None:
        with pytest.raises(CannotResolve, match=r"config\.providers\.x\.class"):
            resolve(
                {"config.providers": "x", "config.providers.x.class": "com.example.Vault"}, properties, {}
            )


class TestSettingsFile:
    def file(self, directory: Path, more: str) -> Path:
        secrets = directory / "secrets.properties"
        secrets.write_text(f"password={PLANTED}\nnumber=12\n")
        secrets.chmod(0o600)
        path = directory / "server.properties"
        named = "".join(f"{name}={text}\n" for name, text in PROVIDERS.items())
        text = f"node.id=1\nprocess.roles=broker,controller\nlog.dirs=/data\n{named}{more}"
        path.write_text(text.replace("SECRETS", str(secrets)))
        path.chmod(0o600)
        return path

    def test_settings_have_the_value_and_clients_are_told_the_text(self, tmp_path: Path) -> None:
        texts = "num.partitions=${file:SECRETS:number}\nbroker.rack=${file:SECRETS:password}\n"
        settings = read_settings(self.file(tmp_path, texts)).settings
        later = settings.overlaid({"num.io.threads": "3"}, {})
        for one in (settings, later):
            assert one.num_partitions == 12
            assert one.broker_rack == PLANTED
            assert one.told_texts["broker.rack"].startswith("${file:")
            assert one.told_texts["num.partitions"] == "12"  # tools compute with it
            assert PLANTED not in str(one.told_texts)

    def test_topics_are_described_when_their_defaults_have_variables(self) -> None:
        """Their settings are computed from the broker's: 2 hours are so many milliseconds."""
        variable = "${env:HOURS}"
        host = ManualHost({"log.retention.hours": "2"})
        host.node._live.current = host.node.settings.but(literals={"log.retention.hours": variable})
        host.create_topic("t")
        asked = DescribeConfigsResource(
            resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
        )
        (result,) = host.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results
        (config,) = result.configs
        assert config.value == "7200000"

    def test_an_error_does_not_show_a_secret(self, tmp_path: Path) -> None:
        path = self.file(tmp_path, "num.partitions=${file:SECRETS:password}\n")
        with pytest.raises(WrongSettings) as raised:
            read_settings(path)
        assert PLANTED not in str(raised.value)
        assert "[hidden]" in str(raised.value)
        assert "num.partitions" in str(raised.value)

    def test_a_missing_value_is_told_with_the_line(self, tmp_path: Path) -> None:
        path = self.file(tmp_path, "num.partitions=${env:HEADRACE_TEST_NOT_SET}\n")
        with pytest.raises(WrongSettings, match=r"server\.properties:8: num\.partitions: the environment"):
            read_settings(path)

    @pytest.mark.parametrize(
        ("text", "mode", "is_open"),
        [
            ("ssl.key.password=x", 0o644, True),
            ("ssl.key.password=x", 0o640, False),
            ("ssl.key.password=${file:SECRETS:password}", 0o644, False),
            ("listener.name.a.plain.sasl.jaas.config=x", 0o644, True),
            ("num.partitions=3", 0o644, False),
        ],
    )
    def test_files_with_secrets_that_others_can_read(
        self, tmp_path: Path, text: str, mode: int, is_open: bool
    ) -> None:
        path = self.file(tmp_path, text + "\n")
        path.chmod(mode)
        assert read_settings(path).open_files == ([str(path)] if is_open else [])

    def test_also_the_files_of_providers_and_keystores(self, tmp_path: Path) -> None:
        path = self.file(
            tmp_path, f"ssl.key.password=${{file:SECRETS:password}}\nssl.keystore.location={tmp_path}/k\n"
        )
        (tmp_path / "k").write_text("key")
        for name in ("k", "secrets.properties"):
            (tmp_path / name).chmod(0o644)
        assert read_settings(path).open_files == [str(tmp_path / "secrets.properties"), str(tmp_path / "k")]


def test_what_counts_as_a_secret() -> None:
    assert is_secret("ssl.key.password")
    assert is_secret("listener.name.a.ssl.keystore.key")
    assert is_secret("listener.name.a.scram-sha-512.sasl.jaas.config")
    assert is_secret("listener.name.a.b.c.scram-sha-512.sasl.jaas.config")
    assert not is_secret("ssl.truststore.certificates")
    assert not is_secret("listener.name.a.ssl.client.auth")


def test_clients_cannot_read_files_or_variables_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What AlterConfigs sets stays as it is, also when the broker has providers."""
    monkeypatch.setenv("HEADRACE_TEST_PLANTED", "1234")
    host = ManualHost(PROVIDERS)
    host.create_topic("t")
    variable = "${env:HEADRACE_TEST_PLANTED}"
    alter = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[AlterableConfig(name="retention.ms", config_operation=0, value=variable)],
            )
        ]
    )
    (answer,) = host.ask(alter, 1).responses
    assert answer.error_code != 0  # it is not a number, and nothing else
    assert "1234" not in answer.error_message
    described = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]
    )
    assert "1234" not in str(host.ask(described, 4))
