"""`biasbed.networks.library_names`: names of networks as torchvision and timm list them."""

from __future__ import annotations

import timm
from torchvision import models

from biasbed.networks.library_names import list_builders


def test_names_are_those_that_the_libraries_list() -> None:
    assert sorted(list_builders("torchvision")) == sorted(models.list_models(module=models))
    assert sorted(list_builders("timm")) == sorted(timm.list_models())


def test_plain_resnets_are_those_of_the_libraries_file() -> None:
    timm_names, torchvision_names = (
        [name for name, file in list_builders(library).items() if file == "resnet"]
        for library in ("timm", "torchvision")
    )
    assert sorted(timm_names) == sorted(timm.list_models(module="resnet"))
    assert "resnext50_32x4d" in torchvision_names
    assert {models.get_model_builder(name).__module__ for name in torchvision_names} == {models.resnet.__name__}
