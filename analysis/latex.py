"""The result as LaTeX tables for a paper (packages booktabs and longtable). Each states its own provenance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from biasbed.analysis.result import Analysis, Cell, number, scores_by_run
from biasbed.analysis.statistics import Comparison

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}

DAGGER_TEXT = r"\textsuperscript{$\dagger$}~underlined: the algorithm trained on data of the maker of this set. "


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes all LaTeX tables and returns file name -> one line that says what it is."""
    (folder / "tables").mkdir(exist_ok=True)
    tables = {
        "tables/scores.tex": (score_table(analysis), "scores of the algorithms on the sets, LaTeX"),
        "tables/runs.tex": (run_table(analysis), "score of every run, for an appendix, LaTeX"),
    }
    if any(len(comparison.ranks) for comparison in analysis.comparisons):
        tables["tables/ranks.tex"] = (rank_table(analysis), "average ranks and omnibus test, LaTeX")
    for comparison in analysis.comparisons:
        if comparison.nemenyi is not None:
            description = f"p-values of Nemenyi's test, {comparison.setting} sets, LaTeX"
            tables[f"tables/nemenyi{comparison.suffix}.tex"] = (nemenyi_table(analysis, comparison), description)
    for name, (text, _) in tables.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: description for name, (_, description) in tables.items()}


def escape(text: str) -> str:
    """Any text as LaTeX prints it."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def score_table(analysis: Analysis) -> str:
    """Algorithms x sets, mean +- std over runs; best bold, sets of the training data's maker underlined."""
    rows = [
        [escape(algorithm), *(_cell(analysis.cells[algorithm, name]) for name in analysis.set_names)]
        for algorithm in analysis.algorithms
    ]
    caption = f"Scores in percent, mean $\\pm$ standard deviation over runs ({_provenance(analysis)}). Best in bold. "
    caption += DAGGER_TEXT if analysis.daggers else ""
    header = ["", *(rf"\rotatebox{{60}}{{{escape(name)}}}" for name in analysis.set_names)]
    body = _tabular(header, rows, "l" + "r" * len(analysis.set_names))
    return _float(body, caption, "scores", packages="booktabs, graphicx")


def rank_table(analysis: Analysis) -> str:
    """Average ranks, and below them the omnibus test of each setting."""
    comparisons = [comparison for comparison in analysis.comparisons if len(comparison.ranks)]
    header = ["", *(f"{c.setting} ({len(c.sets)} sets)" for c in comparisons)]
    order = comparisons[0].mean_ranks
    rows = [[escape(name), *(f"{c.mean_ranks[name]:.2f}" for c in comparisons)] for name in order]
    footer = [["$p$", *(_omnibus_p(c) for c in comparisons)]]
    if any(c.reach and c.reach.critical_difference for c in comparisons):
        differences = [c.reach.critical_difference if c.reach else None for c in comparisons]
        footer.append(["critical difference", *("--" if d is None else f"{d:.2f}" for d in differences)])
    caption = f"Average ranks, 1 is best ({_provenance(analysis)}). $p$: {_test_name(comparisons[0])}. "
    body = _tabular(header, rows, "l" + "r" * len(comparisons), footer)
    return _float(body, caption, "ranks", packages="booktabs")


def nemenyi_table(analysis: Analysis, comparison: Comparison) -> str:
    """p-values of all pairs, upper triangle; significant ones bold where the omnibus test is."""
    names = comparison.algorithms
    rows = []
    for i, a in enumerate(names):
        cells = [_p_cell(comparison.p(a, b), comparison) if j > i else "" for j, b in enumerate(names)]
        rows.append([escape(a), *cells])
    caption = (
        f"Nemenyi's test, $p$-values on {len(comparison.sets)} sets ({_provenance(analysis)}). "
        f"Bold: below {comparison.alpha:g}. "
    )
    if not comparison.significant:
        caption += "The omnibus test is not significant, so no pair may be called different and none is bold. "
    header = ["", *(rf"\rotatebox{{60}}{{{escape(name)}}}" for name in names)]
    body = _tabular(header, rows, "l" + "r" * len(names))
    return _float(body, caption, f"nemenyi-{comparison.setting}", packages="booktabs, graphicx")


def run_table(analysis: Analysis) -> str:
    """Every run's scores, over as many pages as it takes."""
    scores = scores_by_run(analysis.runs)
    columns = "ll" + "r" * len(analysis.set_names)
    head = " & ".join(["algorithm", "seed", *(rf"\rotatebox{{60}}{{{escape(n)}}}" for n in analysis.set_names)])
    caption = f"Scores in percent of every run ({_provenance(analysis)}). "
    lines = [
        "% needs: booktabs, longtable, graphicx",
        rf"{{\footnotesize\setlength{{\tabcolsep}}{{3pt}}\begin{{longtable}}{{{columns}}}",
        rf"\caption{{{caption.strip()}}}\label{{tab:runs}}\\",
        rf"\toprule {head} \\ \midrule \endfirsthead",
        rf"\toprule {head} \\ \midrule \endhead",
        r"\bottomrule \endfoot",
    ]
    for run in analysis.collection.runs:
        values = [number(scores.get((run.id, name), math.nan)) for name in analysis.set_names]
        seed = run.seed + (f" {run.test_domains}" if run.test_domains else "")
        lines.append(" & ".join([escape(run.algorithm), escape(seed), *values]) + r" \\")
    return "\n".join([*lines, r"\end{longtable}}", ""])


def _cell(cell: Cell) -> str:
    text = rf"\textbf{{{cell.mean_text}}}" if cell.best else cell.mean_text
    if cell.std_text:
        text += rf" {{\scriptsize$\pm$ {cell.std_text}}}"
    return rf"\underline{{{text}}}\textsuperscript{{$\dagger$}}" if cell.dagger else text


def _p_cell(p: float, comparison: Comparison) -> str:
    text = f"{p:.3f}" if p >= 0.001 else "$<$0.001"
    return rf"\textbf{{{text}}}" if comparison.significant and p < comparison.alpha else text


def _omnibus_p(comparison: Comparison) -> str:
    if comparison.skipped:
        return "--"
    test = comparison.pair.wilcoxon_p if comparison.pair else comparison.friedman.p if comparison.friedman else math.nan
    mantissa, _, exponent = f"{test:.3g}".partition("e")
    return rf"${mantissa}\cdot 10^{{{int(exponent)}}}$" if exponent else mantissa


def _test_name(comparison: Comparison) -> str:
    if comparison.skipped:
        return "no test, " + escape(comparison.skipped)
    return "exact Wilcoxon signed-rank test" if comparison.pair else "Friedman's test with Iman and Davenport's $F$"


def _provenance(analysis: Analysis) -> str:
    return escape(f"{analysis.title}; rule {analysis.rule.name}: {analysis.rule.label}; {analysis.runs_sentence}")


def _tabular(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: str, footer: Sequence[Sequence[str]] = ()
) -> str:
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(header) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\midrule", *(" & ".join(row) + r" \\" for row in footer)] if footer else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _float(body: str, caption: str, label: str, packages: str) -> str:
    lines = [f"% needs: {packages}", r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
    return "\n".join([*lines, rf"\caption{{{caption.strip()}}}\label{{tab:{label}}}", body, r"\end{table}", ""])
