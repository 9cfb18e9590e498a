"""Client that sets the level of a cluster's feature, through whichever node answers."""

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.nodes import Nodes

UPDATE_FEATURES = 57
SAFE_DOWNGRADE = 2


class Downgrader(Script):
    def __init__(self, nodes: Nodes, name: str, feature: str, level: int) -> None:
        super().__init__(nodes, name)
        self._update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=SAFE_DOWNGRADE)
        self.is_done = False

    def story(self) -> Story:
        while not self.is_done:
            answer = yield Ask(UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[self._update]))
            self.is_done = answer is not None and answer.error_code == ErrorCode.NONE
            yield Pause(0.1)
