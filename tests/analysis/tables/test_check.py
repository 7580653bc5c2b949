"""Check of printed numbers: what is found, what is no error, and two hundred errors put into real tables."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import biasbed
from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.check import check_table
from biasbed.analysis.tables.check_bold import sign_flip_p
from biasbed.analysis.tables.findings import Checked, TableFinding
from biasbed.analysis.tables.formats import read_grids
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand
from biasbed.api import comparison
from helpers import benchmarks

RIGHT = """| Method | Art | Cartoon | Photo | Sketch | Avg |
|---|---|---|---|---|---|
| ERM | 81.3 | 77.9 | 95.4 | 74.6 | 82.3 |
| CORAL | 83.8 | 78.2 | 96.1 | 76.5 | 83.7 |
| MMD | 80.2 | 76.4 | 92.7 | 80.3 | 82.4 |
| RSC | 82.9 | 78.6 | 94.2 | 79.7 | 83.9 |
| **Ours** | **85.5** | **80.7** | **97.8** | **81.4** | **86.4** |
"""
SPREAD = """| Method | u | v | w |
|---|---|---|---|
| erm | 77.5 ± 0.4 | 85.5 ± 0.2 | 66.5 ± 0.3 |
| irm | 78.5 ± 0.5 | 83.5 ± 0.8 | 64.3 ± 2.2 |
| mix | **78.8 ± 0.6** | **86.6 ± 0.1** | **68.1 ± 0.3** |
"""


def check(text: str, folder: Path, settings: ReaderSettings | None = None, suffix: str = "md") -> Checked:
    path = folder / f"table.{suffix}"
    path.write_text(text, encoding="utf-8")
    table = understand(read_grids(path), settings or ReaderSettings()).printed
    assert table is not None
    return check_table(table)


def only(checked: Checked) -> TableFinding:
    assert len(checked.errors) == 1, checked
    return checked.errors[0]


def test_a_right_table_raises_no_alarm_and_says_what_was_recomputed(tmp_path: Path) -> None:
    checked = check(RIGHT, tmp_path)
    assert not checked.errors
    assert (checked.num_numbers, checked.num_averages, checked.num_bold) == (25, 5, 5)
    assert str(checked).startswith("The printed numbers hold no contradictions and 1 claim that ")
    assert checked.extent.startswith("Checked: 25 numbers, 5 averages recomputed,")


@pytest.mark.parametrize(
    ("old", "new", "kind", "row", "column", "recomputed"),
    [
        ("| 82.4 |", "| 83.4 |", "average", "MMD", "Avg", "82.40"),
        ("| 92.7 |", "| 97.2 |", "average", "MMD", "Avg", "83.53"),  # two digits changed places
        ("| 92.7 |", "| 927 |", "range", "MMD", "Photo", "0 to 100"),
        ("80.2 | 76.4 | 92.7 | 80.3 | 82.4", "82.9 | 78.6 | 94.2 | 79.7 | 83.9", "copy", "RSC", "all", "as MMD"),
        ("| 83.8 | 78.2 |", "| **83.8** | 78.2 |", "bold", "CORAL", "Art", "85.5"),
    ],
)
def test_an_error_is_one_line_with_its_row_column_and_recomputed_value(
    old: str, new: str, kind: str, row: str, column: str, recomputed: str, tmp_path: Path
) -> None:
    table = RIGHT.replace(old, new) if kind != "bold" else RIGHT.replace(old, new).replace("**85.5**", "85.5")
    findings = [finding for finding in check(table, tmp_path).errors if finding.kind == kind]
    assert [finding[1:3] for finding in findings] == [(row, column)]
    assert findings[0].recomputed == recomputed


def test_exchanged_heads_of_an_average_are_found(tmp_path: Path) -> None:
    finding = only(check(RIGHT.replace("| Sketch | Avg |", "| Avg | Sketch |"), tmp_path))
    assert (finding.kind, finding.column) == ("heads", "Sketch and Avg")


def test_averages_of_unrounded_numbers_raise_no_alarm(tmp_path: Path) -> None:
    draws = random.Random(0)
    for number in range(60):
        count, digits, average_digits = draws.randint(2, 9), draws.randint(0, 2), draws.randint(0, 3)
        lines = [f"method,{','.join(f'u{column}' for column in range(count))},Average"]
        for row in range(draws.randint(3, 12)):
            scores = [draws.uniform(40, 90) for _ in range(count)]
            printed = ",".join(f"{score:.{digits}f}" for score in scores)
            lines.append(f"m{row},{printed},{sum(scores) / count:.{average_digits}f}")
        assert not check("\n".join(lines), tmp_path, suffix="csv").errors, (number, lines)


def test_weighted_averages_and_averages_of_other_columns_raise_no_alarm(tmp_path: Path) -> None:
    draws = random.Random(1)
    for _ in range(40):
        lines = ["method,u,v,w,x,Average"]
        weights = [1, 2, 3, 4] if draws.random() < 0.5 else [1, 1, 1, 1]
        for row in range(9):
            scores = [draws.uniform(40, 90) for _ in range(5)]
            hidden = scores[4] if weights[0] == weights[1] else 0
            mean = (sum(w * s for w, s in zip(weights, scores, strict=False)) + hidden) / (sum(weights) + bool(hidden))
            lines.append(f"m{row},{','.join(f'{score:.1f}' for score in scores[:4])},{mean:.1f}")
        assert not check("\n".join(lines), tmp_path, suffix="csv").errors, lines


def test_digits_that_no_mean_of_printed_numbers_has_are_found_if_the_others_are_such_means(tmp_path: Path) -> None:
    draws = random.Random(2)
    rows = [[round(draws.uniform(50, 90), 1) for _ in range(4)] for _ in range(9)]
    lines = [f"m{n},{','.join(map(str, row))},{sum(row) / 4:.3f}" for n, row in enumerate(rows)]
    table = "\n".join(["method,u,v,w,x,Avg", *lines])
    assert not check(table, tmp_path, suffix="csv").errors
    mean = f"{sum(rows[3]) / 4:.3f}"
    finding = only(check(table.replace(f",{mean}\n", f",{float(mean) + 0.012:.3f}\n"), tmp_path, suffix="csv"))
    assert (finding.kind, finding.row, finding.column) == ("digits", "m3", "Avg")


def test_shares_that_no_number_of_images_gives_are_found(tmp_path: Path) -> None:
    counts = [31, 17, 29, 40, 22, 35]
    lines = [f"m{n},u,{count / 48:.4f},48" for n, count in enumerate(counts)]
    lines += [f"m{n},v,{count / 48 - 1 / 16:.4f},48" for n, count in enumerate(counts)]
    table = "\n".join(["method,dataset,accuracy,n_images", *lines])
    assert not check(table, tmp_path, suffix="csv").errors
    finding = only(check(table.replace(f"{31 / 48:.4f}", "0.6511"), tmp_path, suffix="csv"))
    assert (finding.kind, finding.row, finding.recomputed) == ("digits", "m0", "0.645833")


@pytest.mark.parametrize(
    ("new", "recomputed"),
    [("85.5 ± 79", "at most"), ("99.9 ± 9.5", "at most"), ("85.5 ± -0.2", "0 or more")],
)
def test_deviations_that_no_runs_can_have_are_found(new: str, recomputed: str, tmp_path: Path) -> None:
    assert not check(SPREAD, tmp_path).errors
    table = SPREAD.replace("85.5 ± 0.2", new).replace("**86.6", "**99.9")
    finding = only(check(table, tmp_path))
    assert (finding.kind, finding.row, finding.column) == ("spread", "erm", "v")
    assert finding.recomputed.startswith(recomputed)


def test_the_largest_deviation_is_that_of_runs_at_both_ends(tmp_path: Path) -> None:
    table = SPREAD.replace("85.5 ± 0.2", "50.0 ± 70.7")  # 0 and 100
    assert not check(table, tmp_path).errors
    assert only(check(table, tmp_path, ReaderSettings(num_runs=4))).recomputed == "at most 57.7"


@pytest.mark.parametrize(
    ("heads", "number", "text"),
    [
        ("U|V|W", "785", "is far above all others there; its digits are those of 78.5"),
        ("U|V|W", "104.2", "is outside of 0 to 100, where the others are"),
        ("U acc|V acc|W acc", "104.2", "is outside of 0 to 100, where the others are"),
    ],
)
def test_a_moved_point_and_a_score_above_100_are_found_in_nine_numbers(
    heads: str, number: str, text: str, tmp_path: Path
) -> None:
    lines = [f"|method|{heads}|", "|---|---|---|---|", f"|a|{number}|65.1|60.2|", "|b|78.5|66.1|61.2|"]
    findings = check("\n".join([*lines, "|c|79.5|67.1|62.2|"]), tmp_path).findings
    assert text in [finding.text for finding in findings]


def test_identical_columns_and_a_moved_point_are_found(tmp_path: Path) -> None:
    rows = [line.split(" | ") for line in RIGHT.splitlines()]
    copied = "\n".join(
        " | ".join([*row[:2], row[1], *row[3:]]) if n > 1 else " | ".join(row) for n, row in enumerate(rows)
    )
    kinds = {finding.kind for finding in check(copied, tmp_path).errors}
    assert "copy" in kinds
    moved = [
        finding for finding in check(RIGHT.replace("| 78.6 |", "| 7.86 |"), tmp_path).errors if finding.kind == "digits"
    ]
    assert [(finding.row, finding.column, finding.recomputed) for finding in moved] == [("RSC", "Cartoon", "78.6")]


def test_equal_numbers_at_a_bound_or_of_one_method_are_no_copies(tmp_path: Path) -> None:
    table = "method,u,v,w\na,100.0,100.0,99.1\nb,100.0,100.0,99.1\nc,100.0,100.0,99.1\nd,100.0,99.9,98.0\n"
    assert not check(table, tmp_path, suffix="csv").errors
    reported = RIGHT.replace("| CORAL |", "| ERM† |").replace(
        "83.8 | 78.2 | 96.1 | 76.5 | 83.7", "81.3 | 77.9 | 95.4 | 74.6 | 82.3"
    )
    assert not check(reported, tmp_path).errors


def test_bold_says_the_best_only_if_most_bold_numbers_are(tmp_path: Path) -> None:
    bold_rows = RIGHT.replace("| 80.2 | 76.4 | 92.7 | 80.3 |", "| **80.2** | **76.4** | **92.7** | **80.3** |")
    assert not check(bold_rows, tmp_path).errors
    oracle = RIGHT.replace(
        "| ERM | 81.3 | 77.9 | 95.4 | 74.6 | 82.3 |", "| Oracle | 95.3 | 95.9 | 99.4 | 94.6 | 96.3 |"
    )
    assert not check(oracle, tmp_path).errors


def test_bold_of_errors_is_the_smallest(tmp_path: Path) -> None:
    rows = "| a | 30.1 | **12.2** | 25.0 |\n| b | **20.1** | 14.2 | **21.0** |\n"
    table = f"| Method | u | v | w |\n|---|---|---|---|\n{rows}"
    assert not check(table, tmp_path).errors
    wrong = only(check(table.replace("30.1", "**30.1**").replace("**20.1**", "20.1"), tmp_path))
    assert (wrong.kind, wrong.row, wrong.column, wrong.recomputed) == ("bold", "a", "u", "20.1")


def test_the_check_takes_the_directions_that_the_user_states(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "method,x,y,z,u\na,23.7,46.3,49.4,76.7\nb,22.6,46.7,52.8,76.8\nc,**21.6**,**46.2**,**54.8**,**77.6**\n"
    )
    # Without `lower`, b is ahead of c on x and y, and counts as an upper bound.
    assert "bold" not in set(biasbed.compare(table, check=True).check["kind"])
    (stated,) = biasbed.compare(table, check=True, lower="x").check.itertuples()
    assert (stated.kind, stated.row, stated.column, stated.recomputed) == ("bold", "c", "y", "46.7")


def test_claims_name_the_rival_and_what_is_lacking(tmp_path: Path) -> None:
    claims = [finding for finding in check(SPREAD, tmp_path).findings if not finding.is_error]
    assert [(claim.row, claim.column) for claim in claims] == [("mix", "u")]
    assert "its lead over irm (78.5 ± 0.5) is within the deviation" in claims[0].text
    with_runs = check(SPREAD, tmp_path, ReaderSettings(num_runs=3)).findings
    assert "of 3 and 3 runs it is not shown to differ from irm" in with_runs[0].text
    assert with_runs[0].recomputed.startswith("Welch's test, uncorrected: p = 0.")


def test_the_lead_of_a_wrong_average_is_that_of_its_parts(tmp_path: Path) -> None:
    lines = ["a|70.1|60.2|50.3|60.2", "b|71.3|62.4|51.8|61.8", "c|72.2|61.9|53.0|62.4", "d|69.4|63.3|52.7|61.8"]
    text = "|".join(["", "Method|u|v|w|Avg|\n|-|-|-|-|-|\n", "|\n|".join([*lines, "e|73.1|64.0|52.9|65.3"]), ""])
    error, claim = check(text, tmp_path).findings
    assert (error.kind, error.recomputed) == ("average", "63.33")
    assert claim.text.startswith("(its parts: 63.33) has the best mean of 3, 0.933 from c: 3 data sets can't show it")
    assert claim.recomputed == "exact sign-flip test of the mean: p = 0.5"


def test_parts_of_one_data_set_count_once_in_a_claim(tmp_path: Path) -> None:
    claim = check(RIGHT, tmp_path).findings[0]
    assert (claim.row, claim.column) == ("Ours", "Avg")
    assert "its parts are of one data set" in claim.text


def test_the_test_of_signs_is_exact() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0]) == 0.25
    assert sign_flip_p([1.0] * 6) == 2 / 64
    assert sign_flip_p([1.0, -1.0]) == 1.0
    assert sign_flip_p([1.0] * 20) == pytest.approx(2 / 2**20)


def test_compare_prints_returns_and_writes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.md"
    path.write_text(RIGHT.replace("| 82.4 |", "| 83.4 |"), encoding="utf-8")
    result = biasbed.compare(path, check=True, bootstrap=200)
    assert result.check["kind"].tolist() == ["average", "claim"]
    line = "MMD, Avg: 83.4 is not the mean of 4"
    assert f"  Checked: 25 numbers, 5 averages recomputed, 0 deviations, 5 bold numbers.\n  line 5, {line}" in str(
        result
    )
    saved = result.save(tmp_path / "out")
    assert (saved / "check.csv").read_text().startswith("kind,line,row,column,printed,")
    page = (saved / "report.html").read_text()
    first = page.index("The printed numbers hold 1 contradiction and 1 claim that the table does not support.")
    assert first < page.index('id="scores"') < page.index("is not the mean of 4")
    comparison.run(CompareOptions(scores=(str(path),), dry_run=True, check=True))
    assert "hold 1 contradiction and" in capsys.readouterr().out


def test_the_user_s_directions_hold_for_bold_numbers_too(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    rows = "| a | **80.1** | **70.2** | 3.3 |\n| b | 75.3 | 60.4 | **2.2** |\n| c | 70.5 | 50.6 | 4.1 |\n"
    path.write_text(f"| Method | u | v | w |\n|---|---|---|---|\n{rows}", encoding="utf-8")
    found = biasbed.compare(path, check=True, bootstrap=200).check
    assert found.loc[found["kind"] == "bold", ["row", "column"]].values.tolist() == [["b", "w"]]
    assert "bold" not in set(biasbed.compare(path, check=True, bootstrap=200, lower="w").check["kind"])
    for options in ({"lower": "none"}, {"higher_is_better": True}):
        assert "bold" in set(biasbed.compare(path, check=True, bootstrap=200, **options).check["kind"])


def test_a_copied_line_is_noted_without_the_check(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text(RIGHT.replace("| 80.2 | 76.4 | 92.7 | 80.3 | 82.4 |", "| 82.9 | 78.6 | 94.2 | 79.7 | 83.9 |"))
    (note,) = [note for note in biasbed.compare(path, bootstrap=200).notes if "is one a copy?" in note]
    assert note == "RSC: 82.9 and all other 3 numbers of RSC are those of MMD: is one a copy?"


@pytest.mark.slow
def test_two_hundred_errors_in_real_tables_are_found(shared: Path) -> None:
    if not (shared / "tables").is_dir():
        pytest.skip("needs ../shared/tables, tables of other people")
    tampering = benchmarks.load("tampering")
    sources = list(tampering.read_sources(shared / "tables"))
    results = tampering.tamper(sources, 40, 0)
    assert len(results) == 200
    assert sum(result.outcome == "found" for result in results) >= 190
    # Each looked at: a bold number (014) and averages (099, 103, and 110 on purpose) are wrong in print.
    alarms = {source.name[:3] for source in sources if any(finding.is_error for finding in source.findings)}
    assert alarms == {"014", "099", "103", "110"}


BOLD_IN_LINES = """| Model | None | Vanilla | Consistency |
|---|---|---|---|
| a | 82.9 | 84.8 | **85.2** |
| b | 82.2 | 84.1 | **85.1** |
| c | 81.7 | 84.0 | **84.5** |
| d | 83.8 | **84.6** | 84.4 |
| e | 81.0 | **84.2** | 84.1 |
"""
DECIDE_ALIKE = """| Method | Accuracy | F1 | AUROC |
|---|---|---|---|
| base | 81.37 | 77.94 | 95.41 |
| base + reranking | 81.37 | 77.94 | 95.41 |
| other | 80.22 | 76.41 | 92.75 |
"""


MEAN_RANKS = """| Models | MR | MRR | HITS@1 | HITS@10 |
|---|---|---|---|---|
| TransE | 47.3 | 0.672 | 0.557 | 0.849 |
| DistMult | 61.0 | 0.696 | 0.586 | 0.867 |
| RESCAL | 124.5 | 0.661 | 0.589 | 0.787 |
| RotatE | 39.6 | 0.725 | 0.632 | 0.875 |
"""
RIGHT_TABLES = {"bold per method": BOLD_IN_LINES, "measures of one set": DECIDE_ALIKE, "mean ranks": MEAN_RANKS}


@pytest.mark.parametrize("text", RIGHT_TABLES.values(), ids=RIGHT_TABLES)
def test_what_a_right_table_may_print_is_no_contradiction(text: str, tmp_path: Path) -> None:
    assert check(text, tmp_path).errors == ()


def test_equal_measures_of_one_data_set_are_a_claim(tmp_path: Path) -> None:
    kinds = [finding.kind for finding in check(DECIDE_ALIKE, tmp_path).findings if "is one a copy" in finding.text]
    assert kinds == ["claim"]
    two_sets = DECIDE_ALIKE.replace("Accuracy | F1 | AUROC", "PACS | VLCS | Terra")
    assert [finding.kind for finding in check(two_sets, tmp_path).errors] == ["copy"]


def test_an_average_without_one_of_the_columns_is_known(tmp_path: Path) -> None:
    lines = ["method,u,v,w,x,Average,Avg (without x)"]
    for number in range(6):
        values = [50 + 7.3 * number, 61.5 - 3.1 * number, 40 + 11.7 * (number % 3), 70 + 2.9 * number]
        lines.append(f"m{number},{','.join(f'{v:.2f}' for v in (*values, sum(values) / 4, sum(values[:3]) / 3))}")
    checked = check("\n".join(lines), tmp_path, suffix="csv")
    assert (checked.errors, checked.num_averages) == ((), 12)


def test_an_average_counts_as_its_columns_do_where_a_line_lacks_it(tmp_path: Path) -> None:
    text = "Word error rate (%), lower is better:\n\n| Method | Libri | TED | CV | Average |\n|---|---|---|---|---|\n"
    text += "| A | 5.1 | 8.3 | 12.2 | 8.5 |\n| B | 4.6 | 8.0 | 11.2 | 7.9 |\n"
    text += "| **C** | **4.1** | **7.3** | **10.0** | **7.1** |\n"
    assert not check(text + "| D (oracle) | 3.1 | 6.3 | 9.0 | - |\n", tmp_path).errors


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("bold claim", "**59.0** **55.6** **54.8** 54.8 50.1"),
        ("claim", "**59.0** **55.6** 54.8 54.7 50.1"),
        ("bold", "**59.0** 55.6 **54.8** 54.7 50.1"),
        ("", "**59.0** **59.0** 55.6 54.7 50.1"),
    ],
)
def test_a_bold_number_below_another_bold_one_is_found(kind: str, column: str, tmp_path: Path) -> None:
    others = [["**60.1**", "50.2", "51.3", "52.4", "53.5"], ["42.1", "**63.2**", "44.3", "45.4", "46.5"]]
    rows = zip("abcde", *others, ["**70.3**", "60.1", "60.2", "61.3", "62.4"], column.split(), strict=True)
    lines = "\n".join(f"|{'|'.join(row)}|" for row in rows)
    findings = check(f"|Method|u|v|w|x|\n|-|-|-|-|-|\n{lines}\n", tmp_path).findings
    found = [finding for finding in findings if finding.column == "x"]
    assert {finding.kind for finding in found} == set(kind.split())
    assert all(finding.recomputed == "59.0" for finding in found)
    assert not any("recomputed" in str(finding) for finding in found)
