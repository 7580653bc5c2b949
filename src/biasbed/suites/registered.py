"""Names of the registered suites."""

from __future__ import annotations

from biasbed.registry import Registry

REGISTRY = Registry(
    "suite",
    {
        "demo": "biasbed.suites.demo:Demo",
        "folders": "biasbed.suites.folders:Folders",
        "domains": "biasbed.suites.domains:Domains",
        "domainbed": "biasbed.suites.domainbed:DomainBed",
        "debiasing": "biasbed.suites.debiasing:Debiasing",
        "biasbed": "biasbed.suites.biasbed:BiasBed",
        "robustness": "biasbed.suites.robustness:Robustness",
    },
    base="biasbed.suites.suite:Suite",
)
