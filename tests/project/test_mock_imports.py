"""`biasbed.mock_imports`: copies of methods and suites declare what the classes do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from biasbed.mock_imports import Mock

# Prints what copies and classes declare, by registry and name: copies first, as they are only made before torch.
SCRIPT = """
import json, sys
from biasbed import algorithms, suites
from biasbed.algorithms import presets
from biasbed.settings import specs

def declarations(cls, settings):
    fields = {name: [str(spec.type), str(spec.default), spec.help, str(spec.bounds), spec.identity, spec.optional]
              for name, spec in specs(getattr(cls, settings)).items()}
    return [fields, repr(dict(cls.defaults)), repr(dict(cls.presets))]

def methods(find):
    for name in algorithms.REGISTRY:
        method = find(algorithms.REGISTRY, name)
        needs = sorted(method.needs(method.HParams()))
        yield name, [*declarations(method, "HParams"), needs, sorted(method.tasks), method.requires]

def all_suites(find):
    for name in suites.REGISTRY:
        suite = find(suites.REGISTRY, name)
        for_jtt = repr(dict(suite.defaults_for({"algorithm": "jtt", "train": "cifar10c"})))
        yield name, [*declarations(suite, "Settings"), for_jtt]

results = []
for find in (lambda registry, name: registry.declare(name), lambda registry, name: registry.load(name)):
    results.append({"methods": dict(methods(find)), "suites": dict(all_suites(find)), "torch": "torch" in sys.modules})
print(json.dumps(results))
"""


def test_copies_of_methods_and_suites_declare_what_the_classes_do() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    copies, classes = json.loads(done.stdout.splitlines()[-1])
    assert (copies.pop("torch"), classes.pop("torch")) == (False, True)
    for kind in ("methods", "suites"):
        for name, declared in classes[kind].items():
            assert copies[kind][name] == declared, f"{kind}: {name}"


def test_a_mock_is_its_own_attribute_call_and_item_and_no_base() -> None:
    torch: Any = Mock()
    assert torch.nn.functional is torch
    assert torch.no_grad()(print) is torch
    assert torch["key"] | None is torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        pass

    assert Module.__mro__ == (Module, object)
