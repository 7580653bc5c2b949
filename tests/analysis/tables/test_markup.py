"""Cells without markup: Markdown, HTML and LaTeX as tables of results use them."""

from __future__ import annotations

import pytest

from biasbed.analysis.tables.markup import clean_html, clean_latex, clean_markdown, is_bold, without_citation


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("**77.5**", "77.5"),
        ("__77.5__", "77.5"),
        ("[**bge**](https://x.org/a_(b))", "bge"),
        ("[AugMix](https://x.org) (ICLR 2020)", "AugMix (ICLR 2020)"),
        ("wavelet_a_b", "wavelet_a_b"),
        ("T2Reranking\\*", "T2Reranking*"),
        ("`code`", "code"),
        ("**51.2**&plusmn;0.11", "51.2±0.11"),
        ("94.2<sub>±0.4</sub>", "94.2±0.4"),
        ("94.2<sub>0.4</sub>", "94.2 ±0.4"),
        ("94.2<sup>1</sup>", "94.2"),
        ("Whisper-S<sup>1</sup>", "Whisper-S"),
        ("Whisper-S<sup>1,2</sup>", "Whisper-S"),
        ("R<sup>2</sup>", "R2"),
        ("94.2<sup>a</sup>", "94.2"),
        ("ViT-H<sub>448</sub>", "ViT-H448"),
        ("DFR$^{Tr}$", "DFRTr"),
        ("$\\mathbf{9 8 . 7 6}$", "98.76"),
        ("OOD &#8593;", "OOD ↑"),
        (":1st_place_medal:", ""),
        ("![](logo.png) net", "net"),
    ],
)
def test_markdown_is_removed(raw: str, text: str) -> None:
    assert clean_markdown(raw) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r"\textbf{84.7}", "84.7"),
        (r"84.7 $\pm$ 0.4", "84.7 ± 0.4"),
        (r"84.7{\scriptsize$\pm$0.4}", "84.7±0.4"),
        (r"\underline{88.3}\std{0.3}", "88.3 ±0.3"),
        (r"68.4$_{\pm0.2}$", "68.4±0.2"),
        (r"$\textbf{95.8}_{0.7}$", "95.8 ±0.7"),
        (r"CORAL~\cite{sun2016}", "CORAL"),
        (r"\cellcolor{gray!20}29.5", "29.5"),
        (r"\textcolor{red}{29.5}", "29.5"),
        (r"R\&D", "R&D"),
        (r"guided\_filter", "guided_filter"),
        (r"acc_top_5 of $AP_s$", "acc_top_5 of APs"),
        (r"95.76\%", "95.76%"),
        (r"A$\rightarrow$W", "A>W"),
        (r"accuracy $\uparrow$", "accuracy ↑"),
        (r"\makecell{two\\lines}", "two lines"),
        (r"UCAD$\dag$", "UCAD†"),
        (r"84.7\unknown{0.3}", "84.7 0.3"),
    ],
)
def test_latex_is_removed(raw: str, text: str) -> None:
    assert clean_latex(raw) == text


def test_html_and_bold_are_seen() -> None:
    assert clean_html("<b>1.5</b><br>&plusmn;0.2") == "1.5 ±0.2"
    assert is_bold("**1**")
    assert is_bold(r"\textbf{1}")
    assert not is_bold("1")


def test_citations_go_and_brackets_of_names_stay() -> None:
    assert without_citation("MEDA[27]") == "MEDA"
    assert without_citation("MIRO* [11]") == "MIRO*"
    assert without_citation("bilstm_[14, 14, 14]") == "bilstm_[14, 14, 14]"
