"""Panels as Bokeh figures: zoom, pan, hover; a click on a legend's entry hides its curve."""

import math
from collections.abc import Sequence
from typing import Any

from bokeh.embed import json_item
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure

from recipe.pages.panels import Curve, Panel

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#5f6b76")
"""Distinct for the colour-blind (Okabe and Ito 2008), without yellow and with two more."""
HEIGHT, ROW = 270, 19
"""Of a figure, and of a row of its legend beyond the first, in pixels."""
LEGEND = 48
"""Characters of names in a row of a legend, without what stands between them."""
_DASHES = {"line": "solid", "points": "solid", "dashed": "dashed", "dotted": "dotted"}
_OTHER_DASHES = {"line": [9, 3, 2, 3], "points": [9, 3, 2, 3], "dashed": [9, 3, 2, 3, 2, 3], "dotted": [1, 3, 1, 7]}
"""Of the ninth colour and later."""
_TOOLTIP = [("", "@name"), ("update", "@step{0}"), ("value", "@value{0.0000}"), ("95%", "@band")]


def drawn(panel: Panel, runs: int) -> dict[str, Any]:
    """The panel as the JSON that ``Bokeh.embed.embed_item`` takes. runs: on the page, distinguished by colour."""
    tools: list[Any] = [BoxZoomTool(), PanTool(), WheelZoomTool(), ResetTool()]
    plot: Any = figure(height=HEIGHT, sizing_mode="stretch_width", tools=tools, toolbar_location="above")
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.toolbar.active_drag = tools[0]
    _style(plot)
    names: dict[str, int] = {}
    faint = 0.18 if len(panel.curves) < 3 else 0.08
    entries = []
    for curve in panel.curves:
        # A skill and its greedy curve share a colour, and so do all curves of one of several runs.
        place = curve.run if runs > 1 else names.setdefault(curve.name.removesuffix(", greedy"), len(names))
        entries.append(_draw(plot, curve, place, faint, f"{panel.title} {curve.run}"))
    if panel.is_share:
        plot.y_range = Range1d(start=0, end=1, bounds=(-0.05, 1.05))
    if len(entries) > 1:
        columns = max(1, min(4, LEGEND // max(len(curve.name) for curve in panel.curves)))
        plot.height += ROW * (math.ceil(len(entries) / columns) - 1)
        legend = Legend(items=entries, click_policy="hide", orientation="horizontal", ncols=columns)
        legend.update(border_line_color=None, location="left", margin=0, padding=2)
        legend.update(label_text_font_size="11px", spacing=8, glyph_width=16)
        plot.add_layout(legend, "below")
    return dict(json_item(plot))


def _draw(plot: Any, curve: Curve, place: int, faint: float, name: str) -> LegendItem:
    """Draw a curve and its band. place: of its colour, after the last of which the first comes again, with other
    dashes. faint: how opaque the band is. name: of the curve's data, for scripts.
    """
    low, high, colour = curve.low, curve.high, COLOURS[place % len(COLOURS)]
    dash = (_DASHES if place < len(COLOURS) else _OTHER_DASHES)[curve.look]
    band = [
        f"{bottom:.4f} to {top:.4f}" for bottom, top in zip(low, high, strict=True)
    ] if low and high else ["-"] * len(curve.steps)  # fmt: skip
    data: dict[str, Sequence[Any]] = {
        "step": list(curve.steps), "value": list(curve.values), "name": [curve.name] * len(curve.steps), "band": band,
    }  # fmt: skip
    if low and high:
        data |= {"low": list(low), "high": list(high)}
    source = ColumnDataSource(data, name=name)
    parts = []
    if low and high:
        parts.append(plot.varea("step", "low", "high", source=source, fill_color=colour, fill_alpha=faint))
    width = 1.0 if curve.look == "points" else 1.8
    line = plot.line("step", "value", source=source, color=colour, line_width=width, line_dash=dash)
    # Single points would be invisible as a line; a point is also easier to hit.
    size = 7 if curve.look == "points" or len(curve.steps) == 1 else 4
    alpha = 1.0 if size > 4 else 0.0
    points = plot.scatter("step", "value", source=source, size=size, color=colour, alpha=alpha, hover_alpha=1.0)
    plot.add_tools(HoverTool(renderers=[points], tooltips=_TOOLTIP, visible=False, mode="mouse"))
    return LegendItem(label={"value": curve.name}, renderers=[*parts, line, points])


def _style(plot: Any) -> None:
    plot.update(outline_line_color=None, background_fill_alpha=0, border_fill_alpha=0, min_border=8)
    for axis in plot.axis:
        axis.update(axis_line_color="#b8c0c8", major_tick_line_color=None, minor_tick_line_color=None)
        axis.update(major_label_text_color="#5f6b76", major_label_text_font_size="11px")
    plot.xaxis.ticker.update(min_interval=1, num_minor_ticks=0)
    plot.xaxis.axis_label = "policy updates"
    plot.xaxis.update(axis_label_text_font_size="11px", axis_label_text_color="#5f6b76")
    plot.grid.grid_line_color = "#e4e8ec"
