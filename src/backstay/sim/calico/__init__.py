"""A stand-in for Calico's address management, held to what libcalico and its CNI plugin do.

* ``blocks``: what a block and a handle are, and how an address is given and taken back. Pure.
* ``plugin``: what each node asks for addresses (``PodNetwork``), over the API.
* ``collector``: what gives leaked addresses back after a while, as calico-kube-controllers does.
* ``definitions``: the kinds, in either API group.

It shares no code with what Backstay does to the same objects: each checks the other.
"""

from backstay.sim.calico.collector import AddressCollector
from backstay.sim.calico.definitions import V1, V3, Group, definitions, install
from backstay.sim.calico.plugin import DUAL, Calico, Pools

__all__ = [
    "DUAL",
    "V1",
    "V3",
    "AddressCollector",
    "Calico",
    "Group",
    "Pools",
    "definitions",
    "install",
]
