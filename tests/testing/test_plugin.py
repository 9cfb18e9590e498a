"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import pytest

from headrace.testing import Broker
from testing.inner_runs import quickened

pytest_plugins = ["pytester"]


@pytest.fixture
def run(
    pytester: pytest.Pytester, headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    pytester.makeini("[pytest]\nxfail_strict = true\n")
    return quickened(pytester, headrace_broker, monkeypatch)


def outcomes(pytester: pytest.Pytester, *arguments: str) -> dict[str, int]:
    return pytester.runpytest_inprocess(*arguments).parseoutcomes()


def test_one_address_and_a_new_broker_for_each_test(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        addresses = []

        def test_first(headrace_broker):
            addresses.append(headrace_broker.bootstrap_servers)
            headrace_broker.produce_all("orders", ["a"])
            headrace_broker.faults.error(api="Produce", code="INVALID_RECORD")

        def test_second(headrace_broker):
            assert [headrace_broker.bootstrap_servers] == addresses
            assert headrace_broker.topics() == []
            headrace_broker.produce_all("orders", ["b"])
            headrace_broker.assert_consumed("orders", ["b"])
        """
    )
    assert outcomes(run) == {"passed": 2}


def test_marks_shape_the_broker_and_the_closest_decides(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest
        from headrace.testing.topics import Topics

        pytestmark = pytest.mark.headrace(settings={"num.partitions": 2, "log.retention.hours": 1})

        def partitions(broker, topic):
            return Topics(broker.bootstrap_servers).partitions(topic)

        @pytest.mark.headrace(topics={"orders": 3})
        def test_topics(headrace_broker):
            assert headrace_broker.topics() == ["orders"]
            assert partitions(headrace_broker, "orders") == 3
            headrace_broker.create_topic("more", -1)
            assert partitions(headrace_broker, "more") == 2

        @pytest.mark.headrace(settings={"num.partitions": 5}, topics=["orders"])
        def test_settings_add_up(headrace_broker):
            assert headrace_broker.topics() == ["orders"]
            headrace_broker.create_topic("more", -1)
            assert partitions(headrace_broker, "more") == 5
            assert headrace_broker.settings["log.retention.hours"] == "1"

        @pytest.mark.headrace(storage="disk", process=True)
        def test_beside_and_on_disk(headrace_broker):
            headrace_broker.produce_all("orders", ["a"])
            headrace_broker.assert_consumed("orders", ["a"])
        """
    )
    assert outcomes(run) == {"passed": 3}


def test_ini_options_are_the_defaults(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\nheadrace_settings =\n    num.partitions = 3\nheadrace_storage = disk\n")
    run.makepyfile(
        """
        from headrace.testing.topics import Topics

        def test_defaults(headrace_broker):
            headrace_broker.create_topic("orders", -1)
            assert Topics(headrace_broker.bootstrap_servers).partitions("orders") == 3

        def test_made_brokers_have_them_too(headrace_broker_factory):
            broker = headrace_broker_factory()
            assert broker.settings["num.partitions"] == "3"
        """
    )
    assert outcomes(run) == {"passed": 2}


def test_the_factory_stops_what_it_made(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest
        from headrace.testing import HostFailed

        made = []

        def test_two_brokers(headrace_broker_factory):
            made.append(headrace_broker_factory({"node.id": 7}, topics=["orders"]))
            made.append(headrace_broker_factory())
            assert made[0].topics() == ["orders"]
            assert made[1].topics() == []

        def test_they_are_gone():
            for broker in made:
                with pytest.raises(HostFailed):
                    broker.bootstrap_servers
        """
    )
    assert outcomes(run) == {"passed": 2}


def test_what_the_broker_had_to_say_is_shown_with_a_failure(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_fails(headrace_broker):
            headrace_broker.faults.io_error()
            headrace_broker.create_topic("orders")
            headrace_broker.produce_all("orders", ["a"], timeout=0.2)
        """
    )
    result = run.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured headrace*", "*directory_offline*"])


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("topic={'orders': 1}", "*does not take 'topic'*"),
        ("'orders'", "*does not take arguments without a name*"),
        ("settings={'num.partition': 1}", "*did you mean 'num.partitions'*"),
    ],
)
def test_a_wrong_mark_is_told(run: pytest.Pytester, mark: str, complaint: str) -> None:
    run.makepyfile(
        f"""
        import pytest

        @pytest.mark.headrace({mark})
        def test_one(headrace_broker):
            pass
        """
    )
    result = run.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([complaint])


def test_runs_without_a_broker_load_no_broker(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import sys

        def test_one():
            assert "headrace.testing.plugin" in sys.modules
            assert "headrace.testing.broker" not in sys.modules
        """
    )
    assert run.runpytest_subprocess().parseoutcomes() == {"passed": 1}


def test_the_broker_runs_as_it_was_compiled(run: pytest.Pytester) -> None:
    """Not with its asserts rewritten by pytest."""
    run.makepyfile(
        """
        import headrace.testing.broker, headrace.node.node

        def test_loaders():
            for module in (headrace.testing.broker, headrace.node.node):
                assert type(module.__loader__).__name__ == "SourceFileLoader"
        """
    )
    assert run.runpytest_subprocess().parseoutcomes() == {"passed": 1}


def test_fixtures_and_marker_are_listed(run: pytest.Pytester) -> None:
    listed = run.runpytest_inprocess("--fixtures").stdout.str()
    assert "headrace_broker -- " in listed
    assert "headrace_broker_factory -- " in listed
    assert "@pytest.mark.headrace(settings=None" in run.runpytest_inprocess("--markers").stdout.str()
