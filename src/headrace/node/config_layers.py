"""The settings of this broker, layer by layer, for whoever describes them."""

from headrace.machines.configs.describe import BrokerLayers
from headrace.node.node import Node


def broker_layers(node: Node) -> BrokerLayers:
    image = node.metadata.image
    return BrokerLayers(image.broker_config(node.id), image.cluster_config, node.settings.texts)
