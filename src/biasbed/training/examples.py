"""What a method believes of each training image, kept with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from biasbed import record
from biasbed.data.source import Source
from biasbed.system.files import whole


def write_examples(folder: Path, values: Mapping[str, Tensor], sources: Sequence[Source]) -> None:
    """`examples.parquet`: of every training image its id, its data set, its label and the values [N] of these names.

    Nothing where there are no values. sources: the training data, in the order of `index`.
    """
    if not values:
        return
    import pyarrow as pa
    from pyarrow import parquet

    sets = np.repeat([source.name for source in sources], [len(source) for source in sources])
    columns = {
        "image": [name for source in sources for name in source.ids],
        "set": pa.array(sets).dictionary_encode(),
        "label": [source.classes[label] for source in sources for label in source.y],
        **{name: value.detach().cpu().numpy() for name, value in values.items()},
    }
    with whole(folder / record.EXAMPLES_FILE) as temporary:
        parquet.write_table(pa.table(columns), temporary, write_page_checksum=True)


def found_conflicting(values: Mapping[str, Tensor], sources: Sequence[Source]) -> dict[str, float]:
    """How well values [N], the larger the more suspected, find the conflicting among the training images.

    Average precision by metric `train/<name>_precision`: 1 where all conflicting images come first, their share where
    they come at random. Nothing where bias labels are missing, which the method itself need not see, or images of
    either kind.
    """
    if not values or any(source.bias is None or source.y.ndim > 1 for source in sources):
        return {}
    from sklearn.metrics import average_precision_score

    conflicting = np.concatenate([source.bias != source.y for source in sources])
    if conflicting.all() or not conflicting.any():
        return {}
    columns = {name: value.detach().double().cpu().numpy() for name, value in values.items()}
    found = {name: float(average_precision_score(conflicting, column)) for name, column in columns.items()}
    return {f"train/{name}_precision": value for name, value in found.items()}
