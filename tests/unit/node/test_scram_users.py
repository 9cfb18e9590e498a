"""What the credentials of users that do not exist look like: as those of users that do, of every form."""

from __future__ import annotations

from random import Random

import pytest

from headrace.machines.metadata.security_image import NOBODY, NOBODYS_MECHANISM, SecurityImage
from headrace.machines.security.plain import PlainLogin
from headrace.machines.security.scram import SHA_256, SHA_512, Credential, Mechanism
from headrace.node.login_exchanges.plain import password_check
from headrace.node.scram_users import FORMS_MAX, ScramUsers
from headrace.protocol.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

STRANGERS = [f"stranger-{number}" for number in range(200)]
OF_JAVA, OF_OURS = b"1s3y9ckwx7l0a2b4c6d8e0f2g4", bytes(range(24))


class Users:
    def __init__(self) -> None:
        self.image = SecurityImage()
        self.put(NOBODY, 4096, b"x")

    def put(
        self, user: str, iterations: int, salt: bytes = OF_OURS, mechanism: int = NOBODYS_MECHANISM
    ) -> None:
        record = UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=salt,
            stored_key=b"s" * 64,
            server_key=b"k" * 64,
            iterations=iterations,
        )
        self.image.replay(record)

    def remove(self, user: str) -> None:
        self.image.replay(RemoveUserScramCredentialRecord(name=user, mechanism=NOBODYS_MECHANISM))

    def scram(self, seed: int = 1) -> ScramUsers:
        return ScramUsers(lambda: self.image, Random(seed))


def forms(users: ScramUsers, mechanism: Mechanism = SHA_512) -> set[tuple[int, bytes]]:
    """Iterations and salts of those that strangers look like."""
    found = [users.like(mechanism, name) for name in STRANGERS]
    return {(one.iterations, one.salt) for one in found if one is not None}


@pytest.fixture
def users() -> Users:
    users = Users()
    users.put("alice", 8192, OF_OURS)
    users.put("bob", 4096, OF_JAVA)
    return users


def test_no_form_tells_that_a_user_exists(users: Users) -> None:
    """If all strangers had the form of one user, whoever has another would exist."""
    assert forms(users.scram()) == {(8192, OF_OURS), (4096, OF_JAVA)}


def test_a_stranger_has_one_form_on_all_nodes(users: Users) -> None:
    first, second = users.scram(1), users.scram(2)
    for name in STRANGERS:
        assert first.like(SHA_512, name) == second.like(SHA_512, name)


def test_it_stays_while_users_come_and_go(users: Users) -> None:
    scram = users.scram()

    def shown() -> list[int]:
        found = [scram.like(SHA_512, name) for name in STRANGERS]
        return [one.iterations for one in found if one is not None]

    before = shown()
    users.put("carol", 8192, bytes(24))
    users.put("aaron", 4096, b"0" * len(OF_JAVA))
    assert shown() == before
    users.remove("alice")
    assert shown() == before


def test_a_changed_password_with_another_form_is_noticed(users: Users) -> None:
    scram = users.scram()
    assert (16_384, OF_OURS) not in forms(scram)
    users.put("bob", 16_384, OF_OURS)
    assert forms(scram) == {(8192, OF_OURS), (16_384, OF_OURS)}


def test_mechanisms_have_their_own(users: Users) -> None:
    users.put("dora", 5000, OF_OURS, SHA_256.id)
    assert forms(users.scram(), SHA_256) == {(5000, OF_OURS)}
    users.remove("alice")
    users.remove("bob")
    assert forms(users.scram()) == set()


def test_the_most_usual_forms_count(users: Users) -> None:
    for number in range(100):
        users.put(f"user-{number}", 5000 + number)
    for number in range(FORMS_MAX - 1):
        users.put(f"other-{number}", 9000 + number)
        users.put(f"another-{number}", 9000 + number)
    usual = {iterations for iterations, _ in forms(users.scram())}
    assert len(usual) == FORMS_MAX
    assert usual >= {9000 + number for number in range(FORMS_MAX - 1)}


def test_the_time_of_a_password_check_tells_no_more(users: Users) -> None:
    """It depends on the mechanism and the iterations of the strongest credential of a user."""
    users.put("alice", 4096, OF_OURS, SHA_256.id)
    users.put("dora", 5000, OF_OURS, SHA_256.id)
    scram = users.scram()
    found = set()
    for name in STRANGERS:
        check = password_check(scram, PlainLogin(name, "guess"))
        assert check.credential is None
        assert check.like is not None
        found.add((check.mechanism, check.like.iterations))
    assert found == {(SHA_512, 8192), (SHA_512, 4096), (SHA_256, 5000)}
    own = password_check(scram, PlainLogin("dora", "guess"))
    assert isinstance(own.credential, Credential)
    assert (own.mechanism, own.credential.iterations) == (SHA_256, 5000)


def test_without_users(users: Users) -> None:
    scram = Users().scram()
    assert scram.like(SHA_512, "ada") is None
    assert password_check(scram, PlainLogin("ada", "guess")).mechanism == SHA_512
