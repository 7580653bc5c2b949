"""Tables laid out as a paper's: rows and columns as printed, your numbers beside the printed ones."""

from __future__ import annotations

OFFERS = {
    "analyze_settings": {"layouts": "biasbed.plugins.layouts.options:LayoutOptions"},
    "file_format": {"layout": "biasbed.plugins.layouts.layout_file:TableLayout"},
    "listed_tables": {"layouts": "biasbed.plugins.layouts.layout_file:describe"},
    "training_section": {"layouts": "biasbed.plugins.layouts.section:LAYOUTS"},
}
