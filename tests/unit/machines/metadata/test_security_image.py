"""Rules, users, quotas and tokens in the image, in snapshots of it, and in records that contradict them."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import ClientQuotaEntity
from headrace.machines.metadata.snapshot import image_hash, snapshot_records
from headrace.machines.metadata.versions import encode
from headrace.machines.security.acl_rules import AclRule, Operation, PatternType, Permission, ResourceType
from headrace.machines.security.delegation_tokens import DelegationToken
from headrace.machines.security.scram import SHA_256, SHA_512, Credential
from headrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_record,
)
from headrace.protocol.notation import Data

RULE_ID, OTHER_ID = b"r" * 16, b"o" * 16
RULE = AclRule(
    ResourceType.TOPIC, "pay", PatternType.PREFIXED, "User:ada", "*", Operation.READ, Permission.DENY
)


def rule_record(rule_id: bytes = RULE_ID, name: str = "pay") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=rule_id,
        resource_type=2,
        resource_name=name,
        pattern_type=4,
        principal="User:ada",
        host="*",
        operation=3,
        permission_type=2,
    )


def quota(key: str, value: float | None, *entity: tuple[str, str | None]) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value or 0.0,
        remove=value is None,
    )


RECORDS: list[Data] = [
    rule_record(),
    UserScramCredentialRecord(
        name="ada", mechanism=SHA_512.id, salt=b"s", stored_key=b"k", server_key=b"v", iterations=8192
    ),
    UserScramCredentialRecord(
        name="ada", mechanism=SHA_256.id, salt=b"t", stored_key=b"l", server_key=b"w", iterations=4096
    ),
    UserScramCredentialRecord(
        name="", mechanism=SHA_512.id, salt=b"u", stored_key=b"m", server_key=b"x", iterations=4096
    ),
    quota("producer_byte_rate", 1024.0, ("user", "ada"), ("client-id", None)),
    quota("request_percentage", 12.5, ("client-id", None), ("user", "ada")),
    quota("connection_creation_rate", 3.0, ("ip", None)),
    DelegationTokenRecord(
        owner="User:ada",
        requester="User:bob",
        renewers=["User:cy"],
        issue_timestamp=1,
        expiration_timestamp=2,
        max_timestamp=3,
        token_id="t",
    ),
]


def image_of(records: list[Data]) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.replay(decode_record(encode(record)))
    return image


def test_what_the_records_mean() -> None:
    security = image_of(RECORDS).security
    assert security.rules == {RULE_ID: RULE}
    assert security.rule_ids == {RULE: RULE_ID}
    assert security.credentials == {
        ("ada", SHA_512.id): Credential(b"s", b"k", b"v", 8192),
        ("ada", SHA_256.id): Credential(b"t", b"l", b"w", 4096),
    }
    assert security.nobody == Credential(b"u", b"m", b"x", 4096)
    assert security.quotas == {
        ClientQuotaEntity(user="ada", client_id=""): {
            "producer_byte_rate": 1024.0,
            "request_percentage": 12.5,
        },
        ClientQuotaEntity(ip=""): {"connection_creation_rate": 3.0},
    }
    assert security.tokens == {"t": DelegationToken("t", "User:ada", "User:bob", ("User:cy",), 1, 2, 3)}


def test_a_snapshot_has_all_of_it_in_whatever_order_it_came() -> None:
    image = image_of(RECORDS)
    assert image_hash(image_of(list(snapshot_records(image)))) == image_hash(image)
    assert image_hash(image_of(RECORDS[::-1])) == image_hash(image)


@pytest.mark.parametrize("left_out", range(len(RECORDS)))
def test_the_hash_tells_images_apart_that_differ_in_one_record(left_out: int) -> None:
    others = [record for number, record in enumerate(RECORDS) if number != left_out]
    assert image_hash(image_of(others)) != image_hash(image_of(RECORDS))


def test_what_is_removed_is_gone_and_a_copy_keeps_it() -> None:
    image = image_of(RECORDS)
    copy = image.copy()
    removals: list[Data] = [
        RemoveAccessControlEntryRecord(id=RULE_ID),
        RemoveUserScramCredentialRecord(name="ada", mechanism=SHA_256.id),
        RemoveUserScramCredentialRecord(name="ada", mechanism=SHA_512.id),
        RemoveUserScramCredentialRecord(name="", mechanism=SHA_512.id),
        quota("producer_byte_rate", None, ("client-id", None), ("user", "ada")),
        quota("request_percentage", None, ("user", "ada"), ("client-id", None)),
        quota("connection_creation_rate", None, ("ip", None)),
        RemoveDelegationTokenRecord(token_id="t"),
    ]
    for record in removals:
        image.replay(record)
    assert image_hash(image) == image_hash(ClusterImage())
    assert (image.security.rule_ids, image.security.quotas) == ({}, {})
    assert image_hash(copy) == image_hash(image_of(RECORDS))
    assert copy.security.rule_ids == {RULE: RULE_ID}


def test_as_in_kafka_quotas_and_tokens_that_are_not_there_can_be_removed() -> None:
    image = image_of([])
    image.replay(quota("producer_byte_rate", None, ("user", "ada")))
    image.replay(RemoveDelegationTokenRecord(token_id="t"))
    assert image_hash(image) == image_hash(ClusterImage())


@pytest.mark.parametrize(
    "record",
    [
        rule_record(),
        rule_record(OTHER_ID),
        rule_record(RULE_ID, "other"),
        RemoveAccessControlEntryRecord(id=OTHER_ID),
        RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        quota("producer_byte_rate", 1.0, ("planet", "earth")),
    ],
    ids=["the same", "its rule under another id", "its id again", "rule", "user", "kind of client"],
)
def test_records_that_cannot_be_true_are_not_swallowed(record: Data) -> None:
    with pytest.raises(BadMetadata):
        image_of(RECORDS).replay(record)


def test_the_values_of_a_credential_are_not_shown() -> None:
    (credential, _) = image_of(RECORDS).security.credentials.values()
    assert "b'k'" not in repr(credential)
    assert "b'v'" not in repr(credential)
