"""Make the font of the report's figures anew, out of matplotlib's DejaVu Sans.

PYTHONPATH=src python docs/font.py
"""

from __future__ import annotations

from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from matplotlib import get_data_path

from biasbed.analysis.report.figures.font import FILE, NAME

# Latin, Greek, Cyrillic, punctuation, currencies and super- and subscripts, arrows and operators.
LETTERS = ((0x20, 0x24F), (0x370, 0x4FF), (0x2000, 0x20BF), (0x2100, 0x22FF))
LAYOUT = ["GDEF", "GPOS", "GSUB", "MATH"]  # tables
FAMILY_NAME, STYLE_NAME, FULL_NAME, POSTSCRIPT_NAME = 1, 2, 4, 6  # in the table of names
COPYRIGHT, VERSION, LICENCE, LICENCE_ADDRESS = 0, 5, 13, 14


def make_file() -> None:
    """Cut the letters out of the whole font, and write the file."""
    font = TTFont(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), recalcTimestamp=False)
    names = {FAMILY_NAME: NAME, STYLE_NAME: "Regular", FULL_NAME: NAME, POSTSCRIPT_NAME: NAME.replace(" ", "")}
    options = subset.Options(legacy_kern=True, hinting=False, notdef_outline=True)
    options.name_IDs = [*names, COPYRIGHT, VERSION, LICENCE, LICENCE_ADDRESS]
    options.drop_tables += [*LAYOUT, "FFTM", "gasp"]
    cutter = subset.Subsetter(options)
    for first, last in LETTERS:
        cutter.populate(unicodes=range(first, last + 1))
    cutter.subset(font)
    for record in font["name"].names:
        record.string = names.get(record.nameID, record.toUnicode())
    font.save(FILE)


if __name__ == "__main__":
    make_file()
