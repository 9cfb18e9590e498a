"""Metadata records about brokers, controllers and the producer ids they hand out."""

from __future__ import annotations

from headrace.protocol.notation import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Data,
    Struct,
    array,
    field,
)


class BrokerEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class BrokerFeature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterBrokerRecord(Data, key=0, versions="0-4", flexible="0+"):
    broker_id: int = field(INT32)
    is_migrating_zk_broker: bool = field(BOOL, "2+")
    incarnation_id: bytes = field(UUID)
    broker_epoch: int = field(INT64)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint))
    features: list[BrokerFeature] = field(array(BrokerFeature))
    rack: str | None = field(STRING, nullable="0+")
    fenced: bool = field(BOOL, default=True)
    in_controlled_shutdown: bool = field(BOOL, "1+")
    log_dirs: list[bytes] = field(array(UUID), "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Data, key=1, versions="0", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)


class BrokerRegistrationChangeRecord(Data, key=17, versions="0-3", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    fenced: int = field(INT8, tag=0)
    in_controlled_shutdown: int = field(INT8, "1+", tag=1)
    log_dirs: list[bytes] = field(array(UUID), "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "3+", nullable="3+", default=None, tag=3)


class FenceBrokerRecord(Data, key=7, versions="0", flexible="0+"):
    id: int = field(INT32)
    epoch: int = field(INT64)


class UnfenceBrokerRecord(Data, key=8, versions="0", flexible="0+"):
    id: int = field(INT32)
    epoch: int = field(INT64)


class ControllerEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class ControllerFeature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterControllerRecord(Data, key=27, versions="0", flexible="0+"):
    controller_id: int = field(INT32)
    incarnation_id: bytes = field(UUID)
    zk_migration_ready: bool = field(BOOL)
    end_points: list[ControllerEndpoint] = field(array(ControllerEndpoint))
    features: list[ControllerFeature] = field(array(ControllerFeature))


class ProducerIdsRecord(Data, key=15, versions="0", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)
