"""Effective robustness: a line through plain rows, on probit axes, and what lies above it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed import cli
from biasbed.analysis.columns import Column
from biasbed.errors import UsageError
from biasbed.plugins.effective_robustness import section
from biasbed.plugins.effective_robustness.options import EffectiveOptions
from biasbed.published import import_runs, printed_tables
from biasbed.suites import derived

PLAIN = ("resnet50", "resnet101", "resnet152", "resnext101_32x4d", "resnext101_32x8d")
PAIR = "imagenet_200:imagenet_r"


def column(name: str, headline: str = "accuracy") -> Column:
    protocol = printed_tables.read("robustness").protocol
    (set_record,) = [
        candidate for candidate in protocol.sets if candidate.name == name and candidate.headline == headline
    ]
    return Column(name, set_record)


SETS = (column("imagenet_200"), column("imagenet_r"), column("imagenet_c", "mce"))


@pytest.fixture(scope="module")
def means() -> pd.DataFrame:
    """The paper's table 8, and what misses one of the two sets."""
    paper = printed_tables.read("robustness")
    metrics_of_rows = {run.algorithm: run.metrics(paper.protocol) for run in paper.runs()}
    rows = {
        row: values | derived.derive_values(paper.protocol.derived, values) for row, values in metrics_of_rows.items()
    }
    metrics = {"imagenet_200": "accuracy", "imagenet_r": "accuracy", "imagenet_c": "mce"}
    return pd.DataFrame(
        {
            row: [100 * values.get(f"test/{m}/{name}", np.nan) for name, m in metrics.items()]
            for row, values in rows.items()
        },
        index=list(metrics),
    )


def options(plain: tuple[str, ...] = PLAIN, pair: str = PAIR) -> EffectiveOptions:
    return EffectiveOptions(effective=(pair,), plain=plain)


def test_renditions_by_their_classes(means: pd.DataFrame) -> None:
    """Line and residuals as worked out from the printed errors by other means."""
    table = section.effective_table(means, SETS, options(), 0.05).set_index("algorithm")
    assert table.iloc[0][["slope", "intercept"]].tolist() == pytest.approx([1.4104, -2.3350], abs=5e-5)
    assert table.iloc[0]["r2"] == pytest.approx(0.901, abs=5e-4)
    expected = {
        **{"deepaug_augmix": 10.61, "style_transfer": 8.33, "resnext101_32x8d_deepaug_augmix": 8.22},
        **{"deepaug": 4.17, "imagenet21k": -2.79, "cbam": -3.19},
    }
    assert table["residual"][list(expected)].to_dict() == pytest.approx(expected, abs=5e-3)
    assert set(table.index[table["extrapolated"]]) == {"adversarial", "resnext101_32x8d_wsl"}
    assert table["residual"]["adversarial"] == pytest.approx(23.15, abs=0.01)
    assert set(table.index[table["plain"]]) == set(PLAIN)
    assert "se" not in table.index, "it has neither"
    assert table["residual"].to_dict() == pytest.approx((table["accuracy"] - table["predicted"]).to_dict())


def test_the_interval_holds_a_further_plain_row_as_often_as_it_says() -> None:
    """Five rows on a line with normal scatter, and a sixth."""
    generator, inside, times = np.random.default_rng(0), 0, 1000
    x = np.array([0.2, 0.5, 0.8, 1.1, 1.4, 0.9])
    for _ in range(times):
        y = 1.3 * x - 1 + generator.normal(0, 0.1, len(x))
        line = section.ProbitLine.through(x[:5], y[:5])
        inside += abs(y[5] - line.at(x[5])) <= line.margin(x[5], 0.1)
    assert inside / times == pytest.approx(0.9, abs=0.03)


def test_far_is_farther_than_the_range_is_wide() -> None:
    line = section.ProbitLine.through(np.array([1.0, 1.5, 2.0, 1.2]), np.array([0.1, 0.4, 0.9, 0.3]))
    assert [line.is_far(x) for x in (-0.01, 0.0, 1.7, 3.0, 3.01)] == [True, False, False, False, True]


def test_plain_rows_on_the_line_leave_nothing(means: pd.DataFrame) -> None:
    x = np.array([0.1, 0.4, 0.7, 1.3])
    exact = pd.DataFrame([stats.norm.cdf(x), stats.norm.cdf(2 * x - 1)], ["imagenet_200", "imagenet_r"], list("abcd"))
    table = section.effective_table(100 * exact, SETS, options(tuple("abcd")), 0.05)
    np.testing.assert_allclose(table["residual"], 0, atol=1e-9)
    assert table["r2"].tolist() == pytest.approx([1] * 4)


@pytest.mark.parametrize(
    ("plain", "pair", "message"),
    [
        (PLAIN[:3], PAIR, "a line takes 4 plain rows at least, and there are 3: name models"),
        (("resnet5",), PAIR, "plain=resnet5: there is no such row.*did you mean 'resnet50'"),
        (PLAIN, "imagenet_r", "should be <reference set>:<shifted set>"),
        (PLAIN, "imagenet_200:imagenet_c", "'imagenet_c' shows no accuracy"),
    ],
)
def test_what_can_not_be_asked_for(plain: tuple[str, ...], pair: str, message: str, means: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match=message):
        section.effective_table(means, SETS, options(plain, pair), 0.05)


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_the_command_writes_table_and_figure(tracking: str, tmp_path: Path, one_figure: Callable[[str], None]) -> None:
    one_figure("effective_")
    import_runs("robustness")
    words = ["analyze", "--study", "published_robustness", "--sets", "imagenet_200,imagenet_r", "--effective", PAIR]
    words += ["--algorithms", ",".join((*PLAIN, "augmix", "deepaug_augmix")), "--plain", ",".join(PLAIN)]
    assert cli.main([*words, "--output_dir", str(tmp_path / "out")]) == 0
    assert "Effective robustness" in (tmp_path / "out" / "summary.txt").read_text()
    table = pd.read_csv(tmp_path / "out" / "effective_robustness.csv")
    assert list(table) == list(section.COLUMNS)
    assert (tmp_path / "out" / "figures" / "effective_imagenet_r_by_imagenet_200.pdf").is_file()
    assert "prediction interval for one more plain row" in (tmp_path / "out" / "report.html").read_text()
