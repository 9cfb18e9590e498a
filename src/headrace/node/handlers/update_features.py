"""UpdateFeatures, key 57, versions 0–2: cluster-wide features go to other levels, all of them or none.

Version 0 says with one flag that a level may fall; from 1 on there are kinds of upgrades, and a request may
only be tried. Version 2 has no results per feature.
"""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.update_features import FeatureUpdate, Upgrade
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpdateFeatures:
    def __init__(
        self,
        broker_id: int,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        access: Access,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._decisions = decisions
        self._access = access

    def handle(self, request: Request) -> UpdateFeaturesResponse | Parked:
        body: UpdateFeaturesRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return UpdateFeaturesResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
        updates = [
            FeatureUpdate(update.feature, update.max_version_level, upgrade_of(update, request.version))
            for update in body.feature_updates
        ]
        try:
            decision = self._decisions.update_features(
                updates, SUPPORTED_FEATURES, self._broker_id, validate_only=body.validate_only
            )
            offset = self._metadata.propose(request.now, decision)
        except Refusal as refusal:
            return UpdateFeaturesResponse(
                error_code=refusal.code,
                error_message="The update failed for all features since the following feature had an error: "
                + refusal.message,
            )
        except FAULTS as fault:
            return UpdateFeaturesResponse(error_code=code_of(fault), error_message=str(fault))
        response = UpdateFeaturesResponse(
            error_message=None,
            results=[UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in updates],
        )
        return self._metadata.when_known(request, offset, response)


def upgrade_of(update: FeatureUpdateKey, version: int) -> int:
    if version > 0:
        return update.upgrade_type
    return Upgrade.SAFE_DOWNGRADE if update.allow_downgrade else Upgrade.UPGRADE
