"""Decision about the levels of cluster-wide features.

All updates of a request are made, or none: the first that cannot be made is a `Refusal` of all. A downgrade
must be requested as one, and metadata.version cannot be downgraded, because Headrace writes records only in
their newest versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.versions import METADATA_VERSION
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import FeatureLevelRecord
from headrace.protocol.notation import Data


class Upgrade(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(slots=True)
class FeatureUpdate:
    name: str
    level: int
    upgrade: int


def update_features(
    image: ClusterImage,
    updates: Sequence[FeatureUpdate],
    supported: Mapping[str, tuple[int, int]],
    controller: int,
    *,
    validate_only: bool = False,
) -> MetadataDecision[None]:
    """`supported` are the levels of the node that decides, whose id is `controller`."""
    levels: dict[str, int] = {}
    for update in updates:
        check(image, update, supported, controller)
        levels[update.name] = update.level
    records: list[Data] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level != image.features.get(name, 0)
    ]
    return MetadataDecision(None, [] if validate_only else records)


def check(
    image: ClusterImage, update: FeatureUpdate, supported: Mapping[str, tuple[int, int]], controller: int
) -> None:
    name, level = update.name, update.level
    if update.upgrade not in tuple(Upgrade):
        raise invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise invalid(update, "A feature version cannot be less than 0.")
    if name not in supported:
        # every node "supports" level 0 of what it does not know, which is not to have it
        reason = f"Local controller {controller} does not support this feature."
        raise invalid(update, reason if level else f"Feature {name} not found.")
    lowest, highest = supported[name]
    if not lowest <= level <= highest:
        raise invalid(update, f"Local controller {controller} only supports versions {lowest}-{highest}")
    current = image.features.get(name, 0)
    if level >= current:
        return
    if update.upgrade == Upgrade.UPGRADE:
        raise invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade.",
        )
    if name == METADATA_VERSION:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if update.upgrade == Upgrade.SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        raise Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )


def invalid(update: FeatureUpdate, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )
